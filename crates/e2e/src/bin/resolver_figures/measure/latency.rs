//! What is added to one request at a time.

use super::{Measurement, here};
use crate::{
    haproxy::{self, Haproxy},
    helper::{Helper, Passed, Role},
    process::Core,
    resolver::Resolver,
    stage,
};
use anyhow::Result;
use elasti_e2e::report::Goal;
use std::net::SocketAddr;

const ROUNDS: usize = 5;

impl Measurement<'_> {
    /// Straight to the target and through a proxy, in turns.
    pub(super) async fn latency(&mut self) -> Result<()> {
        self.report.part(
            "What is added to one request at a time; the proxies on core 0, client and target on core 1",
            "elasti-resolver-figures --only latency",
        );
        let stage = self.stage;
        let _target = Helper::target(stage, Core::Helping).await?;
        stage.wake().await?;
        let _resolver = Resolver::start(stage, Core::Measured).await?;
        let _haproxy = Haproxy::start(stage, Core::Measured).await?;
        let (mut by_us, mut by_them) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let direct = self.median_of(stage.target).await?;
            by_us.push(self.median_of(here(stage::HTTP)).await? - direct);
            by_them.push(self.median_of(here(haproxy::HTTP)).await? - direct);
        }
        let figure = "added to the median of HTTP/1 requests, one at a time";
        self.report
            .add_median(figure, by_us, "us", Goal::Below(100.0));
        let figure = format!("{figure}, by haproxy");
        self.report.add_median(figure, by_them, "us", Goal::None);
        stage.put_to_sleep().await
    }

    async fn median_of(&self, address: SocketAddr) -> Result<f64> {
        let role = Role::Load {
            address,
            connections: 1,
            fresh: false,
            milliseconds: 400,
        };
        let mut client = Helper::start(self.stage, Core::Helping, role)?;
        Ok(client.says::<Passed>().await?.median)
    }
}
