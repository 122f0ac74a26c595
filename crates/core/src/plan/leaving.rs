//! An ElastiService that goes away leaves the world as it would be without it.

use super::{Autoscaler, Observed, Patience, Plan, Service, Slices, Step, Target, later};
use elasti_api::{Mode, Phase};
use jiff::Timestamp;

pub(super) fn plan(
    observed: &Observed,
    since: Timestamp,
    now: Timestamp,
    patience: Patience,
) -> Plan {
    // What a rival still needs is not ours to take away.
    if observed.rival.is_some() {
        return Plan {
            steps: last(observed),
            ..Plan::idle()
        };
    }
    let holding = later(since, patience.leave);
    let mut steps = restore(observed, now < holding);
    if now < holding && must_hold(observed) {
        return Plan {
            steps,
            phase: Some(Phase::Waking),
            mode: Some(Mode::Proxy),
            look_again: Some(holding),
            ..Plan::idle()
        };
    }
    steps.extend(remove(observed));
    steps.extend(last(observed));
    Plan {
        steps,
        ..Plan::idle()
    }
}

/// Without a service nobody can ask for the target: there is nothing to hold.
pub(super) fn without_service(observed: &Observed) -> Plan {
    let mut plan = Plan::idle();
    if observed.slices != Slices::Absent {
        plan.steps.push(Step::RemoveSlices);
    }
    if observed.service == Service::Missing {
        plan.steps.push(Step::RemovePrivateService);
    }
    plan
}

/// The target as its owner left it: up, with its autoscaler at work. What cannot be seen is tried
/// for a while.
fn restore(observed: &Observed, trying: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    let unseen = observed.autoscaler == Autoscaler::Unknown && trying;
    if observed.autoscaler == Autoscaler::Paused || unseen {
        steps.push(Step::ResumeAutoscaler);
    }
    let asleep = match observed.target {
        Target::Found { replicas } => replicas == 0,
        Target::Unknown(_) => trying,
        Target::Missing => false,
    };
    if asleep {
        steps.push(Step::ScaleUp {
            replicas: observed.min_replicas,
        });
    }
    steps
}

/// While the target gets ready its requests still need somebody who holds them.
fn must_hold(observed: &Observed) -> bool {
    matches!(observed.target, Target::Found { .. })
        && observed.service == Service::Usable
        && observed.ready_endpoints == 0
        && observed.slices != Slices::Absent
}

fn remove(observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    if observed.slices != Slices::Absent {
        steps.push(Step::RemoveSlices);
    }
    steps.push(Step::RemovePrivateService);
    steps
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
