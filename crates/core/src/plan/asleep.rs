//! A target at zero, or on its way up: its traffic goes to the resolvers.

use super::{
    Autoscaler, Note, Observed, Patience, Plan, Resolvers, Slices, Step, Target, awake, earlier,
};
use crate::verdict::Verdict;
use elasti_api::{Mode, Phase};
use jiff::Timestamp;

pub(super) fn plan(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let mut plan = held(observed, Phase::Asleep, now, patience);
    if has_reason_to_wake(observed, now, patience) {
        if dry(observed, now, patience) {
            plan.note = Some(Note::DryRunWouldWake);
        } else {
            plan.phase = Some(Phase::Waking);
            plan.steps.append(&mut wake(observed));
        }
    }
    if observed.is_forsaken(now, patience) {
        plan.steps.push(Step::RemoveSlices);
    }
    if observed.resolvers != Resolvers::Ready && plan.note.is_none() {
        plan.note = Some(Note::NoResolver);
    }
    plan
}

/// Nobody sees whether it is there, or sleeps: what was published stays true.
pub(super) fn unseen(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    if observed.slices == Slices::Absent {
        return Plan {
            mode: Some(Mode::Serve),
            ..Plan::idle()
        };
    }
    let mut plan = held(observed, Phase::Asleep, now, patience);
    plan.phase = None;
    if observed.is_forsaken(now, patience) {
        let may_sleep = matches!(observed.target, Target::Unknown(_));
        if may_sleep && (observed.dry_run || !observed.paused) {
            plan.steps.append(&mut wake(observed));
        }
        plan.steps.push(Step::RemoveSlices);
    }
    plan
}

fn wake(observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    if observed.autoscaler == Autoscaler::Paused {
        steps.push(Step::ResumeAutoscaler);
    }
    steps.push(Step::ScaleUp {
        replicas: observed.min_replicas,
    });
    steps
}

/// What was put to sleep before the dry run began is still woken when its requests wait, or when nobody could hold them.
fn dry(observed: &Observed, now: Timestamp, patience: Patience) -> bool {
    let needed = knocked(observed, patience) || observed.is_unheld(now, patience);
    observed.dry_run && !(observed.slices != Slices::Absent && needed)
}

/// Since it sleeps, or since its slices are published: there was no knock at the last look, so one
/// that came later, while it was being scaled down, is unanswered. An old one was answered, or given up.
fn knocked(observed: &Observed, patience: Patience) -> bool {
    let published = observed.slices.published_since();
    let asleep = observed.asleep_since;
    let since = published.into_iter().chain(asleep).min();
    let heard = asleep.map(|asleep| earlier(asleep, patience.knocks));
    observed.knocked_since(since.max(heard).unwrap_or(observed.created))
}

/// Scaled up, by us or by somebody else, and not ready yet. If nobody waits for that, it may sleep again.
pub(super) fn waking(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let plan = rising(observed, now, patience);
    match awake::reluctance(observed, now, patience) {
        Some((note, look_again)) => Plan {
            note,
            look_again: plan.look_again.into_iter().chain(look_again).min(),
            ..plan
        },
        None => {
            let mut plan = awake::fall_asleep(observed, now, patience);
            if observed.unproven_resolvers {
                plan.steps.insert(0, Step::AskResolvers);
            }
            plan
        }
    }
}

fn rising(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
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
    let plan = rising(observed, now, patience);
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
        look_again: observed.unheld_at(patience).filter(|at| now < *at),
        ..Plan::idle()
    }
}

fn has_reason_to_wake(observed: &Observed, now: Timestamp, patience: Patience) -> bool {
    // Under a dry run nobody publishes again what is removed.
    let lost = observed.dry_run && observed.is_forsaken(now, patience);
    if knocked(observed, patience) || lost {
        return true;
    }
    !observed.paused
        && (!observed.may_sleep
            || observed.opinion.verdict == Verdict::Active
            || observed.is_unheld(now, patience))
}
