//! From the moment at which Kubernetes calls an endpoint ready, as a watch shows it, to the last answer.

use crate::pods::put_back;
use anyhow::Result;
use elasti_e2e::{
    fetch,
    stage::{Stage, workload},
};
use futures::future::try_join_all;
use serde_json::Value;
use tokio::{sync::Semaphore, time::Instant};

/// While one is measured, the others get back to zero.
const SERVICES: usize = 5;

pub(crate) struct Wakes {
    pub(crate) name: &'static str,
    pub(crate) clients: usize,
    pub(crate) rounds_of_each: usize,
    /// Of each ElastiService, where it is otherwise than usual.
    pub(crate) spec: Value,
}

// === impl Wakes ===

impl Wakes {
    /// In seconds; below 0 where the resolver is told before the watch.
    pub(crate) async fn measure(&self, stage: &Stage<'_>) -> Result<Vec<f64>> {
        let alone = Semaphore::new(1);
        let services = (0..SERVICES).map(|i| self.measure_one(stage, i, &alone));
        Ok(try_join_all(services).await?.concat())
    }

    async fn measure_one(
        &self,
        stage: &Stage<'_>,
        which: usize,
        alone: &Semaphore,
    ) -> Result<Vec<f64>> {
        let name = format!("{}-{which}", self.name);
        let target = workload(&name, "Deployment", 0, &stage.image);
        let address = stage.asleep_as(&name, target, self.spec.clone()).await?;
        let url = format!("http://{address}/");
        let mut after = Vec::new();
        for _ in 0..self.rounds_of_each {
            let turn = alone.acquire().await?;
            let begun = Instant::now();
            let answered = async {
                try_join_all((0..self.clients).map(|_| fetch(&url))).await?;
                Ok(Instant::now())
            };
            let (ready, answered) = tokio::try_join!(stage.first_ready(&name), answered)?;
            drop(turn);
            let took = |until: Instant| (until - begun).as_secs_f64();
            after.push(took(answered) - took(ready));
            put_back(stage, &name).await?;
        }
        Ok(after)
    }
}
