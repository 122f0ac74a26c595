//! What an ElastiService's status should say. Times and texts move only when something else does, so
//! that a cluster at rest sees no writes.

use elasti_api::{ElastiService, ElastiServiceStatus, Mode};
use elasti_core::{
    plan::{Note, Observed, Plan, Resolvers, Service, Target},
    verdict::Verdict,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

struct Fact {
    kind: &'static str,
    /// `None` is Unknown.
    holds: Option<bool>,
    reason: &'static str,
    message: String,
}

pub(crate) fn status(
    object: &ElastiService,
    observed: &Observed,
    plan: &Plan,
    failure: Option<&str>,
    now: Timestamp,
) -> ElastiServiceStatus {
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let facts = facts(observed, plan, failure);
    let mut after = ElastiServiceStatus {
        mode: mode(plan, observed, &before, failure),
        phase: plan.phase.or(before.phase),
        conditions: conditions(&before.conditions, facts, generation, now),
        observed_generation: generation,
        replicas: match observed.target {
            Target::Found { replicas } => Some(replicas),
            Target::Missing | Target::Unknown(_) => None,
        },
        last_scaled_up_time: last_scaled_up(&before, observed),
        ..before.clone()
    };
    if after != before {
        after.last_reconciled_time = Some(Time(now));
    }
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
fn mode(
    plan: &Plan,
    observed: &Observed,
    before: &ElastiServiceStatus,
    failure: Option<&str>,
) -> Option<Mode> {
    if observed.rival.is_some() {
        return None;
    }
    match failure {
        Some(_) => before.mode,
        None => plan.mode.or(before.mode),
    }
}

/// Use is written down when it ends or after half a cooldown, not each time it is seen.
fn last_scaled_up(before: &ElastiServiceStatus, observed: &Observed) -> Option<Time> {
    let known = before.last_scaled_up_time.as_ref().map(|time| time.0);
    let Some(seen) = observed.last_active else {
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

fn facts(observed: &Observed, plan: &Plan, failure: Option<&str>) -> Vec<Fact> {
    let service = service(&observed.service);
    let target = target(&observed.target);
    let ready = ready(observed, [&service, &target], failure);
    vec![
        ready,
        service,
        target,
        resolver(observed.resolvers),
        triggers(observed),
        idle(observed),
        may_sleep(plan.note),
    ]
}

fn ready(observed: &Observed, needed: [&Fact; 2], failure: Option<&str>) -> Fact {
    let broken = needed.into_iter().find(|fact| fact.holds != Some(true));
    match (&observed.rival, failure, broken) {
        (Some(rival), _, _) => Fact::new(
            "Ready",
            Some(false),
            "Conflict",
            format!("{rival} is older and names the same service or target: this one does nothing"),
        ),
        (_, Some(failure), _) => Fact::new("Ready", Some(false), "WriteFailed", failure),
        (_, _, Some(fact)) => Fact::new("Ready", Some(false), fact.reason, fact.message.clone()),
        _ => Fact::new(
            "Ready",
            Some(true),
            "AllInPlace",
            "Everything that it needs is there",
        ),
    }
}

fn service(service: &Service) -> Fact {
    let (holds, reason, message) = match service {
        Service::Usable => (true, "ServiceFound", "The service is there".to_owned()),
        Service::Missing => (
            false,
            "ServiceMissing",
            "There is no service of this name".into(),
        ),
        Service::Unusable(why) => (
            false,
            "ServiceUnusable",
            format!("The service cannot be woken by traffic: {why}"),
        ),
    };
    Fact::new("ServiceFound", Some(holds), reason, message)
}

fn target(target: &Target) -> Fact {
    let (holds, reason, message) = match target {
        Target::Found { .. } => (Some(true), "TargetFound", "The target is there".to_owned()),
        Target::Missing => (
            Some(false),
            "TargetMissing",
            "There is no target of this kind and name".into(),
        ),
        Target::Unknown(why) => (None, "TargetUnknown", why.clone()),
    };
    Fact::new("TargetFound", holds, reason, message)
}

fn resolver(resolvers: Resolvers) -> Fact {
    match resolvers {
        Resolvers::Ready => Fact::new(
            "ResolverAvailable",
            Some(true),
            "ResolverReady",
            "A resolver can hold traffic",
        ),
        Resolvers::GoneSince(_) => Fact::new(
            "ResolverAvailable",
            Some(false),
            "NoReadyResolver",
            "No resolver is ready: nothing falls asleep, and what sleeps is woken",
        ),
    }
}

fn triggers(observed: &Observed) -> Fact {
    let opinion = &observed.opinion;
    match opinion.verdict {
        Verdict::Unknown => Fact::new(
            "TriggersHealthy",
            Some(false),
            opinion.reason,
            opinion.message.clone(),
        ),
        _ => Fact::new(
            "TriggersHealthy",
            Some(true),
            "Answered",
            "The triggers answer",
        ),
    }
}

fn idle(observed: &Observed) -> Fact {
    let opinion = &observed.opinion;
    let holds = match opinion.verdict {
        Verdict::Idle => Some(true),
        Verdict::Active => Some(false),
        Verdict::Unknown => None,
    };
    Fact::new("Idle", holds, opinion.reason, opinion.message.clone())
}

fn may_sleep(note: Option<Note>) -> Fact {
    let (reason, message) = match note {
        None => {
            return Fact::new(
                "MaySleep",
                Some(true),
                "NothingHinders",
                "It sleeps when it is idle",
            );
        }
        Some(Note::Conflict) => ("Conflict", "Another ElastiService has the say"),
        Some(Note::CoolingDown) => (
            "CoolingDown",
            "Idle, but not for the whole cooldown period yet",
        ),
        Some(Note::DryRunWouldSleep) => (
            "DryRun",
            "It would be put to sleep now, were this not a dry run",
        ),
        Some(Note::DryRunWouldWake) => ("DryRun", "It would be woken now, were this not a dry run"),
        Some(Note::NoResolver) => ("NoReadyResolver", "Nobody could hold its traffic"),
        Some(Note::OutsidePeriod) => (
            "OutsideEnabledPeriod",
            "It is kept awake outside its enabled period",
        ),
        Some(Note::Paused) => ("Paused", "spec.paused is set"),
        Some(Note::TrafficWhileFallingAsleep) => (
            "TrafficSeen",
            "A request came while it was falling asleep: tried again after the cooldown period",
        ),
    };
    Fact::new("MaySleep", Some(false), reason, message)
}

fn conditions(
    before: &[Condition],
    facts: Vec<Fact>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    facts
        .into_iter()
        .map(|fact| {
            let known = before.iter().find(|condition| condition.type_ == fact.kind);
            fact.into_condition(known, generation, now)
        })
        .collect()
}

// === impl Fact ===

impl Fact {
    fn new(
        kind: &'static str,
        holds: Option<bool>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            holds,
            reason,
            message: message.into(),
        }
    }

    /// A message with other figures is no news; another reason is.
    fn into_condition(
        self,
        known: Option<&Condition>,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Condition {
        let status = match self.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        match known {
            Some(known) if known.status == status && known.reason == self.reason => Condition {
                observed_generation: generation,
                ..known.clone()
            },
            known => Condition {
                type_: self.kind.into(),
                status: status.into(),
                reason: self.reason.into(),
                message: self.message,
                observed_generation: generation,
                last_transition_time: known
                    .filter(|known| known.status == status)
                    .map_or(Time(now), |known| known.last_transition_time.clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn idle_with(holds: bool, reason: &'static str, message: &str) -> Vec<Fact> {
        vec![Fact::new("Idle", Some(holds), reason, message)]
    }

    #[test]
    fn another_figure_is_no_news() {
        let first = conditions(
            &[],
            idle_with(true, "BelowThreshold", "0.1 is below 1"),
            Some(1),
            moment(0),
        );
        let second = conditions(
            &first,
            idle_with(true, "BelowThreshold", "0.2 is below 1"),
            Some(1),
            moment(9),
        );
        assert_eq!(
            first, second,
            "or a cluster at rest would be written to at every question"
        );
    }

    #[test]
    fn the_transition_time_moves_with_the_status_alone() {
        let first = conditions(
            &[],
            idle_with(false, "AboveThreshold", ""),
            Some(1),
            moment(0),
        );
        let reason = conditions(
            &first,
            idle_with(false, "QueryFailed", ""),
            Some(1),
            moment(5),
        );
        assert_eq!(reason[0].reason, "QueryFailed");
        assert_eq!(reason[0].last_transition_time.0, moment(0));
        let status = conditions(
            &reason,
            idle_with(true, "BelowThreshold", ""),
            Some(1),
            moment(9),
        );
        assert_eq!(status[0].last_transition_time.0, moment(9));
    }
}
