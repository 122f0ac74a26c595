//! Who passes on, and where. All of them on one core, with the same target.

use crate::{
    haproxy::{self, Haproxy},
    helper::Helper,
    measure::here,
    nginx::{self, Nginx},
    process::Core,
    resolver::Resolver,
    stage::{self, Stage},
};
use anyhow::{Context, Result, ensure};
use elasti_e2e::Usage;
use std::net::SocketAddr;

pub(super) struct Rival {
    pub(super) name: &'static str,
    pub(super) usage: Usage,
    pub(super) http: SocketAddr,
    pub(super) http2: SocketAddr,
    pub(super) opaque: SocketAddr,
}

/// All of them awake.
pub(super) struct Rivals {
    pub(super) all: [Rival; 4],
    _target: Helper,
    _resolver: Resolver,
    _haproxy: Haproxy,
    _nginx: Nginx,
}

// === impl Rivals ===

impl Rivals {
    pub(super) async fn start(stage: &Stage<'_>) -> Result<Self> {
        reuse_ports(stage)?;
        let target = Helper::target(stage, Core::Helping).await?;
        stage.wake().await?;
        let resolver = Resolver::start(stage, Core::Measured).await?;
        let haproxy = Haproxy::start(stage, Core::Measured).await?;
        let nginx = Nginx::start(stage, Core::Measured).await?;
        let rival = |name, usage, [http, http2, opaque]: [SocketAddr; 3]| Rival {
            name,
            usage,
            http,
            http2,
            opaque,
        };
        Ok(Self {
            all: [
                rival(
                    "Elasti",
                    resolver.usage(),
                    [stage::HTTP, stage::HTTP, stage::OPAQUE].map(here),
                ),
                rival(
                    "haproxy",
                    haproxy.usage(),
                    [haproxy::HTTP, haproxy::HTTP2, haproxy::OPAQUE].map(here),
                ),
                rival(
                    "nginx",
                    nginx.usage(),
                    [nginx::HTTP, nginx::HTTP2, nginx::OPAQUE].map(here),
                ),
                rival("no proxy", target.usage()?, [stage.target; 3]),
            ],
            _target: target,
            _resolver: resolver,
            _haproxy: haproxy,
            _nginx: nginx,
        })
    }
}

/// In the cluster's own network: thousands of new connections a second leave none unused.
fn reuse_ports(stage: &Stage<'_>) -> Result<()> {
    let status = stage
        .cluster
        .command("sysctl")?
        .args(["--quiet", "--write", "net.ipv4.tcp_tw_reuse=1"])
        .status()
        .context("running sysctl")?;
    ensure!(status.success(), "sysctl: {status}");
    Ok(())
}
