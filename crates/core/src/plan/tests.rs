use super::*;
use proptest::prelude::*;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// Awake and idle for long, with everything in place.
fn idle_service() -> Observed {
    Observed {
        created: at(0),
        deleting_since: None,
        finalizer: true,
        paused: false,
        dry_run: false,
        min_replicas: 2,
        cooldown: MINUTE,
        rival: None,
        former: Former::default(),
        releasing_since: None,
        attached: true,
        service: Service::Usable,
        private_service: Following::Current,
        target: Target::Found { replicas: 1 },
        ready_endpoints: 1,
        slices: Slices::Absent,
        resolvers: Resolvers::Ready,
        unproven_resolvers: false,
        surplus_ports: false,
        autoscaler: Autoscaler::None,
        opinion: Opinion::idle("BelowThreshold", "0 is below 1"),
        may_sleep: true,
        last_active: None,
        unready_since: at(0),
        regained: None,
        asleep_since: None,
        last_knock: None,
        woken: None,
        lagging: false,
        misread: false,
        stepped_back: None,
        unpublished: None,
        blind: false,
        target_unseen: false,
        recovered: None,
    }
}

fn sleeping_service() -> Observed {
    Observed {
        target: Target::Found { replicas: 0 },
        ready_endpoints: 0,
        slices: Slices::Current { since: at(90) },
        asleep_since: Some(at(100)),
        ..idle_service()
    }
}

fn gone(since: Timestamp) -> Resolvers {
    Resolvers::Gone {
        since,
        why: Absence::NoneReady,
    }
}

fn planned(observed: &Observed, now: i64) -> Plan {
    plan(observed, at(now), Patience::default())
}

#[test]
fn an_idle_target_falls_asleep_in_order() {
    let mut observed = Observed {
        autoscaler: Autoscaler::Running,
        ..idle_service()
    };
    let first = planned(&observed, 100);
    assert_eq!(first.steps, [Step::PublishSlices], "the slice comes first");
    assert_eq!(first.phase, Some(Phase::FallingAsleep));
    assert_eq!(first.look_again, Some(at(103)));

    observed.slices = Slices::Current { since: at(100) };
    assert_eq!(
        planned(&observed, 101).steps,
        [],
        "every data plane gets the time to know"
    );
    assert_eq!(
        planned(&observed, 103).steps,
        [Step::PauseAutoscaler],
        "the autoscaler rests before the target does"
    );
    observed.autoscaler = Autoscaler::Paused;
    assert_eq!(
        planned(&observed, 104).steps,
        [Step::ScaleToZero { from: 1 }]
    );
}

#[test]
fn a_pause_of_somebody_else_is_left_as_it_is() {
    let settled = Observed {
        autoscaler: Autoscaler::Resting,
        slices: Slices::Current { since: at(100) },
        ..idle_service()
    };
    assert_eq!(
        planned(&settled, 103).steps,
        [Step::ScaleToZero { from: 1 }],
        "it rests already"
    );
    let deleting = Observed {
        deleting_since: Some(at(200)),
        autoscaler: Autoscaler::Resting,
        ..sleeping_service()
    };
    let knocked = Observed {
        last_knock: Some(at(200)),
        autoscaler: Autoscaler::Pinning,
        ..sleeping_service()
    };
    for observed in [deleting, knocked] {
        assert_eq!(
            planned(&observed, 200).steps,
            [Step::ScaleUp { replicas: 2 }]
        );
    }
}

#[test]
fn what_an_autoscaler_keeps_up_does_not_fall_asleep() {
    let observed = Observed {
        autoscaler: Autoscaler::Pinning,
        ..idle_service()
    };
    let plan = planned(&observed, 103);
    assert_eq!(plan.steps, [], "or they would scale it in turns");
    assert_eq!(plan.note, Some(Note::AutoscalerPinning));
}

#[test]
fn traffic_at_the_last_look_means_stepping_back() {
    let observed = Observed {
        slices: Slices::Current { since: at(100) },
        last_knock: Some(at(102)),
        ..idle_service()
    };
    let plan = planned(&observed, 103);
    assert_eq!(plan.steps, [Step::StepBack, Step::RemoveSlices]);
    assert_eq!(plan.note, Some(Note::TrafficWhileFallingAsleep));
}

#[test]
fn traffic_counts_though_something_else_keeps_the_target_up() {
    let mut observed = Observed {
        slices: Slices::Current { since: at(100) },
        last_knock: Some(at(102)),
        opinion: Opinion::unknown("Unreachable", ""),
        ..idle_service()
    };
    let plan = planned(&observed, 103);
    assert_eq!(plan.steps, [Step::StepBack, Step::RemoveSlices]);
    assert_eq!(plan.note, None);
    observed.woken = Some(at(95));
    let plan = planned(&observed, 103);
    assert_eq!(plan.steps, [Step::RemoveSlices], "it was woken for that");
}

#[test]
fn a_knock_wakes_what_sleeps() {
    let observed = Observed {
        last_knock: Some(at(200)),
        autoscaler: Autoscaler::Paused,
        ..sleeping_service()
    };
    let plan = planned(&observed, 200);
    assert_eq!(
        plan.steps,
        [Step::ResumeAutoscaler, Step::ScaleUp { replicas: 2 }]
    );
    assert_eq!(
        (plan.phase, plan.mode),
        (Some(Phase::Waking), Some(Mode::Proxy))
    );
}

#[test]
fn a_knock_while_it_was_scaled_down_wakes_it() {
    let observed = Observed {
        last_knock: Some(at(95)),
        ..sleeping_service()
    };
    assert_eq!(
        planned(&observed, 101).steps,
        [Step::ScaleUp { replicas: 2 }],
        "after the last look, before zero was seen"
    );
}

#[test]
fn stepping_back_is_said_for_as_long_as_it_counts() {
    let observed = Observed {
        last_active: Some(at(90)),
        stepped_back: Some(at(90)),
        ..idle_service()
    };
    let plan = planned(&observed, 100);
    assert_eq!(plan.note, Some(Note::TrafficWhileFallingAsleep));
}

#[test]
fn a_knock_from_before_it_slept_is_no_reason_to_wake() {
    let observed = Observed {
        last_knock: Some(at(50)),
        ..sleeping_service()
    };
    assert_eq!(planned(&observed, 200).steps, []);
}

#[test]
fn a_target_that_somebody_else_scaled_to_zero_is_proxied_at_once() {
    let observed = Observed {
        slices: Slices::Absent,
        ..sleeping_service()
    };
    let plan = planned(&observed, 101);
    assert_eq!(plan.steps, [Step::PublishSlices]);
    assert_eq!(
        (plan.phase, plan.mode),
        (Some(Phase::Asleep), Some(Mode::Proxy))
    );
}

#[test]
fn a_starting_target_stays_proxied_until_it_is_ready() {
    let mut observed = Observed {
        target: Target::Found { replicas: 2 },
        opinion: Opinion::active("AboveThreshold", "5 is not below 1"),
        ..sleeping_service()
    };
    let waking = planned(&observed, 200);
    assert_eq!(
        (waking.phase, waking.mode, waking.steps),
        (Some(Phase::Waking), Some(Mode::Proxy), vec![])
    );
    observed.ready_endpoints = 1;
    let awake = planned(&observed, 201);
    assert_eq!(
        awake.steps,
        [Step::RemoveSlices],
        "the resolver leaves the path"
    );
    assert_eq!(
        (awake.phase, awake.mode),
        (Some(Phase::Awake), Some(Mode::Serve))
    );
}

#[test]
fn a_target_that_was_just_woken_keeps_its_slices_until_it_has_settled() {
    let mut observed = Observed {
        target: Target::Found { replicas: 1 },
        ready_endpoints: 1,
        asleep_since: None,
        woken: Some(at(200)),
        opinion: Opinion::unknown("NoTriggers", ""),
        ..sleeping_service()
    };
    let early = planned(&observed, 201);
    assert_eq!(early.steps, [], "what is ready may be the pod that ends");
    assert_eq!(
        (early.phase, early.mode, early.look_again),
        (Some(Phase::Waking), Some(Mode::Proxy), Some(at(203)))
    );
    observed.lagging = true;
    assert_eq!(planned(&observed, 210).steps, [], "nobody counted yet");
    observed.lagging = false;
    assert_eq!(planned(&observed, 210).steps, [Step::RemoveSlices]);
}

#[test]
fn pods_from_before_a_wake_do_not_end_it_while_controllers_may_be_blind() {
    let observed = Observed {
        target: Target::Found { replicas: 1 },
        ready_endpoints: 2,
        asleep_since: None,
        woken: Some(at(200)),
        misread: true,
        opinion: Opinion::unknown("NoTriggers", ""),
        ..sleeping_service()
    };
    let plan = planned(&observed, 229);
    assert_eq!(
        plan.steps,
        [],
        "clients would be sent to one that has ended"
    );
    assert_eq!(
        (plan.phase, plan.mode, plan.look_again),
        (Some(Phase::Waking), Some(Mode::Proxy), Some(at(230)))
    );
    assert_eq!(
        planned(&observed, 230).steps,
        [Step::RemoveSlices],
        "one that is still there was spared"
    );
}

#[test]
fn one_that_was_held_for_is_served_when_all_of_its_pods_are_listed() {
    let observed = Observed {
        target: Target::Found { replicas: 1 },
        ready_endpoints: 1,
        asleep_since: None,
        regained: Some(at(200)),
        misread: true,
        opinion: Opinion::unknown("NoTriggers", ""),
        ..sleeping_service()
    };
    let plan = planned(&observed, 201);
    assert_eq!(plan.steps, [], "nobody would answer in the other family");
    assert_eq!(plan.look_again, Some(at(230)));
    assert_eq!(planned(&observed, 230).steps, [Step::RemoveSlices]);
    let whole = Observed {
        misread: false,
        ..observed
    };
    assert_eq!(planned(&whole, 201).steps, [Step::RemoveSlices]);
}

#[test]
fn nothing_falls_asleep_until_controllers_can_have_come_back_with_the_api_server() {
    let observed = Observed {
        recovered: Some(at(100)),
        ..idle_service()
    };
    let plan = planned(&observed, 129);
    assert_eq!(plan.steps, []);
    assert_eq!(
        (plan.mode, plan.note, plan.look_again),
        (Some(Mode::Serve), Some(Note::Recovering), Some(at(130)))
    );
    assert_eq!(planned(&observed, 130).steps, [Step::PublishSlices]);
}

#[test]
fn nothing_falls_asleep_without_its_conditions() {
    let idle = idle_service();
    for (why, observed, note) in [
        (
            "cooldown",
            Observed {
                last_active: Some(at(90)),
                ..idle.clone()
            },
            Some(Note::CoolingDown),
        ),
        (
            "youth",
            Observed {
                created: at(90),
                ..idle.clone()
            },
            Some(Note::CoolingDown),
        ),
        (
            "pause",
            Observed {
                paused: true,
                ..idle.clone()
            },
            Some(Note::Paused),
        ),
        (
            "dry run",
            Observed {
                dry_run: true,
                ..idle.clone()
            },
            Some(Note::DryRunWouldSleep),
        ),
        (
            "period",
            Observed {
                may_sleep: false,
                ..idle.clone()
            },
            Some(Note::OutsidePeriod),
        ),
        (
            "no resolver",
            Observed {
                resolvers: gone(at(99)),
                ..idle.clone()
            },
            Some(Note::NoResolver),
        ),
        (
            "a failing watch",
            Observed {
                blind: true,
                ..idle.clone()
            },
            Some(Note::Blind),
        ),
        (
            "an autoscaler out of sight",
            Observed {
                autoscaler: Autoscaler::Unknown,
                ..idle.clone()
            },
            Some(Note::AutoscalerUnknown),
        ),
        (
            "nobody would remember it",
            Observed {
                attached: false,
                ..idle.clone()
            },
            None,
        ),
        (
            "unknown",
            Observed {
                opinion: Opinion::unknown("QueryFailed", "timed out"),
                ..idle.clone()
            },
            None,
        ),
    ] {
        let plan = planned(&observed, 100);
        assert_eq!(plan.steps, [], "{why}");
        assert_eq!(plan.note, note, "{why}");
        assert_eq!(plan.mode, Some(Mode::Serve), "{why}");
    }
}

#[test]
fn what_sleeps_is_woken_when_nobody_can_hold_its_traffic() {
    let observed = Observed {
        resolvers: gone(at(200)),
        ..sleeping_service()
    };
    let early = planned(&observed, 201);
    assert_eq!(
        (early.steps, early.look_again),
        (vec![], Some(at(210))),
        "resolvers may only be restarting"
    );
    assert_eq!(
        planned(&observed, 210).steps,
        [Step::ScaleUp { replicas: 2 }, Step::RemoveSlices]
    );
}

#[test]
fn deletion_holds_traffic_until_the_target_is_back() {
    let mut observed = Observed {
        deleting_since: Some(at(200)),
        autoscaler: Autoscaler::Paused,
        ..sleeping_service()
    };
    assert_eq!(
        planned(&observed, 200).steps,
        [Step::ResumeAutoscaler, Step::ScaleUp { replicas: 2 }]
    );
    observed.target = Target::Found { replicas: 2 };
    observed.autoscaler = Autoscaler::Running;
    assert_eq!(planned(&observed, 201).steps, [], "its pod is starting");
    let gone = [Step::RemoveSlices];
    assert_eq!(planned(&observed, 230).steps, gone, "but not for ever");
    observed.ready_endpoints = 1;
    let removing = planned(&observed, 202);
    assert_eq!(removing.steps, gone);
    assert_eq!(removing.look_again, Some(at(205)));

    observed.slices = Slices::Absent;
    observed.unpublished = Some(at(202));
    observed.surplus_ports = true;
    let still = planned(&observed, 203).steps;
    assert_eq!(still, [], "its ports may be used still");
    assert_eq!(
        planned(&observed, 205).steps,
        [
            Step::RemovePrivateService,
            Step::RestPorts,
            Step::RemoveFinalizer
        ]
    );
}

#[test]
fn deletion_does_not_wait_for_what_is_gone() {
    let observed = Observed {
        deleting_since: Some(at(200)),
        target: Target::Missing,
        service: Service::Missing,
        autoscaler: Autoscaler::Missing,
        slices: Slices::Absent,
        ..sleeping_service()
    };
    assert_eq!(
        planned(&observed, 200).steps,
        [Step::RemovePrivateService, Step::RemoveFinalizer]
    );
}

#[test]
fn deletion_tries_for_a_while_to_restore_what_cannot_be_seen() {
    let observed = Observed {
        deleting_since: Some(at(200)),
        target: Target::Unknown("Rollout cannot be watched".into()),
        autoscaler: Autoscaler::Unknown,
        slices: Slices::Absent,
        ..sleeping_service()
    };
    let trying = planned(&observed, 201);
    let restore = [Step::ResumeAutoscaler, Step::ScaleUp { replicas: 2 }];
    assert_eq!(trying.steps, restore, "and nothing is removed");
    assert_eq!(trying.look_again, Some(at(203)));
    let over = planned(&observed, 230).steps;
    assert_eq!(
        over.last(),
        Some(&Step::RemoveFinalizer),
        "and then lets go"
    );
}

#[test]
fn deletion_gives_back_what_it_can_and_then_lets_go() {
    let observed = Observed {
        deleting_since: Some(at(200)),
        ..sleeping_service()
    };
    assert!(!planned(&observed, 229).last_try);
    let plan = planned(&observed, 230);
    assert!(plan.last_try, "nobody may hinder it for ever");
    let steps = [Step::ScaleUp { replicas: 2 }, Step::RemoveSlices];
    assert_eq!(plan.steps, steps);
    assert!(steps.iter().all(Step::gives_back));
}

#[test]
fn what_was_let_go_is_left_alone_while_others_keep_it() {
    let observed = Observed {
        deleting_since: Some(at(200)),
        finalizer: false,
        slices: Slices::Absent,
        private_service: Following::Absent,
        ..sleeping_service()
    };
    assert_eq!(planned(&observed, 201).steps, []);
}

#[test]
fn deleting_a_dry_run_leaves_what_others_scaled_to_zero_alone() {
    let observed = Observed {
        deleting_since: Some(at(200)),
        dry_run: true,
        slices: Slices::Absent,
        ..sleeping_service()
    };
    assert_eq!(
        planned(&observed, 200).steps,
        [Step::RemovePrivateService, Step::RemoveFinalizer]
    );
}

#[test]
fn what_is_no_longer_named_is_released_first() {
    let observed = Observed {
        former: Former {
            service: true,
            target: true,
            autoscaler: true,
        },
        surplus_ports: true,
        slices: Slices::Absent,
        ..sleeping_service()
    };
    assert_eq!(
        planned(&observed, 200).steps,
        [
            Step::ReleaseService,
            Step::ReleaseAutoscaler,
            Step::ReleaseTarget,
            Step::PublishSlices,
            Step::RestPorts,
        ]
    );
}

#[test]
fn what_cannot_be_released_is_left_after_a_while_and_hinders_nothing_else() {
    let former = Former {
        target: true,
        ..Former::default()
    };
    let observed = Observed {
        former,
        releasing_since: Some(at(200)),
        ..idle_service()
    };
    assert!(!planned(&observed, 229).last_try);
    assert!(planned(&observed, 230).last_try);
    for next in [
        Step::AddFinalizer,
        Step::ApplyPrivateService,
        Step::RestPorts,
    ] {
        assert!(!Step::ReleaseTarget.hinders(&next), "{next:?}");
    }
    assert!(Step::ReleaseTarget.hinders(&Step::RemoveFinalizer));
    assert!(
        Step::ReleaseService.hinders(&Step::RestPorts),
        "slices may lead there still"
    );
    assert!(Step::AddFinalizer.hinders(&Step::ScaleToZero { from: 1 }));
    assert!(!Step::AddFinalizer.hinders(&Step::ScaleUp { replicas: 1 }));
}

#[test]
fn a_dry_run_leaves_what_others_scale_to_zero_alone() {
    let observed = Observed {
        dry_run: true,
        slices: Slices::Absent,
        opinion: Opinion::active("AboveThreshold", "5 is not below 1"),
        ..sleeping_service()
    };
    let plan = planned(&observed, 200);
    assert_eq!(
        (plan.steps, plan.mode, plan.note),
        (vec![], Some(Mode::Serve), Some(Note::DryRunWouldWake))
    );
}

#[test]
fn a_dry_run_still_wakes_what_slept_before_it() {
    let observed = Observed {
        dry_run: true,
        last_knock: Some(at(200)),
        ..sleeping_service()
    };
    assert_eq!(
        planned(&observed, 200).steps,
        [Step::ScaleUp { replicas: 2 }]
    );
}

#[test]
fn what_can_be_held_of_a_sleeping_service_is_held_until_the_rest_has_it_woken() {
    let observed = Observed {
        resolvers: Resolvers::Partly { since: at(200) },
        slices: Slices::Absent,
        ..sleeping_service()
    };
    let plan = planned(&observed, 200);
    assert_eq!(plan.steps, [Step::PublishSlices]);
    assert_eq!(plan.look_again, Some(at(210)));
    let plan = planned(&observed, 210);
    assert!(plan.steps.contains(&Step::ScaleUp { replicas: 2 }));
}

#[test]
fn slices_do_not_lead_to_resolvers_that_stay_away() {
    let waking = Observed {
        target: Target::Found { replicas: 1 },
        resolvers: gone(at(200)),
        ..sleeping_service()
    };
    let plan = planned(&waking, 205);
    assert_eq!((plan.steps, plan.mode), (vec![], Some(Mode::Proxy)));
    assert_eq!(plan.look_again, Some(at(210)), "they may come back");
    let plan = planned(&waking, 210);
    assert_eq!(plan.steps, [Step::RemoveSlices]);
    assert_eq!(
        (plan.phase, plan.mode),
        (Some(Phase::Waking), Some(Mode::Serve))
    );
    let blind = Observed {
        blind: true,
        ..waking.clone()
    };
    assert_eq!(planned(&blind, 210).steps, [], "they may be there unseen");
    let leaving = Observed {
        deleting_since: Some(at(205)),
        ..waking
    };
    assert_eq!(planned(&leaving, 210).steps, [Step::RemoveSlices]);
}

/// Up and idle for long, and never ready.
fn broken_service() -> Observed {
    Observed {
        target: Target::Found { replicas: 2 },
        woken: Some(at(100)),
        unready_since: at(100),
        asleep_since: None,
        ..sleeping_service()
    }
}

#[test]
fn what_never_gets_ready_falls_asleep_again_when_nobody_waits() {
    let mut observed = Observed {
        autoscaler: Autoscaler::Running,
        last_knock: Some(at(110)),
        ..broken_service()
    };
    let waiting = planned(&observed, 169);
    assert_eq!(waiting.steps, [], "whoever knocked may wait still");
    assert_eq!(
        (waiting.phase, waiting.note, waiting.look_again),
        (Some(Phase::Waking), Some(Note::CoolingDown), Some(at(170)))
    );
    let steps = |observed: &Observed| planned(observed, 170).steps;
    assert_eq!(steps(&observed), [Step::PauseAutoscaler]);
    observed.autoscaler = Autoscaler::Paused;
    assert_eq!(steps(&observed), [Step::ScaleToZero { from: 2 }]);
    observed.last_knock = Some(at(169));
    let rescue = steps(&observed);
    assert_eq!(rescue, [Step::ResumeAutoscaler], "somebody waits");

    observed.target = Target::Found { replicas: 0 };
    observed.asleep_since = Some(at(171));
    observed.last_knock = Some(at(110));
    assert_eq!(planned(&observed, 172).steps, [], "that one was given up");
    observed.last_knock = Some(at(170));
    let wakes = planned(&observed, 172).steps;
    assert!(wakes.contains(&Step::ScaleUp { replicas: 2 }), "{wakes:?}");
}

#[test]
fn what_is_not_ready_stays_up_while_there_is_a_reason() {
    let broken = broken_service();
    let sleeps_at = |now, observed: Observed| sleeps(&planned(&observed, now));
    assert!(sleeps_at(160, broken.clone()));
    assert!(
        !sleeps_at(159, broken.clone()),
        "it has only begun to start"
    );
    let reasons: [fn(&mut Observed); 11] = [
        |observed| observed.cooldown = MINUTE * 10,
        |observed| observed.last_active = Some(at(120)),
        |observed| observed.unready_since = at(120),
        |observed| observed.opinion = Opinion::active("AboveThreshold", ""),
        |observed| observed.opinion = Opinion::unknown("NoTriggers", ""),
        |observed| observed.may_sleep = false,
        |observed| observed.paused = true,
        |observed| observed.blind = true,
        |observed| observed.target_unseen = true,
        |observed| observed.slices = Slices::Current { since: at(158) },
        |observed| observed.slices = Slices::Stale { since: at(90) },
    ];
    for (number, reason) in reasons.into_iter().enumerate() {
        let mut observed = broken.clone();
        reason(&mut observed);
        assert!(!sleeps_at(160, observed), "reason {number}");
    }
}

#[test]
fn what_is_published_of_a_target_out_of_sight_stays_true() {
    let unknown = Target::Unknown("Rollout cannot be watched".into());
    for target in [Target::Missing, unknown.clone()] {
        let observed = Observed {
            target,
            target_unseen: true,
            slices: Slices::Stale { since: at(90) },
            unproven_resolvers: true,
            ..sleeping_service()
        };
        let plan = planned(&observed, 200);
        assert_eq!(plan.steps, [Step::AskResolvers, Step::PublishSlices]);
        assert_eq!((plan.phase, plan.mode), (None, Some(Mode::Proxy)));
    }
    let forsaken = Observed {
        target: Target::Missing,
        target_unseen: true,
        resolvers: gone(at(200)),
        ..sleeping_service()
    };
    let early = planned(&forsaken, 205);
    assert_eq!((early.steps, early.look_again), (vec![], Some(at(210))));
    let plan = planned(&forsaken, 210);
    assert_eq!(
        plan.steps,
        [Step::RemoveSlices],
        "whoever they name is gone"
    );
    assert_eq!(plan.mode, Some(Mode::Serve));
    let may_sleep = Observed {
        target: unknown,
        ..forsaken
    };
    let steps = [Step::ScaleUp { replicas: 2 }, Step::RemoveSlices];
    assert_eq!(planned(&may_sleep, 210).steps, steps);
}

#[test]
fn a_dry_run_wakes_what_nobody_can_hold_any_more() {
    let forsaken = Observed {
        dry_run: true,
        autoscaler: Autoscaler::Paused,
        resolvers: gone(at(200)),
        ..sleeping_service()
    };
    assert_eq!(planned(&forsaken, 209).steps, []);
    let steps = [
        Step::ResumeAutoscaler,
        Step::ScaleUp { replicas: 2 },
        Step::RemoveSlices,
    ];
    assert_eq!(planned(&forsaken, 210).steps, steps);
    let paused = Observed {
        paused: true,
        ..forsaken.clone()
    };
    let why = "nobody would publish its slices again";
    assert_eq!(planned(&paused, 210).steps, steps, "{why}");
    let partly = Observed {
        resolvers: Resolvers::Partly { since: at(200) },
        ..forsaken
    };
    assert_eq!(planned(&partly, 209).look_again, Some(at(210)));
    assert_eq!(planned(&partly, 210).steps, steps[..2]);
}

#[test]
fn a_dry_run_wakes_what_sleeps_behind_a_service_that_goes_away() {
    let observed = Observed {
        service: Service::Missing,
        dry_run: true,
        ..sleeping_service()
    };
    assert_eq!(
        planned(&observed, 200).steps,
        [
            Step::ScaleUp { replicas: 2 },
            Step::RemoveSlices,
            Step::RemovePrivateService
        ]
    );
}

#[test]
fn without_a_service_nothing_leads_to_resolvers() {
    let observed = Observed {
        service: Service::Unusable("it has no selector"),
        ..sleeping_service()
    };
    let plan = planned(&observed, 200);
    assert_eq!(plan.steps, [Step::RemoveSlices], "it sleeps on");
    assert_eq!(
        (plan.phase, plan.mode),
        (Some(Phase::Asleep), Some(Mode::Serve))
    );
}

#[test]
fn resolvers_are_asked_before_anything_needs_them() {
    let absent = Resolvers::Gone {
        since: at(100),
        why: Absence::NoneAccepts,
    };
    let observed = Observed {
        resolvers: absent,
        unproven_resolvers: true,
        ..idle_service()
    };
    let plan = planned(&observed, 100);
    assert_eq!(plan.steps, [Step::AskResolvers]);
    assert_eq!(plan.note, Some(Note::NoResolver));
}

#[test]
fn the_younger_of_two_rivals_touches_nothing() {
    let observed = Observed {
        rival: Some("older".into()),
        finalizer: false,
        ..sleeping_service()
    };
    let plan = planned(&observed, 200);
    assert_eq!((plan.steps, plan.note), (vec![], Some(Note::Conflict)));
}

fn sleeps(plan: &Plan) -> bool {
    let to_zero = |step: &Step| matches!(step, Step::ScaleToZero { .. });
    plan.steps.iter().any(to_zero)
}

/// At zero, or nobody knows.
fn may_be_down(observed: &Observed) -> bool {
    matches!(
        observed.target,
        Target::Found { replicas: 0 } | Target::Unknown(_)
    )
}

fn place_of(plan: &Plan, wanted: impl Fn(&Step) -> bool) -> Option<usize> {
    plan.steps.iter().position(wanted)
}

fn scales_up(step: &Step) -> bool {
    matches!(step, Step::ScaleUp { .. })
}

fn anything() -> impl Strategy<Value = Observed> {
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let world = (-2..3i32, 0..3usize, 0..4u8, 0..3u8, 0..6u8);
    let sight = (any::<bool>(), any::<bool>(), 0..6u8, 0..300i64);
    let verdict = prop_oneof![
        Just(Opinion::idle("I", "")),
        Just(Opinion::active("A", "")),
        Just(Opinion::unknown("U", "")),
    ];
    (
        flags,
        world,
        sight,
        verdict,
        proptest::option::of(0..300i64),
    )
        .prop_map(|(flags, world, sight, opinion, knock)| {
            let (deleting, paused, dry_run, may_sleep, finalizer) = flags;
            let (replicas, ready, slices, resolvers, autoscaler) = world;
            let (blind, target_unseen, service, unready) = sight;
            Observed {
                deleting_since: deleting.then(|| at(100)),
                paused,
                dry_run,
                may_sleep,
                finalizer,
                service: match service {
                    0 => Service::Missing,
                    1 => Service::Unusable("it has no selector"),
                    _ => Service::Usable,
                },
                target: match replicas {
                    -2 => Target::Missing,
                    -1 => Target::Unknown("it cannot be watched".into()),
                    _ => Target::Found { replicas },
                },
                ready_endpoints: if replicas == 0 { 0 } else { ready },
                unready_since: at(unready),
                blind,
                target_unseen,
                slices: match slices {
                    0 => Slices::Absent,
                    1 => Slices::Stale { since: at(100) },
                    _ => Slices::Current { since: at(100) },
                },
                resolvers: match resolvers {
                    0 => Resolvers::Ready,
                    1 => Resolvers::Partly { since: at(150) },
                    _ => gone(at(150)),
                },
                autoscaler: [
                    Autoscaler::None,
                    Autoscaler::Missing,
                    Autoscaler::Running,
                    Autoscaler::Paused,
                    Autoscaler::Resting,
                    Autoscaler::Pinning,
                ][usize::from(autoscaler)],
                opinion,
                last_knock: knock.map(at),
                ..idle_service()
            }
        })
}

/// Nothing but time keeps it up.
fn never_ready() -> impl Strategy<Value = Observed> {
    let moment = || 0..300i64;
    let maybe = || proptest::option::of(moment());
    (maybe(), maybe(), moment(), moment(), 1..120i64).prop_map(
        |(knock, woken, unready, published, cooldown)| Observed {
            last_knock: knock.map(at),
            woken: woken.map(at),
            unready_since: at(unready),
            slices: Slices::Current {
                since: at(published),
            },
            cooldown: SignedDuration::from_secs(cooldown),
            ..broken_service()
        },
    )
}

proptest! {
    #[test]
    fn nothing_is_scaled_to_zero_unless_somebody_holds_its_traffic(observed in anything(), now in 0..400i64) {
        let plan = planned(&observed, now);
        if sleeps(&plan) {
            prop_assert!(matches!(observed.slices, Slices::Current { .. }), "slices were current before");
            prop_assert_eq!(observed.resolvers, Resolvers::Ready);
            prop_assert_eq!(observed.opinion.verdict, crate::verdict::Verdict::Idle);
            prop_assert!(!observed.paused && !observed.dry_run && observed.may_sleep);
        }
    }

    #[test]
    fn slices_are_removed_only_when_the_target_answers_or_is_let_go_or_nobody_holds(observed in anything(), now in 0..400i64) {
        let plan = planned(&observed, now);
        if plan.steps.contains(&Step::RemoveSlices) {
            let forsaken = now >= 160 && matches!(observed.resolvers, Resolvers::Gone { .. }) && !observed.blind;
            let no_service = observed.service != Service::Usable;
            prop_assert!(observed.ready_endpoints > 0 || observed.deleting_since.is_some() || forsaken || no_service);
        }
    }

    #[test]
    fn what_is_not_ready_is_not_scaled_down_while_somebody_may_wait(observed in never_ready(), now in 0..400i64) {
        if sleeps(&planned(&observed, now)) {
            let quiet = observed.cooldown.max(MINUTE);
            let is_quiet = |since: Timestamp| at(now).duration_since(since) >= quiet;
            prop_assert!(observed.last_knock.is_none_or(is_quiet));
            prop_assert!(observed.woken.is_none_or(is_quiet));
            prop_assert!(is_quiet(observed.unready_since), "or nobody listened for knocks");
        }
    }

    #[test]
    fn slices_are_kept_current_or_removed(observed in anything(), now in 0..400i64) {
        let stale = matches!(observed.slices, Slices::Stale { .. }) && observed.deleting_since.is_none();
        if stale && !matches!(observed.resolvers, Resolvers::Gone { .. }) {
            let steps = planned(&observed, now).steps;
            prop_assert!(steps.contains(&Step::PublishSlices) || steps.contains(&Step::RemoveSlices));
        }
    }

    #[test]
    fn the_mode_says_whether_slices_are_there(observed in anything(), now in 0..400i64) {
        let plan = planned(&observed, now);
        let publishes = plan.steps.contains(&Step::PublishSlices);
        let removes = plan.steps.contains(&Step::RemoveSlices);
        let published = publishes || observed.slices != Slices::Absent && !removes;
        let mode = if published { Mode::Proxy } else { Mode::Serve };
        prop_assert!(plan.mode.is_none_or(|said| said == mode), "{:?}", plan);
    }

    #[test]
    fn a_dry_run_scales_only_what_was_put_to_sleep_before_and_needs_it(observed in anything(), now in 0..400i64) {
        let plan = planned(&observed, now);
        if observed.dry_run && observed.deleting_since.is_none() {
            prop_assert!(!sleeps(&plan));
            let waits = observed.last_knock.is_some();
            let unheld = observed.resolvers != Resolvers::Ready || observed.service != Service::Usable;
            let needed = observed.slices != Slices::Absent && (waits || unheld);
            prop_assert!(needed || place_of(&plan, scales_up).is_none());
        }
    }

    #[test]
    fn what_sleeps_in_a_dry_run_is_woken_before_it_loses_its_slices(observed in anything(), now in 0..400i64) {
        let plan = planned(&observed, now);
        let removal = place_of(&plan, |step| *step == Step::RemoveSlices);
        if let Some(removal) = removal.filter(|_| may_be_down(&observed) && observed.dry_run) {
            let up = place_of(&plan, scales_up);
            prop_assert!(up.is_some_and(|up| up < removal), "{:?}", plan.steps);
        }
    }

    #[test]
    fn what_sleeps_loses_its_slices_only_if_it_is_woken_or_left_alone(observed in anything(), now in 0..400i64) {
        let plan = planned(&observed, now);
        let left = observed.paused || observed.service != Service::Usable;
        let stays = may_be_down(&observed) && !(left && observed.deleting_since.is_none());
        if stays && plan.steps.contains(&Step::RemoveSlices) {
            prop_assert!(place_of(&plan, scales_up).is_some(), "{:?}", plan.steps);
        }
    }

    #[test]
    fn the_target_never_goes_up_and_down_at_once(observed in anything(), now in 0..400i64) {
        let plan = planned(&observed, now);
        prop_assert!(!(place_of(&plan, scales_up).is_some() && sleeps(&plan)));
    }
}
