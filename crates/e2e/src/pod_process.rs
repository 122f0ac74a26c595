use anyhow::{Context, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::fs;

/// Kills what a pod runs, not asking, as the kernel does when memory is short. Only for clusters that
/// run here.
pub fn kill_pod_process(pod: &str) -> Result<()> {
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
    Ok(kill(Pid::from_raw(id), Signal::SIGKILL)?)
}
