//! A target at zero, or on its way up: its traffic goes to the resolvers.

use super::{Autoscaler, Note, Observed, Patience, Plan, Resolvers, Slices, Step, later};
use crate::verdict::Verdict;
use elasti_api::{Mode, Phase};
use jiff::Timestamp;

pub(super) fn plan(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let mut plan = held(observed, Phase::Asleep, now, patience);
    match reason_to_wake(observed, now, patience) {
        Wake::Now if dry(observed) => plan.note = Some(Note::DryRunWouldWake),
        Wake::Now => {
            plan.phase = Some(Phase::Waking);
            if observed.autoscaler == Autoscaler::Paused {
                plan.steps.push(Step::ResumeAutoscaler);
            }
            plan.steps.push(Step::ScaleUp {
                replicas: observed.min_replicas,
            });
        }
        Wake::At(moment) => plan.look_again = Some(moment),
        Wake::Never => {}
    }
    if observed.is_forsaken(now, patience) {
        plan.steps.push(Step::RemoveSlices);
    }
    if observed.resolvers != Resolvers::Ready && plan.note.is_none() {
        plan.note = Some(Note::NoResolver);
    }
    plan
}

/// What was put to sleep before the dry run began is still woken: its requests wait.
fn dry(observed: &Observed) -> bool {
    observed.dry_run && !(observed.slices != Slices::Absent && knocked(observed))
}

/// Since it sleeps, or since its slices are published: there was no knock at the last look, so one
/// that came later, while it was being scaled down, is unanswered.
fn knocked(observed: &Observed) -> bool {
    let published = observed.slices.published_since();
    let since = published.into_iter().chain(observed.asleep_since).min();
    observed.knocked_since(since.unwrap_or(observed.created))
}

/// Scaled up, by us or by somebody else, and not ready yet.
pub(super) fn waking(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let mut plan = held(observed, Phase::Waking, now, patience);
    if observed.autoscaler == Autoscaler::Paused {
        plan.steps.push(Step::ResumeAutoscaler);
    }
    if observed.is_forsaken(now, patience) {
        plan.steps.push(Step::RemoveSlices);
    }
    plan
}

/// Up, and ready, but not for long enough to let go of its traffic.
pub(super) fn settling(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let settled = observed.settled_at(patience).filter(|at| now < *at);
    let plan = waking(observed, now, patience);
    Plan {
        look_again: settled.into_iter().chain(plan.look_again).min(),
        ..plan
    }
}

fn held(observed: &Observed, phase: Phase, now: Timestamp, patience: Patience) -> Plan {
    // To be refused at once is better than to be sent to somebody who is gone, or to a stranger who
    // has that address by now.
    let forsaken = observed.is_forsaken(now, patience);
    let untouched = observed.dry_run && observed.slices == Slices::Absent;
    let publish = !matches!(observed.resolvers, Resolvers::Gone { .. })
        && !matches!(observed.slices, Slices::Current { .. })
        && !untouched;
    let proxied = publish || observed.slices != Slices::Absent && !forsaken;
    let mut steps = Vec::new();
    if observed.unproven_resolvers && !untouched {
        steps.push(Step::AskResolvers);
    }
    if publish {
        steps.push(Step::PublishSlices);
    }
    Plan {
        steps,
        phase: Some(phase),
        mode: Some(if proxied { Mode::Proxy } else { Mode::Serve }),
        look_again: observed.forsaken_at(patience).filter(|_| !forsaken),
        ..Plan::idle()
    }
}

enum Wake {
    Now,
    At(Timestamp),
    Never,
}

fn reason_to_wake(observed: &Observed, now: Timestamp, patience: Patience) -> Wake {
    if knocked(observed) {
        return Wake::Now;
    }
    if observed.paused {
        return Wake::Never;
    }
    if !observed.may_sleep || observed.opinion.verdict == Verdict::Active {
        return Wake::Now;
    }
    match observed.resolvers {
        Resolvers::Gone { since, .. } | Resolvers::Partly { since } => {
            let patience_ends = later(since, patience.resolvers);
            if now < patience_ends {
                Wake::At(patience_ends)
            } else {
                Wake::Now
            }
        }
        Resolvers::Ready => Wake::Never,
    }
}
