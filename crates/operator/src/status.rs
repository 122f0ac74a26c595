//! What an ElastiService's status should say. Times and texts move only when something else does, so
//! that a cluster at rest sees no writes.

mod conditions;

use self::conditions::{Fact, conditions, facts};
use crate::{index::Routes, readiness::Unaskable};
use elasti_api::{
    Attached, ElastiService, ElastiServiceStatus, LastWake, Mode, Phase, Readiness, Release,
};
use elasti_core::{
    plan::{Observed, Plan, Step, Target},
    verdict::Verdict,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;

/// What a status is derived from.
pub(crate) struct Report<'a> {
    pub(crate) object: &'a ElastiService,
    pub(crate) observed: &'a Observed,
    pub(crate) plan: &'a Plan,
    pub(crate) routes: &'a Routes,
    pub(crate) readiness: Option<&'a Result<Arc<Readiness>, Unaskable>>,
    pub(crate) failure: Option<&'a str>,
    /// Steps of the plan that were not done.
    pub(crate) undone: &'a [Step],
    /// A watch that fails, in words.
    pub(crate) blindness: Option<&'a str>,
    pub(crate) first_knock: Option<Timestamp>,
    pub(crate) now: Timestamp,
}

pub(crate) fn status(report: &Report<'_>) -> ElastiServiceStatus {
    let Report {
        object,
        observed,
        plan,
        now,
        ..
    } = *report;
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let mut after = ElastiServiceStatus {
        mode: mode(report, &before),
        phase: plan.phase.or(before.phase),
        conditions: conditions(&before.conditions, facts(report), generation, now),
        observed_generation: generation,
        replicas: match observed.target {
            Target::Found { replicas } => Some(replicas),
            Target::Missing | Target::Unknown(_) => None,
        },
        last_scaled_up_time: last_scaled_up(&before, observed),
        last_wake: last_wake(report, &before),
        readiness: readiness(report, &before),
        ..before.clone()
    };
    if report.is_done(&SERVICE) {
        after.ports = report.routes.ports.clone();
    }
    after.attached = attached(report, &before);
    if after != before {
        after.last_reconciled_time = Some(Time(now));
    }
    after
}

/// The ports go with the service.
const SERVICE: [Step; 2] = [Step::ReleaseService, Step::RestPorts];

/// What failed to be let go of is still ours.
fn attached(report: &Report<'_>, before: &ElastiServiceStatus) -> Option<Attached> {
    let before = before.attached.clone();
    if report.observed.deleting_since.is_some() {
        return before;
    }
    let (service, target, scaled_object) = (
        report.is_done(&SERVICE),
        report.is_done(&[Step::ReleaseTarget]),
        report.is_done(&[Step::ReleaseAutoscaler]),
    );
    if report.observed.rival.is_some() {
        let all = service && target && scaled_object;
        return before.filter(|_| !all);
    }
    let mut now = Attached::from(&report.object.spec);
    if let Some(before) = before {
        if !service {
            now.service = before.service;
        }
        if !target {
            now.target = before.target;
        }
        if !scaled_object {
            now.scaled_object = before.scaled_object;
        }
    }
    Some(now)
}

/// Of all that could be said only what must be known before more is done. An API server works on a large status for much
/// longer than on a small one.
pub(crate) fn first_word(object: &ElastiService, all: ElastiServiceStatus) -> ElastiServiceStatus {
    ElastiServiceStatus {
        ports: all.ports,
        attached: all.attached,
        ..object.status.clone().unwrap_or_default()
    }
}

/// While nothing can be decided, for the reason given.
pub(crate) fn blind(object: &ElastiService, why: &str, now: Timestamp) -> ElastiServiceStatus {
    let mut after = object.status.clone().unwrap_or_default();
    let fact = Fact::new("Ready", Some(false), "WatchFailing", why);
    let ready = conditions(
        &after.conditions,
        vec![fact],
        object.metadata.generation,
        now,
    );
    after.conditions.retain(|known| known.type_ != "Ready");
    after.conditions.splice(0..0, ready);
    after
}

/// Of an object that cannot be understood.
pub(crate) fn malformed(error: &str, now: Timestamp) -> ElastiServiceStatus {
    let fact = Fact::new("Ready", Some(false), "Malformed", error);
    ElastiServiceStatus {
        conditions: conditions(&[], vec![fact], None, now),
        ..ElastiServiceStatus::default()
    }
}

/// Whoever reads `proxy` may connect that moment, so it is said only of what was written.
fn mode(report: &Report<'_>, before: &ElastiServiceStatus) -> Option<Mode> {
    if report.observed.rival.is_some() {
        return None;
    }
    if report.is_done(&[Step::PublishSlices, Step::RemoveSlices]) {
        report.plan.mode.or(before.mode)
    } else {
        before.mode
    }
}

/// That of a target which cannot be seen for a while is still known.
fn readiness(report: &Report<'_>, before: &ElastiServiceStatus) -> Option<Readiness> {
    if is_switched_off(report.object) {
        return None;
    }
    match report.readiness {
        Some(Ok(readiness)) => Some(Readiness::clone(readiness)),
        Some(Err(_)) => None,
        None => before.readiness.clone(),
    }
}

fn is_switched_off(object: &ElastiService) -> bool {
    let release = object.spec.hold.as_ref().and_then(|hold| hold.release);
    release == Some(Release::KubernetesReady)
}

/// Begins with the first knock for a sleeping target, and is complete when it is ready.
fn last_wake(report: &Report<'_>, before: &ElastiServiceStatus) -> Option<LastWake> {
    let known = before.last_wake.clone();
    let Target::Found { replicas } = report.observed.target else {
        return known;
    };
    if replicas > 0 && report.observed.ready_endpoints > 0 {
        return known.map(|known| complete(known, report));
    }
    match report.plan.phase {
        Some(Phase::Waking) => {}
        // One that was given up was none.
        Some(Phase::Asleep) => return known.filter(|known| known.duration.is_some()),
        _ => return known,
    }
    let told = before.last_knock_time.as_ref().map(|time| time.0);
    let is_news = |knock: &Timestamp| {
        let later = |known: &LastWake| knock.as_second() > known.time.0.as_second();
        known
            .as_ref()
            .is_none_or(|known| known.duration.is_some() && later(known))
    };
    match report.first_knock.or(told).filter(is_news) {
        Some(knock) => Some(LastWake {
            time: Time(whole_seconds(knock)),
            duration: None,
        }),
        None => known,
    }
}

fn complete(wake: LastWake, report: &Report<'_>) -> LastWake {
    if wake.duration.is_some() {
        return wake;
    }
    // The status keeps whole seconds; whoever saw the knock knows better.
    let exact = report
        .first_knock
        .filter(|knock| knock.as_second() == wake.time.0.as_second());
    let took = report.now.duration_since(exact.unwrap_or(wake.time.0));
    LastWake {
        duration: Some(format!("{:.1}s", took.as_secs_f64())),
        ..wake
    }
}

/// As the API server will give it back.
fn whole_seconds(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// Use is written down when it ends or after half a cooldown, not each time it is seen.
fn last_scaled_up(before: &ElastiServiceStatus, observed: &Observed) -> Option<Time> {
    let known = before.last_scaled_up_time.as_ref().map(|time| time.0);
    let Some(seen) = observed.last_active.map(whole_seconds) else {
        return before.last_scaled_up_time.clone();
    };
    let old = known.is_none_or(|known| seen.duration_since(known) > observed.cooldown / 2);
    let ended =
        observed.opinion.verdict != Verdict::Active && known.is_none_or(|known| seen > known);
    if old || ended {
        Some(Time(seen))
    } else {
        before.last_scaled_up_time.clone()
    }
}

// === impl Report ===

impl Report<'_> {
    /// Whether none of these steps is left to be done.
    fn is_done(&self, steps: &[Step]) -> bool {
        !self.undone.iter().any(|undone| steps.contains(undone))
    }
}

#[cfg(test)]
mod tests;
