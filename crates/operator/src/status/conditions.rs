//! What holds of an ElastiService, each with its reason.

use super::{Report, is_switched_off};
use crate::observe::NOT_ASKED;
use elasti_core::{
    plan::{Absence, Autoscaler, Note, Observed, Resolvers, Service, Slices, Target},
    verdict::Verdict,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub(super) struct Fact {
    kind: &'static str,
    /// `None` is Unknown.
    holds: Option<bool>,
    reason: &'static str,
    message: String,
}

pub(super) fn facts(report: &Report<'_>) -> Vec<Fact> {
    let Report { observed, plan, .. } = *report;
    let service = service(&observed.service);
    let target = target(&observed.target);
    let ready = ready(report, [&service, &target]);
    let mut facts = vec![
        ready,
        service,
        target,
        resolver(observed),
        triggers(observed),
        idle(observed),
        may_sleep(plan.note),
    ];
    facts.extend(autoscaler(observed.autoscaler));
    facts.extend(report.routes.full.then(range_full));
    facts.extend(early_release(report));
    facts
}

fn ready(report: &Report<'_>, needed: [&Fact; 2]) -> Fact {
    let no = |reason, message: String| Fact::new("Ready", Some(false), reason, message);
    let broken = needed.into_iter().find(|fact| fact.holds != Some(true));
    if let Some(rival) = &report.observed.rival {
        no(
            "Conflict",
            format!("{rival} is older and names the same service or target: this one does nothing"),
        )
    } else if let Some(failure) = report.failure {
        no("WriteFailed", failure.into())
    } else if let Some(blindness) = report.blindness {
        no("WatchFailing", blindness.into())
    } else if let Some(fact) = broken {
        no(fact.reason, fact.message.clone())
    } else {
        Fact::new(
            "Ready",
            Some(true),
            "AllInPlace",
            "Everything that it needs is there",
        )
    }
}

/// Only where one is named that has to rest with the target.
fn autoscaler(autoscaler: Autoscaler) -> Option<Fact> {
    let (holds, reason, message) = match autoscaler {
        Autoscaler::None => return None,
        Autoscaler::Running | Autoscaler::Paused => {
            (Some(true), "AutoscalerFound", "The ScaledObject is there")
        }
        Autoscaler::Resting | Autoscaler::Pinning => (
            Some(true),
            "PausedByOthers",
            "The ScaledObject was paused by somebody else, and is left so",
        ),
        Autoscaler::Missing => (
            Some(false),
            "AutoscalerMissing",
            "There is no ScaledObject of this name: the target sleeps and wakes without it",
        ),
        Autoscaler::Unknown => (
            None,
            "AutoscalerUnknown",
            "ScaledObjects cannot be watched: the target is not put to sleep",
        ),
    };
    Some(Fact::new("AutoscalerFound", holds, reason, message))
}

/// Only where requests have to wait until Kubernetes says that a pod is ready, though nobody wanted that.
fn early_release(report: &Report<'_>) -> Option<Fact> {
    let Some(Err(why)) = report.readiness else {
        return None;
    };
    let (reason, message) = why.reason();
    let wanted = !is_switched_off(report.object);
    wanted.then(|| Fact::new("EarlyRelease", Some(false), reason, message))
}

fn range_full() -> Fact {
    Fact::new(
        "PortsRouted",
        Some(false),
        "RangeFull",
        "No resolver port is left for some port of the service: the Host header has to tell which service is meant",
    )
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

fn resolver(observed: &Observed) -> Fact {
    // Under a dry run what loses its slices is woken all the same.
    let gone = matches!(observed.resolvers, Resolvers::Gone { .. });
    let sleepers = if observed.dry_run && observed.slices == Slices::Absent {
        "what sleeps is left asleep, since spec.dryRun is set"
    } else if observed.paused && !(observed.dry_run && gone) {
        "what sleeps is left asleep, since spec.paused is set"
    } else {
        "what sleeps is woken"
    };
    let other_family = || {
        let message = format!(
            "The service has an address family that no resolver has: it does not fall asleep, and {sleepers} (the resolvers' Service needs ipFamilyPolicy: PreferDualStack)"
        );
        (false, "OtherAddressFamily", message)
    };
    let (holds, reason, message) = match observed.resolvers {
        Resolvers::Ready => (true, "ResolverReady", "A resolver can hold traffic".into()),
        Resolvers::Partly { .. } => other_family(),
        Resolvers::Gone { why, .. } => match why {
            Absence::NoneReady => (
                false,
                "NoReadyResolver",
                format!("No resolver is ready: nothing falls asleep, and {sleepers}"),
            ),
            Absence::NoneAccepts => (
                false,
                "NotAccepting",
                "No ready resolver accepts connections on the ports of this service yet: it does not fall asleep".into(),
            ),
            Absence::OtherFamily => other_family(),
        },
    };
    Fact::new("ResolverAvailable", Some(holds), reason, message)
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
        Some(Note::AutoscalerPinning) => (
            "AutoscalerPinning",
            "Its ScaledObject was paused by somebody else at a number of replicas, and keeps it there",
        ),
        Some(Note::AutoscalerUnknown) => (
            "AutoscalerUnknown",
            "Its autoscaler cannot be watched, and might work against it",
        ),
        Some(Note::Blind) => (
            "WatchFailing",
            "A watch fails: what is known of it may be old",
        ),
        Some(Note::Recovering) => (
            "ApiServerWasAway",
            "The API server was away, and controllers of Kubernetes may not see yet which pods end",
        ),
        Some(Note::Conflict) => ("Conflict", "Another ElastiService has the say"),
        Some(Note::CoolingDown) => (
            "CoolingDown",
            "Idle, but not for the whole cooldown period yet",
        ),
        Some(Note::DryRunWouldSleep) => (
            "DryRunWouldSleep",
            "It would be put to sleep now, were this not a dry run",
        ),
        Some(Note::DryRunWouldWake) => (
            "DryRunWouldWake",
            "It would be woken now, were this not a dry run",
        ),
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

pub(super) fn conditions(
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
    pub(super) fn new(
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

    /// In what the triggers say, a message with other figures is no news; another reason is.
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
        let is_news = |known: &Condition| {
            // Whoever was just started has nothing new to say.
            if self.reason == NOT_ASKED {
                return false;
            }
            let figures = matches!(self.kind, "Idle" | "TriggersHealthy");
            known.status != status
                || known.reason != self.reason
                || !figures && known.message != self.message
        };
        match known {
            Some(known) if !is_news(known) => Condition {
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
    fn a_restart_is_no_news() {
        let before = conditions(
            &[],
            idle_with(true, "BelowThreshold", "0 is below 1"),
            Some(1),
            moment(0),
        );
        let fact = Fact::new("Idle", None, NOT_ASKED, "not asked yet");
        assert_eq!(before, conditions(&before, vec![fact], Some(1), moment(9)));
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
