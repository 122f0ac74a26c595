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
            steps: finalizer(observed),
            ..Plan::idle()
        };
    }
    let mut steps = restore(observed);
    let holding = later(since, patience.leave);
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
    steps.extend(finalizer(observed));
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

/// The target as its owner left it: up, with its autoscaler at work.
fn restore(observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    if observed.autoscaler == Autoscaler::Paused {
        steps.push(Step::ResumeAutoscaler);
    }
    if observed.target == (Target::Found { replicas: 0 }) {
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

fn finalizer(observed: &Observed) -> Vec<Step> {
    if observed.finalizer {
        vec![Step::RemoveFinalizer]
    } else {
        Vec::new()
    }
}
