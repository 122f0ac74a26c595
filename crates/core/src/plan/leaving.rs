//! An ElastiService that goes away leaves the world as it would be without it.

use super::{
    Autoscaler, Following, Observed, Patience, Plan, Service, Slices, Step, Target, later,
};
use elasti_api::{Mode, Phase};
use jiff::{SignedDuration, Timestamp};

pub(super) fn plan(
    observed: &Observed,
    since: Timestamp,
    now: Timestamp,
    patience: Patience,
) -> Plan {
    if is_over(observed) {
        return Plan::idle();
    }
    // What a rival still needs is not ours to take away.
    if observed.rival.is_some() {
        return Plan {
            steps: last(observed),
            ..Plan::idle()
        };
    }
    let holding = later(since, patience.leave);
    let mut steps = restore(observed);
    let unsettled = (must_hold(observed) || observed.is_unsettled(now, patience))
        && !observed.is_forsaken(now, patience);
    if now < holding && (is_unseen(observed) || unsettled) {
        return Plan {
            steps,
            phase: Some(Phase::Waking),
            mode: Some(match observed.slices {
                Slices::Absent => Mode::Serve,
                _ => Mode::Proxy,
            }),
            look_again: Some(later(now, RETRY).min(holding)),
            ..Plan::idle()
        };
    }
    if observed.slices != Slices::Absent {
        steps.push(Step::RemoveSlices);
    }
    // Resolvers listen, and find the pods, until this is over: every data plane has to know first.
    let known = match observed.slices {
        Slices::Absent => observed
            .unpublished
            .map(|moment| later(moment, patience.settle)),
        _ => Some(later(now, patience.settle)),
    };
    match known.filter(|known| now < *known) {
        Some(known) => Plan {
            steps,
            mode: Some(Mode::Serve),
            look_again: Some(known),
            ..Plan::idle()
        },
        None => {
            steps.push(Step::RemovePrivateService);
            steps.extend(last(observed));
            Plan {
                steps,
                ..Plan::idle()
            }
        }
    }
}

/// All was given back; whatever it still waits for is not us.
fn is_over(observed: &Observed) -> bool {
    !observed.finalizer
        && observed.slices == Slices::Absent
        && observed.private_service == Following::Absent
}

/// Between two attempts to restore what cannot be seen.
const RETRY: SignedDuration = SignedDuration::from_secs(2);

/// Without a service nobody can ask for the target: there is nothing to hold.
pub(super) fn without_service(observed: &Observed) -> Plan {
    let mut steps = Vec::new();
    if observed.slices != Slices::Absent {
        // Under a dry run they are not published again when the service is back.
        if observed.dry_run {
            steps = restore(observed);
        }
        steps.push(Step::RemoveSlices);
    }
    if observed.service == Service::Missing {
        steps.push(Step::RemovePrivateService);
    }
    Plan {
        steps,
        phase: match observed.target {
            Target::Found { replicas: 0 } => Some(Phase::Asleep),
            Target::Found { .. } => Some(Phase::Awake),
            Target::Missing | Target::Unknown(_) => None,
        },
        mode: Some(Mode::Serve),
        ..Plan::idle()
    }
}

/// The target as its owner left it: up, with its autoscaler at work.
fn restore(observed: &Observed) -> Vec<Step> {
    let untouched = observed.dry_run && observed.slices == Slices::Absent;
    let mut steps = Vec::new();
    if matches!(
        observed.autoscaler,
        Autoscaler::Paused | Autoscaler::Unknown
    ) {
        steps.push(Step::ResumeAutoscaler);
    }
    let asleep = match observed.target {
        Target::Found { replicas } => replicas == 0,
        Target::Unknown(_) => true,
        Target::Missing => false,
    };
    if asleep && !untouched {
        steps.push(Step::ScaleUp {
            replicas: observed.min_replicas,
        });
    }
    steps
}

/// Its kind may only be about to be listed.
fn is_unseen(observed: &Observed) -> bool {
    matches!(observed.target, Target::Unknown(_)) || observed.autoscaler == Autoscaler::Unknown
}

/// While the target gets ready its requests still need somebody who holds them.
fn must_hold(observed: &Observed) -> bool {
    matches!(observed.target, Target::Found { .. })
        && observed.service == Service::Usable
        && observed.ready_endpoints == 0
        && observed.slices != Slices::Absent
}

fn last(observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    if observed.surplus_ports {
        steps.push(Step::RestPorts);
    }
    if observed.finalizer {
        steps.push(Step::RemoveFinalizer);
    }
    steps
}
