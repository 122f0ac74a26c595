use anyhow::{Context, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::fs;

/// Kills what a pod runs, not asking, as the kernel does when memory is short. Only for clusters that
/// run here.
pub fn kill_pod_process(pod: &str) -> Result<Pid> {
    let hostname = format!("HOSTNAME={pod}");
    let processes = fs::read_dir("/proc")?.flatten();
    let of_pod = processes.filter_map(|process| {
        let environment = fs::read(process.path().join("environ")).ok()?;
        let command = fs::read(process.path().join("cmdline")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let is_it = command.starts_with(b"/elasti-")
            && variables.any(|variable| variable == hostname.as_bytes());
        is_it.then(|| process.file_name().to_str()?.parse().ok())?
    });
    let id = of_pod
        .last()
        .with_context(|| format!("{pod} runs nowhere here"))?;
    let id = Pid::from_raw(id);
    kill(id, Signal::SIGKILL)?;
    Ok(id)
}

/// Whether a process still has what it had open. One that was killed takes connections until it is torn down, which can
/// take a while where many want to run; its list of files is empty before the last of them is closed, and only then is
/// the last thread dead.
pub fn is_alive(id: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{id}/task"));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before it may have any letter.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        state.is_some_and(|state| !state.starts_with(['Z', 'X']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn one_that_was_torn_down_is_dead_though_nobody_has_asked_for_its_end() {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let id = Pid::from_raw(process.id().try_into().unwrap());
        assert!(is_alive(id));
        process.kill().unwrap();
        while is_alive(id) {}
        process.wait().unwrap();
        assert!(!is_alive(id), "nor is one that is no more");
    }
}
