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
/// take a while where many want to run.
pub fn has_files(id: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{id}/task"));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.any(|thread| {
        let open = fs::read_dir(thread.path().join("fd"));
        open.is_ok_and(|mut open| open.next().is_some())
    })
}
