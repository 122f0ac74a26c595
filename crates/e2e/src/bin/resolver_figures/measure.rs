//! The figures. Each part has resolvers of its own.

mod burst;
mod holding;
mod large;
mod latency;
mod passing;
mod start;

use crate::{Cli, Part, stage::Stage};
use anyhow::Result;
use elasti_cluster::Cluster;
use elasti_e2e::{Paused, report::Report};
use std::net::SocketAddr;

struct Measurement<'a> {
    stage: &'a Stage<'a>,
    report: &'a mut Report,
}

/// Nothing is deployed here, and no traffic passes through services.
const IDLE: [&str; 5] = [
    "containerd",
    "kube-controller",
    "kube-proxy",
    "kube-scheduler",
    "kubelet",
];

pub(crate) async fn all(cluster: &Cluster, cli: &Cli, report: &mut Report) -> Result<()> {
    let stage = Stage::set(cluster, cli).await?;
    let paused = Paused::parts(cluster, &IDLE)?;
    let mut measurement = Measurement {
        stage: &stage,
        report,
    };
    let outcome = measurement.parts(cli).await;
    drop(paused);
    if cli.keep || !cluster.is_local() {
        stage.clear().await?;
    }
    outcome
}

// === impl Measurement ===

impl Measurement<'_> {
    async fn parts(&mut self, cli: &Cli) -> Result<()> {
        if cli.wants(Part::Start) {
            self.start().await?;
        }
        if cli.wants(Part::Holding) {
            self.holding().await?;
        }
        if cli.wants(Part::Burst) {
            self.burst().await?;
        }
        if cli.wants(Part::Passing) {
            self.passing().await?;
        }
        if cli.wants(Part::Latency) {
            self.latency().await?;
        }
        if cli.wants(Part::Large) {
            self.large().await?;
        }
        Ok(())
    }
}

fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
