use anyhow::{Context, Result};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::{
    env,
    path::PathBuf,
    process::{Child, Command},
};

/// A process that lives as long as its handle.
pub struct Running(Child);

// === impl Running ===

impl Running {
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        Ok(Self(child))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    /// Stops it where it is, until [`go_on`](Self::go_on).
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Asks it to end, and waits until it has.
    pub fn end(mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        let status = self.0.wait()?;
        anyhow::ensure!(status.success(), "it ended with {status}");
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(signal::kill(
            Pid::from_raw(self.0.id().try_into()?),
            signal,
        )?)
    }
}

/// Killed, not asked.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A binary of the workspace, built beside this test.
pub fn built(name: &str) -> Result<PathBuf> {
    let this = env::current_exe()?;
    this.ancestors()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            format!("{name} is not built: run `make e2e`, or `cargo build --workspace` first")
        })
}
