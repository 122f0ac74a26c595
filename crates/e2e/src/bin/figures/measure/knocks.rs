//! Knocks, one after another, each when the one before was dealt with.

use super::Measurement;
use crate::{operator::Operator, population::targets, witness::Scales};
use anyhow::Result;
use elasti_e2e::report::Goal;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

impl Measurement<'_> {
    /// From before the connection is opened until a watch shows the raised replicas. So this is the
    /// operator's part, and the API server's: to write, and to tell of it.
    pub(super) async fn knock(
        &mut self,
        operator: &Operator,
        names: &[String],
        scales: &mut Scales,
    ) -> Result<Vec<String>> {
        let asleep = self.proxied.asleep().await?;
        let mut names = names.to_vec();
        names.retain(|name| asleep.contains(name));
        let mut took = Vec::new();
        for name in &names {
            let sent = Instant::now();
            let (knocked, raised) = tokio::join!(
                operator.knock(self.stage.namespace(), name),
                scales.raised(name, 1)
            );
            knocked?;
            took.push(raised? - sent);
            self.proxied.told_of_wake(name).await?;
        }
        let goals = [Goal::Below(10.0), Goal::Below(50.0)];
        self.add_latencies("knock until /scale is seen written", took, goals);
        self.knocked += names.len();
        Ok(names)
    }

    /// The API server's part alone.
    pub(super) async fn scale_ourselves(
        &mut self,
        names: &[String],
        scales: &mut Scales,
    ) -> Result<()> {
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
        self.add_latencies("our own /scale until it is seen", took, [Goal::None; 2]);
        Ok(())
    }

    fn add_latencies(&mut self, figure: &str, mut took: Vec<Duration>, goals: [Goal; 2]) {
        took.sort();
        for (percent, goal) in [50, 99].into_iter().zip(goals) {
            let rank = (took.len() * percent).div_ceil(100).saturating_sub(1);
            let milliseconds = took.get(rank).map_or(f64::NAN, |t| t.as_secs_f64() * 1e3);
            let figure = format!("{}: {figure}, p{percent} of {}", self.count(), took.len());
            self.report.add(figure, milliseconds, "ms", goal);
        }
    }
}
