//! Knocks: one after another, each when the one before was dealt with; and as many at once as will do.

use super::Measurement;
use crate::{operator::Operator, population::targets, witness::Scales};
use anyhow::Result;
use elasti_e2e::{Paused, report::Goal};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Of the sleeping, so many are woken at once.
const WAKES: usize = 2_000;
const AT_ONCE: usize = 64;
/// They still go through what was made before, and have no part in a wake of these targets.
const OTHERS: [&str; 2] = ["kube-controller", "kube-scheduler"];

impl Measurement<'_> {
    pub(super) async fn wakes(&mut self, operator: &Operator, services: usize) -> Result<()> {
        self.part("wakes", services, "Wakes in a second");
        let _paused = Paused::parts(self.stage.cluster, &OTHERS)?;
        self.calm().await?;
        let mut names: Vec<String> = self.proxied.asleep().await?.into_iter().collect();
        names.sort();
        names.truncate(WAKES);
        let mut scales = Scales::watch(&self.stage.client, self.stage.namespace()).await?;
        let begun = Instant::now();
        let knocks = stream::iter(&names)
            .map(|name| operator.knock(self.stage.namespace(), name))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>();
        let ((), last) = tokio::try_join!(knocks, scales.all_raised(&names))?;
        let per_second = names.len() as f64 / (last - begun).as_secs_f64();
        let figure = format!(
            "{}: {} knocks, targets scaled up",
            self.count(),
            names.len()
        );
        self.report
            .add(figure, per_second, "in a second", Goal::AtLeast(200.0));
        self.knocked += names.len();
        Ok(())
    }

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
        let (mut answered, mut took) = (Vec::new(), Vec::new());
        for name in &names {
            let sent = Instant::now();
            let knock = async {
                operator.knock(self.stage.namespace(), name).await?;
                Ok(sent.elapsed())
            };
            let (knocked, raised) = tokio::try_join!(knock, scales.raised(name, 1))?;
            answered.push(knocked);
            took.push(raised - sent);
            self.proxied.told_of_wake(name).await?;
        }
        let goals = [Goal::Below(10.0), Goal::None];
        self.add_latencies("knock until it is answered", &answered, goals);
        let goals = [Goal::Below(10.0), Goal::Below(50.0)];
        self.add_latencies("knock until /scale is seen written", &took, goals);
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
        self.add_latencies("our own /scale until it is seen", &took, [Goal::None; 2]);
        Ok(())
    }

    fn add_latencies(&mut self, figure: &str, took: &[Duration], goals: [Goal; 2]) {
        let took: Vec<f64> = took.iter().map(|took| took.as_secs_f64() * 1e3).collect();
        for (percent, goal) in [50, 99].into_iter().zip(goals) {
            let figure = format!("{}: {figure}, p{percent} of {}", self.count(), took.len());
            self.report
                .add_percentile(figure, percent, took.clone(), "ms", goal);
        }
    }
}
