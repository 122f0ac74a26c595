use anyhow::Result;
use elasti_cluster::Cluster;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Parts of a local cluster that stand still, and take no time from what is measured, until this is dropped.
pub struct Paused(Vec<Pid>);

// === impl Paused ===

impl Paused {
    /// By their names, of which the kernel keeps 15 characters.
    pub fn parts(cluster: &Cluster, names: &[&str]) -> Result<Self> {
        let mut paused = Self(Vec::new());
        for (id, name) in cluster.processes() {
            if names.contains(&name.as_str()) {
                let id = Pid::from_raw(id);
                kill(id, Signal::SIGSTOP)?;
                paused.0.push(id);
            }
        }
        Ok(paused)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for id in &self.0 {
            // One that has ended meanwhile needs nothing.
            let _ = kill(*id, Signal::SIGCONT);
        }
    }
}
