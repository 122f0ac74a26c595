//! observe → plan → apply, for one ElastiService at a time.

use crate::{
    apply::{self, Done, Subject},
    clock,
    desired::Desired,
    facts::{Declared, Malformed, ScaledObjectFacts, ServiceFacts},
    index::{Index, Kind, Memory, Routes, Trouble, scaled_object_key},
    observe::{Moment, observe},
    operator::Operator,
    readiness::Unaskable,
    say, status, triggers,
};
use elasti_api::{ElastiService, ElastiServiceStatus, Readiness, names};
use elasti_core::plan::{Absence, Observed, Plan, Resolvers, Step, plan};
use elasti_runtime::watch::Key;
use jiff::Timestamp;
use kube::api::ApiResource;
use std::{sync::Arc, time::Duration};
use tokio::{
    task::yield_now,
    time::{Instant, timeout},
};

const RETRY: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// In an outage, and while something is to be given back, which is tried for a time only.
const SOON: Duration = Duration::from_secs(5);
/// For one step: an API server that does not answer must not hold up the others.
const PATIENCE: Duration = Duration::from_secs(10);

/// All that one reconcile works on, as it was at one moment.
struct View {
    object: Arc<ElastiService>,
    desired: Desired,
    routes: Routes,
    observed: Observed,
    public_service: Option<ServiceFacts>,
    private_service: Option<ServiceFacts>,
    target_resource: ApiResource,
    scaled_object: Option<ScaledObjectFacts>,
    trouble: Option<Trouble>,
    readiness: Option<Result<Arc<Readiness>, Unaskable>>,
}

/// What became of a plan.
#[derive(Default)]
struct Outcome {
    /// The first.
    failure: Option<apply::Error>,
    /// Steps that failed, and those that had to wait for them.
    undone: Vec<Step>,
}

/// Works until it is dropped.
pub(crate) async fn work(operator: &Operator) {
    loop {
        let key = operator.work.next().await;
        let started = Instant::now();
        if let Some(outcome) = reconcile(operator, &key).await {
            let error = outcome.as_ref().err();
            let took = started.elapsed();
            operator.metrics.reconciled(&key, error, took);
            if let Some(again) = after(operator, &key, outcome) {
                operator.work.push(key.clone(), Instant::now() + again);
            }
        }
        operator.work.done(&key);
        // Thousands that need nothing in a row would keep a lease from being renewed, and a knock from its answer.
        yield_now().await;
    }
}

/// When to look again.
fn after(
    operator: &Operator,
    key: &Key,
    outcome: Result<Option<Timestamp>, apply::Error>,
) -> Option<Duration> {
    let pause = operator.note(|index| {
        let mut pause = RETRY;
        index.remember(key, |memory| {
            memory.note_outcome(outcome.as_ref().err(), clock::now());
            pause = backoff(memory);
        });
        pause
    });
    let error = match outcome {
        Ok(again) => return again.map(until),
        Err(error) => error,
    };
    // Somebody wrote in between: ordinary, and what they wrote is on its way to us.
    if error.category() == "conflict" {
        tracing::debug!(elasti_service = %key, %error, "Written by somebody else meanwhile");
        return Some(RETRY);
    }
    if error.is_outage() {
        tracing::warn!(elasti_service = %key, %error, "Could not reconcile");
    } else {
        tracing::error!(elasti_service = %key, %error, "Could not reconcile");
    }
    Some(pause)
}

/// Others act as soon as an API server is back, and what they do must not wait for long.
fn backoff(memory: &Memory) -> Duration {
    let doubled = 2_u32.saturating_pow(memory.failures.saturating_sub(1));
    let soon = memory.outage || memory.leaving_since.is_some();
    let longest = if soon { SOON } else { LONGEST };
    let spread = 1.0 - fastrand::f64() / 4.0;
    RETRY.saturating_mul(doubled).min(longest).mul_f64(spread)
}

fn until(moment: Timestamp) -> Duration {
    moment
        .duration_since(clock::now())
        .try_into()
        .unwrap_or(Duration::ZERO)
}

/// `None` where there is nothing to work on, or nobody who may.
async fn reconcile(
    operator: &Operator,
    key: &Key,
) -> Option<Result<Option<Timestamp>, apply::Error>> {
    // Leadership gates writes, not knowledge: a new leader asks for everything again.
    if !operator.leads() {
        return None;
    }
    if let Some(malformed) = operator.read(|index| malformed(index, key)) {
        return Some(report_malformed(operator, key, &malformed).await);
    }
    let now = clock::now();
    if !operator.read(|index| index.sees(key)) {
        return report_blindness(operator, key, now).await;
    }
    let view = operator.note(|index| View::of(index, key, operator, now))?;
    let plan = plan(&view.observed, now, operator.settings.patience);
    let Outcome { failure, undone } = carry_out(operator, key, &view, &plan).await;
    if plan.steps.contains(&Step::RemoveFinalizer) && failure.is_none() {
        return None;
    }
    // A conflict is settled by the next look, and no news for anybody.
    if failure
        .as_ref()
        .is_some_and(|error| error.category() == "conflict")
    {
        return failure.map(Err);
    }
    let outcome = Outcome { failure, undone };
    let reported = report(operator, key, &view, &plan, &outcome, now).await;
    let failure = outcome.failure;
    Some(match (failure, reported) {
        (Some(error), _) | (None, Err(error)) => Err(error),
        (None, Ok(())) => {
            let unseen = operator.read(|index| index.unseen_until(key));
            let moments = [plan.look_again, view.blind_at(now), unseen];
            Ok(moments.into_iter().flatten().min())
        }
    })
}

fn malformed(index: &Index, key: &Key) -> Option<Box<Malformed>> {
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
    if let Some((finalizers, version)) = &malformed.leaving {
        let version = version.as_deref();
        apply::set_finalizers(&operator.writer, key, finalizers, version).await?;
        return Ok(None);
    }
    if !malformed.reported {
        let status = status::malformed(&malformed.error, clock::now());
        match apply::write_status(&operator.writer, key, &status).await {
            // The rules of the spec forbid even that. An event has none.
            Err(error) if error.category() == "invalid" => {
                say::malformed(operator, key, &malformed.error).await;
            }
            written => written?,
        }
    }
    Ok(None)
}

/// Before everything was listed once nothing can be decided, but why that is so can be told.
async fn report_blindness(
    operator: &Operator,
    key: &Key,
    now: Timestamp,
) -> Option<Result<Option<Timestamp>, apply::Error>> {
    let (object, trouble) = operator.read(|index| {
        let Some(Declared::Understood(object)) = index.declared(key) else {
            return None;
        };
        Some((object.whole(), index.trouble(key)?.clone()))
    })?;
    let due = trouble.told_at();
    if now < due {
        return Some(Ok(Some(due)));
    }
    let after = status::blind(&object, &trouble.message, now);
    Some(write(operator, key, &object, &after).await.map(|()| None))
}

async fn carry_out(operator: &Operator, key: &Key, view: &View, plan: &Plan) -> Outcome {
    let surplus: Vec<u16> = view.routes.surplus.iter().map(|(_, port)| *port).collect();
    let subject = Subject {
        key,
        object: &view.object,
        desired: &view.desired,
        public_service: view.public_service.as_ref(),
        private_service: view.private_service.as_ref(),
        target_resource: &view.target_resource,
        scaled_object: view.scaled_object.as_ref(),
        surplus_ports: &surplus,
    };
    let mut outcome = Outcome::default();
    for step in &plan.steps {
        // The claim may end between two steps; whoever holds it then goes on from what is there.
        if !operator.claim.holds() {
            break;
        }
        if outcome.undone.iter().any(|undone| undone.hinders(step)) {
            outcome.undone.push(step.clone());
            continue;
        }
        expect(operator, key, step);
        let done = apply::step(&operator.writer, &subject, &operator.resting, step);
        let done = timeout(PATIENCE, done).await;
        let done = done.unwrap_or(Err(apply::Error::Timeout));
        remember(operator, key, view, step, &done);
        tell(operator, key, view, step, &done).await;
        match done {
            Ok(_) => {}
            Err(error) if plan.last_try && step.gives_back() && error.is_refusal() => {
                tracing::warn!(elasti_service = %key, ?step, %error, "Left as it is");
                say::left(operator, &view.object, step, &error);
            }
            Err(error) => {
                outcome.undone.push(step.clone());
                outcome.failure.get_or_insert(error);
            }
        }
    }
    outcome
}

/// A knock may come before the watch tells what a step did.
fn expect(operator: &Operator, key: &Key, step: &Step) {
    if matches!(step, Step::ScaleToZero { .. }) {
        let now = Some(clock::now());
        operator.note(|index| index.remember(key, |memory| memory.zeroed = now));
    }
}

async fn tell(
    operator: &Operator,
    key: &Key,
    view: &View,
    step: &Step,
    done: &Result<Done, apply::Error>,
) {
    match step {
        Step::ScaleUp { .. } | Step::ScaleToZero { .. } | Step::ReleaseTarget => {
            let about = apply::about(&view.object, step);
            operator.metrics.scaled(key, &about, done);
            say::scaled(operator, &view.object, &about.target, done);
        }
        Step::AddFinalizer | Step::RemoveFinalizer => {
            let known = operator.read(|index| index.declared(key).is_some());
            if known {
                operator.metrics.finalized(key, done.as_ref().err());
            }
        }
        _ => {}
    }
}

/// What no watch event tells.
fn remember(
    operator: &Operator,
    key: &Key,
    view: &View,
    step: &Step,
    done: &Result<Done, apply::Error>,
) {
    let now = clock::now();
    let note = |change: &dyn Fn(&mut Memory)| {
        operator.note(|index| index.remember(key, change));
    };
    match (step, done) {
        (Step::ScaleToZero { .. }, Err(_) | Ok(Done::Quietly)) => {
            note(&|memory| memory.zeroed = None);
        }
        (_, Err(_)) => {}
        (Step::StepBack, _) => note(&|memory| {
            memory.last_active = Some(now);
            memory.stepped_back = Some(now);
        }),
        (Step::ScaleUp { .. }, Ok(Done::Scaled(_))) => note(&|memory| {
            memory.last_active = memory.last_active.max(Some(now));
            memory.zeroed = None;
        }),
        (Step::RemoveSlices, _) => note(&|memory| {
            memory.unpublished = Some(now);
            memory.woken = None;
            memory.doomed.clear();
        }),
        (Step::RestPorts, _) => {
            operator.note(|index| index.rest_ports(&view.routes.surplus, now));
        }
        (Step::AskResolvers, _) => {
            let unproven = view.desired.unproven.iter();
            operator.dials.push_all(unproven.copied());
        }
        _ => {}
    }
}

async fn report(
    operator: &Operator,
    key: &Key,
    view: &View,
    plan: &Plan,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), apply::Error> {
    let memory = operator.read(|index| index.memory(key));
    let mut observed = view.observed.clone();
    observed.last_active = observed.last_active.max(memory.last_active);
    let failure = outcome.failure.as_ref().map(ToString::to_string);
    let after = status::status(&status::Report {
        object: &view.object,
        observed: &observed,
        plan,
        routes: &view.routes,
        readiness: view.readiness.as_ref(),
        failure: failure.as_deref(),
        undone: &outcome.undone,
        blindness: view.blindness(now),
        first_knock: memory.first_knock,
        now,
    });
    let after = match outcome.failure {
        None if view.is_first_word(plan) => status::first_word(&view.object, after),
        _ => after,
    };
    // Somebody waits for each wake. For a status nobody does, unless there is something to go by in it.
    let before = view.object.status.as_ref();
    let goes_on = before
        .is_some_and(|before| (&before.ports, &before.attached) == (&after.ports, &after.attached));
    if before != Some(&after) && goes_on && operator.wakes.lags() {
        operator.put_off(key.clone());
        return Ok(());
    }
    say::dry_run(operator, &view.object, &after);
    write(operator, key, &view.object, &after).await
}

async fn write(
    operator: &Operator,
    key: &Key,
    object: &ElastiService,
    after: &ElastiServiceStatus,
) -> Result<(), apply::Error> {
    if object.status.as_ref() == Some(after) || !operator.claim.holds() {
        return Ok(());
    }
    let written = apply::write_status(&operator.writer, key, after).await;
    let error = written.as_ref().err();
    operator.metrics.updated(key, after.mode, error);
    written
}

// === impl View ===

impl View {
    fn of(index: &mut Index, key: &Key, operator: &Operator, now: Timestamp) -> Option<Self> {
        let settings = &operator.settings;
        let routes = index.routes(key, &settings.routing, now);
        let Some(Declared::Understood(object)) = index.declared(key) else {
            return None;
        };
        let object = object.whole();
        let desired = Desired::new(index, key, &object, &routes, settings);
        let leaves = settings.release || object.metadata.deletion_timestamp.is_some();
        let kind = Kind::from(&object.spec.scale_target_ref);
        let moment = Moment {
            now,
            trust: triggers::trust(operator, &object),
            leaves,
        };
        let observed = observe(index, key, &object, &desired, &routes, moment);
        let lets_go = leaves || !observed.former.is_empty();
        index.remember(key, |memory| {
            memory.note_leaving(lets_go, now);
            memory.note_readiness(&observed);
        });
        Some(Self {
            observed,
            public_service: index.service(&key.beside(&object.spec.service)).cloned(),
            private_service: index
                .service(&key.beside(&names::private_service(&object.spec.service)))
                .cloned(),
            target_resource: index.resource_of(&kind),
            scaled_object: scaled_object_key(key, &object)
                .and_then(|key| index.scaled_object_facts(&key).cloned()),
            readiness: index.readiness(&kind, &key.beside(&object.spec.scale_target_ref.name)),
            trouble: index.trouble(key).cloned(),
            object,
            desired,
            routes,
        })
    }

    /// Whether resolvers have yet to learn the ports of something new. How it is can be said when they have answered.
    fn is_first_word(&self, plan: &Plan) -> bool {
        let status = self.object.status.as_ref();
        let told = status.map(|status| &status.ports) == Some(&self.routes.ports);
        let asked = Resolvers::Gone {
            since: Timestamp::MAX,
            why: Absence::NoneAccepts,
        };
        self.observed.resolvers == asked
            && (!told || plan.steps.contains(&Step::AskResolvers))
            && self.observed.rival.is_none()
            && self.trouble.is_none()
            && status.is_none_or(|status| status.conditions.is_empty())
    }

    /// A watch that fails for long, in words.
    fn blindness(&self, now: Timestamp) -> Option<&str> {
        let trouble = self.trouble.as_ref()?;
        (now >= trouble.told_at()).then_some(trouble.message.as_str())
    }

    /// When a watch will have failed for long.
    fn blind_at(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.trouble.as_ref()?.told_at();
        (now < due).then_some(due)
    }
}
