//! Sleeping services that come all at once.

use super::Measurement;
use crate::{
    operator::Operator,
    population::names,
    resolver,
    stage::Stage,
    witness::{Listing, Scales},
};
use anyhow::Result;
use elasti_e2e::report::Goal;
use tokio::time::Instant;

const BURST: usize = 300;

impl Measurement<'_> {
    pub(super) async fn burst(&mut self) -> Result<()> {
        let operator = Operator::start(self.stage)?;
        operator.settles(self.count()).await?;
        let names = names("burst", BURST);
        let created = self.population.add(&names).await?;
        let done = self.proxied.reach(self.count()).await?;
        self.report.add(
            format!("{BURST} created at once, until all are in proxy mode"),
            done.saturating_duration_since(created).as_secs_f64(),
            "s",
            Goal::Below(5.0),
        );
        self.calm().await?;
        self.add_woken("burst").await?;
        if self.stage.cluster.is_local() {
            self.lose_a_resolver().await?;
        }
        let mut scales = Scales::watch(&self.stage.client, self.stage.namespace()).await?;
        let knocked = self.knock(&operator, &names, &mut scales).await?;
        self.calm().await?;
        self.scale_ourselves(&knocked, &mut scales).await?;
        operator.stop().await
    }

    async fn lose_a_resolver(&mut self) -> Result<()> {
        let Stage {
            client, resolver, ..
        } = self.stage;
        let namespace = self.stage.namespace();
        let mut listing = Listing::watch(client, namespace, resolver::SECOND);
        listing.reach(self.count()).await?;
        resolver.lose_second(client, namespace).await?;
        let lost = Instant::now();
        let done = listing.reach(0).await?;
        self.report.add(
            format!("{BURST} asleep, a resolver ends, until no slice names it"),
            done.saturating_duration_since(lost).as_secs_f64(),
            "s",
            Goal::Below(1.0),
        );
        self.calm().await
    }
}
