use anyhow::{Context, Result};
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
}

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
