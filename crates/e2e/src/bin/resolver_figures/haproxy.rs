//! What we are compared with.

use crate::{
    process::{Core, command, listens},
    stage::Stage,
};
use anyhow::Result;
use elasti_e2e::{Running, Usage};
use std::{env, fs, path::Path, process};

pub(crate) const HTTP: u16 = 18_101;
pub(crate) const OPAQUE: u16 = 18_102;
pub(crate) const HTTP2: u16 = 18_103;
/// Where Debian puts it, which is not on everybody's PATH.
const PROGRAM: &str = "/usr/sbin/haproxy";

pub(crate) struct Haproxy(Running);

// === impl Haproxy ===

impl Haproxy {
    /// On one thread, keeping connections on both sides, and telling who asked, as we do.
    pub(crate) async fn start(stage: &Stage<'_>, core: Core) -> Result<Self> {
        let config = env::temp_dir().join(format!("elasti-figures-{}.cfg", process::id()));
        fs::write(&config, configuration(stage))?;
        let program = if Path::new(PROGRAM).exists() {
            PROGRAM
        } else {
            "haproxy"
        };
        let mut command = command(stage.cluster, program, core)?;
        command.args(["-db", "-q", "-f"]).arg(&config);
        let running = Running::start(&mut command)?;
        listens("haproxy", OPAQUE).await?;
        fs::remove_file(&config)?;
        Ok(Self(running))
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.0.id())
    }
}

fn configuration(stage: &Stage<'_>) -> String {
    let target = stage.target;
    format!(
        "global
  nbthread 1
  maxconn 4000
defaults
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen http
  mode http
  bind 127.0.0.1:{HTTP}
  option forwardfor
  option http-keep-alive
  http-reuse always
  server target {target}
listen http2
  mode http
  bind 127.0.0.1:{HTTP2} proto h2
  option forwardfor
  http-reuse always
  server target {target} proto h2
listen opaque
  mode tcp
  bind 127.0.0.1:{OPAQUE}
  server target {target}
"
    )
}
