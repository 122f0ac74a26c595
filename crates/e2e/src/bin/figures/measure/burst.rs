//! Sleeping services that come all at once, and knocks for them, one after the other.

use super::Measurement;
use crate::{operator::Operator, population::names, witness::Scales};
use anyhow::Result;
use elasti_e2e::report::Goal;

const BURST: usize = 300;
const KNOCKS: usize = 150;

impl Measurement<'_> {
    pub(super) async fn burst(&mut self) -> Result<()> {
        self.part(
            "burst",
            self.count(),
            "300 ElastiServices at once, and knocks",
        );
        let operator = Operator::start(self.stage)?;
        operator.settles(self.count()).await?;
        let names = names("burst", BURST);
        let created = self.population.add(&names).await?;
        let done = self.proxied.reach(self.count()).await?;
        let took = done.saturating_duration_since(created).as_secs_f64();
        let figure = format!("{BURST} created at once, until all are in proxy mode");
        self.report
            .add(figure, took, "s", Goal::Below(5.0))
            .theirs("29");
        self.calm().await?;
        self.add_woken("burst").await?;
        if self.stage.cluster.is_local() {
            self.lose_and_regain_a_resolver(Goal::Below(1.0)).await?;
        }
        let mut scales = Scales::watch(&self.stage.client, self.stage.namespace()).await?;
        let knocked = self.knock(&operator, &names[..KNOCKS], &mut scales).await?;
        self.calm().await?;
        self.scale_ourselves(&knocked, &mut scales).await?;
        operator.stop().await
    }
}
