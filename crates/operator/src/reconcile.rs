//! observe → plan → apply, for one ElastiService at a time.

use crate::{
    apply::{self, Done, Subject},
    clock,
    desired::Desired,
    facts::{Declared, Malformed, ServiceFacts},
    index::{Index, Kind, Touched},
    observe::observe,
    operator::Operator,
    say, status,
};
use elasti_api::ElastiService;
use elasti_core::plan::{Observed, Plan, Step, plan};
use elasti_runtime::watch::Key;
use jiff::Timestamp;
use kube::api::ApiResource;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

const RETRY: Duration = Duration::from_secs(2);

/// All that one reconcile works on, as it was at one moment.
struct View {
    object: Arc<ElastiService>,
    desired: Desired,
    observed: Observed,
    public_service: Option<ServiceFacts>,
    target_resource: ApiResource,
}

/// Works until it is dropped.
pub(crate) async fn work(operator: &Operator) {
    loop {
        let key = operator.work.next().await;
        let started = Instant::now();
        let outcome = reconcile(operator, &key).await;
        operator
            .metrics
            .reconciled(&key, outcome.is_ok(), started.elapsed());
        match outcome {
            Ok(Some(again)) => operator
                .work
                .push(key.clone(), Instant::now() + until(again)),
            Ok(None) => {}
            Err(error) => {
                // Somebody wrote in between: ordinary, and what they wrote is on its way to us.
                if error.category() == "conflict" {
                    tracing::debug!(elasti_service = %key, %error, "Written by somebody else meanwhile");
                } else {
                    tracing::warn!(elasti_service = %key, %error, "Could not reconcile");
                }
                operator.work.push(key.clone(), Instant::now() + RETRY);
            }
        }
        operator.work.done(&key);
    }
}

fn until(moment: Timestamp) -> Duration {
    moment
        .duration_since(clock::now())
        .try_into()
        .unwrap_or(Duration::ZERO)
}

async fn reconcile(operator: &Operator, key: &Key) -> Result<Option<Timestamp>, apply::Error> {
    // Leadership gates writes, not knowledge: a new leader asks for everything again.
    if !operator.claim.holds() {
        return Ok(None);
    }
    if let Some(malformed) = operator.read(|index| malformed(index, key)) {
        return report_malformed(operator, key, &malformed).await;
    }
    let Some(view) = operator.read(|index| View::of(index, key, operator.settings.proxy_port))
    else {
        return Ok(None);
    };
    let now = clock::now();
    let plan = plan(&view.observed, now, operator.settings.patience);
    let failure = carry_out(operator, key, &view, &plan).await.err();
    if plan.steps.contains(&Step::RemoveFinalizer) && failure.is_none() {
        operator.metrics.forget(key);
        return Ok(None);
    }
    report(operator, key, &view, &plan, failure.as_ref(), now).await?;
    failure.map_or(Ok(plan.look_again), Err)
}

fn malformed(index: &Index, key: &Key) -> Option<Malformed> {
    match index.declared(key)? {
        Declared::Malformed(malformed) => Some(malformed.clone()),
        Declared::Understood(_) => None,
    }
}

/// Stored before validation existed: its owner learns what is wrong, and nobody else is harmed.
async fn report_malformed(
    operator: &Operator,
    key: &Key,
    malformed: &Malformed,
) -> Result<Option<Timestamp>, apply::Error> {
    if !malformed.reported {
        let status = status::malformed(&malformed.error, clock::now());
        apply::write_status(&operator.client, key, &status).await?;
    }
    Ok(None)
}

async fn carry_out(
    operator: &Operator,
    key: &Key,
    view: &View,
    plan: &Plan,
) -> Result<(), apply::Error> {
    let subject = Subject {
        key,
        object: &view.object,
        desired: &view.desired,
        public_service: view.public_service.as_ref(),
        target_resource: &view.target_resource,
    };
    for step in &plan.steps {
        // The claim may end between two steps; whoever holds it then goes on from what is there.
        if !operator.claim.holds() {
            return Ok(());
        }
        let done = apply::step(&operator.client, &subject, step).await;
        if matches!(step, Step::ScaleUp { .. } | Step::ScaleToZero) {
            operator.metrics.scaled(key, &view.object, &done);
            say::scaled(operator, &view.object, &done).await;
        }
        remember(operator, key, step, &done?);
    }
    Ok(())
}

/// Use that no trigger reports.
fn remember(operator: &Operator, key: &Key, step: &Step, done: &Done) {
    let is_use = matches!(
        (step, done),
        (Step::StepBack, _) | (Step::ScaleUp { .. }, Done::Scaled(_))
    );
    if is_use {
        let now = clock::now();
        operator.learn(|index| {
            index.remember(key, |memory| {
                memory.last_active = memory.last_active.max(Some(now))
            });
            Touched::new()
        });
    }
}

async fn report(
    operator: &Operator,
    key: &Key,
    view: &View,
    plan: &Plan,
    failure: Option<&apply::Error>,
    now: Timestamp,
) -> Result<(), apply::Error> {
    let failure = failure.map(ToString::to_string);
    let mut observed = view.observed.clone();
    observed.last_active = observed
        .last_active
        .max(operator.read(|index| index.memory(key).last_active));
    let after = status::status(&view.object, &observed, plan, failure.as_deref(), now);
    operator.metrics.mode(key, after.mode);
    if view.object.status.as_ref() != Some(&after) && operator.claim.holds() {
        apply::write_status(&operator.client, key, &after).await?;
    }
    Ok(())
}

// === impl View ===

impl View {
    fn of(index: &Index, key: &Key, proxy_port: i32) -> Option<Self> {
        let Some(Declared::Understood(object)) = index.declared(key) else {
            return None;
        };
        let desired = Desired::new(index, key, object, proxy_port);
        Some(Self {
            observed: observe(index, key, object, &desired),
            public_service: index.service(&key.beside(&object.spec.service)).cloned(),
            target_resource: index.resource_of(&Kind::from(&object.spec.scale_target_ref)),
            object: object.clone(),
            desired,
        })
    }
}
