//! Sleeping services that come all at once, and knocks for them that come one after another.

use super::Measurement;
use crate::{
    operator::Operator,
    population::{names, targets},
    report::Goal,
    witness::Scales,
};
use anyhow::Result;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

const BURST: usize = 300;

impl Measurement<'_> {
    pub(super) async fn burst(&mut self) -> Result<()> {
        let operator = Operator::start(self.stage)?;
        operator.settles(self.count()).await?;
        let mut names = names("burst", BURST);
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
        let asleep = self.proxied.asleep().await?;
        names.retain(|name| asleep.contains(name));
        let mut scales = Scales::watch(&self.stage.client, self.stage.namespace()).await?;
        self.knock(&operator, &names, &mut scales).await?;
        self.calm().await?;
        self.scale_ourselves(&names, &mut scales).await?;
        operator.stop().await
    }

    /// From before the connection is opened until a watch shows the raised replicas. So this is the
    /// operator's part, and the API server's: to write, and to tell of it.
    async fn knock(
        &mut self,
        operator: &Operator,
        names: &[String],
        scales: &mut Scales,
    ) -> Result<()> {
        let mut took = Vec::new();
        for name in names {
            let sent = Instant::now();
            let (knocked, raised) = tokio::join!(
                operator.knock(self.stage.namespace(), name),
                scales.raised(name, 1)
            );
            knocked?;
            took.push(raised? - sent);
        }
        let goals = [Goal::Below(10.0), Goal::Below(50.0)];
        self.add_latencies("Knock until /scale is seen written", took, goals);
        Ok(())
    }

    /// The API server's part alone.
    async fn scale_ourselves(&mut self, names: &[String], scales: &mut Scales) -> Result<()> {
        let stage = self.stage;
        let api: Api<DynamicObject> =
            Api::namespaced_with(stage.client.clone(), stage.namespace(), &targets());
        let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
        let mut took = Vec::new();
        for name in names {
            let sent = Instant::now();
            api.patch_scale(name, &PatchParams::default(), &patch)
                .await?;
            took.push(scales.raised(name, 2).await? - sent);
        }
        self.add_latencies("Our own /scale until it is seen", took, [Goal::None; 2]);
        Ok(())
    }

    fn add_latencies(&mut self, figure: &str, mut took: Vec<Duration>, goals: [Goal; 2]) {
        took.sort();
        for (percent, goal) in [50, 99].into_iter().zip(goals) {
            let rank = (took.len() * percent).div_ceil(100).saturating_sub(1);
            let milliseconds = took.get(rank).map_or(f64::NAN, |t| t.as_secs_f64() * 1e3);
            let figure = format!("{figure}, p{percent} of {}", took.len());
            self.report.add(figure, milliseconds, "ms", goal);
        }
    }
}
