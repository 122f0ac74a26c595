//! Resolvers that come and go while many sleep.

use super::Measurement;
use crate::{resolver, stage::Stage, witness::Listing};
use anyhow::Result;
use elasti_e2e::report::Goal;
use tokio::time::Instant;

impl Measurement<'_> {
    pub(super) async fn resolvers(&mut self, services: usize) -> Result<()> {
        self.part(
            "resolvers",
            services,
            "A resolver's going and coming with all of them in proxy mode",
        );
        self.lose_and_regain_a_resolver(Goal::None).await
    }

    pub(super) async fn lose_and_regain_a_resolver(&mut self, goal: Goal) -> Result<()> {
        let Stage {
            client, resolver, ..
        } = self.stage;
        let namespace = self.stage.namespace();
        // Those that were woken have no pods, and keep their slices.
        let all = self.count();
        let mut listing = Listing::watch(client, namespace, resolver::SECOND);
        listing.reach(all).await?;
        for (second, what, until) in [
            (false, "a resolver goes, until no slice names it", 0),
            (true, "a resolver comes, until every slice names it", all),
        ] {
            let before = self.api_server.writes().await?;
            let begun = Instant::now();
            resolver.announce_second(client, namespace, second).await?;
            let done = listing.reach(until).await?;
            let took = done.saturating_duration_since(begun).as_secs_f64();
            self.report
                .add(format!("{all} in proxy mode, {what}"), took, "s", goal);
            self.api_server.operator_quiet().await?;
            let writes = self.api_server.writes().await?.beyond(&before);
            let slices = writes.applied("endpointslices");
            let figure = format!("{all} in proxy mode, {what}: slices written");
            self.report.add(figure, slices, "slices", Goal::None);
        }
        Ok(())
    }
}
