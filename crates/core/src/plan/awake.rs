//! A target with ready endpoints: it serves, or it falls asleep.

use super::{Autoscaler, Note, Observed, Patience, Plan, Resolvers, Slices, Step, Target, later};
use crate::verdict::Verdict;
use elasti_api::{Mode, Phase};
use jiff::Timestamp;

pub(super) fn plan(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let mut plan = match reluctance(observed, now, patience) {
        None if has_traffic(observed) => Plan {
            note: Some(Note::TrafficWhileFallingAsleep),
            ..step_back(observed)
        },
        None => fall_asleep(observed, now, patience),
        Some((note, look_again)) => {
            // Requests that came count as use, whatever else keeps the target up. Those for which it was woken do already.
            let fell_asleep = observed.woken.is_none() && has_traffic(observed);
            let plan = if fell_asleep { step_back } else { serve };
            Plan {
                note,
                look_again,
                ..plan(observed)
            }
        }
    };
    if observed.unproven_resolvers && observed.opinion.verdict == Verdict::Idle {
        plan.steps.insert(0, Step::AskResolvers);
    }
    plan
}

/// Why the target stays up, if it does, and when that ends by itself.
pub(super) fn reluctance(
    observed: &Observed,
    now: Timestamp,
    patience: Patience,
) -> Option<(Option<Note>, Option<Timestamp>)> {
    let rested = observed.rested_at(patience);
    // Who is still blind would have clients go to pods that have ended.
    let recovered = observed.recovered.map(|at| later(at, patience.controllers));
    if observed.opinion.verdict != Verdict::Idle {
        Some((None, None))
    } else if observed.paused {
        Some((Some(Note::Paused), None))
    } else if !observed.may_sleep {
        Some((Some(Note::OutsidePeriod), None))
    } else if observed.resolvers != Resolvers::Ready {
        Some((Some(Note::NoResolver), None))
    } else if now < rested {
        let traffic = observed.stepped_back.is_some();
        let note = if traffic {
            Note::TrafficWhileFallingAsleep
        } else {
            Note::CoolingDown
        };
        Some((Some(note), Some(rested)))
    } else if observed.blind || observed.target_unseen {
        Some((Some(Note::Blind), None))
    } else if let Some(recovered) = recovered.filter(|at| now < *at) {
        Some((Some(Note::Recovering), Some(recovered)))
    } else if observed.autoscaler == Autoscaler::Unknown {
        Some((Some(Note::AutoscalerUnknown), None))
    } else if observed.autoscaler == Autoscaler::Pinning {
        Some((Some(Note::AutoscalerPinning), None))
    } else if observed.dry_run {
        Some((Some(Note::DryRunWouldSleep), None))
    } else if !observed.attached {
        Some((None, None))
    } else {
        None
    }
}

/// Publish, wait until every data plane can know, look again, and only then scale.
pub(super) fn fall_asleep(observed: &Observed, now: Timestamp, patience: Patience) -> Plan {
    let mut plan = Plan {
        phase: Some(Phase::FallingAsleep),
        mode: Some(Mode::Proxy),
        ..Plan::idle()
    };
    let Slices::Current { since } = observed.slices else {
        plan.steps.push(Step::PublishSlices);
        plan.look_again = Some(later(now, patience.settle));
        return plan;
    };
    let settled = later(since, patience.settle);
    if now < settled {
        plan.look_again = Some(settled);
        return plan;
    }
    // What the pause causes is the next look.
    plan.steps
        .push(match (observed.autoscaler, &observed.target) {
            (Autoscaler::Running, _) => Step::PauseAutoscaler,
            (_, Target::Found { replicas }) => Step::ScaleToZero { from: *replicas },
            _ => return plan,
        });
    plan
}

/// Whether somebody has come to the resolvers since its slices lead there.
fn has_traffic(observed: &Observed) -> bool {
    let published = observed.slices.published_since();
    published.is_some_and(|since| observed.knocked_since(since))
}

fn step_back(observed: &Observed) -> Plan {
    let mut plan = serve(observed);
    plan.steps.insert(0, Step::StepBack);
    plan
}

fn serve(observed: &Observed) -> Plan {
    let mut steps = Vec::new();
    if observed.autoscaler == Autoscaler::Paused {
        steps.push(Step::ResumeAutoscaler);
    }
    if observed.slices.published_since().is_some() {
        steps.push(Step::RemoveSlices);
    }
    Plan {
        steps,
        phase: Some(Phase::Awake),
        mode: Some(Mode::Serve),
        ..Plan::idle()
    }
}
