use super::*;
use elasti_api::AttachedTarget;
use elasti_core::{
    plan::{Absence, Autoscaler, Following, Former, Resolvers, Service, Slices, plan},
    verdict::Opinion,
};
use jiff::SignedDuration;
use serde_json::json;

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn observed() -> Observed {
    Observed {
        created: now(),
        deleting_since: None,
        finalizer: true,
        paused: false,
        dry_run: false,
        min_replicas: 1,
        cooldown: SignedDuration::from_secs(60),
        rival: None,
        former: Former::default(),
        releasing_since: None,
        attached: false,
        service: Service::Usable,
        private_service: Following::Current,
        target: Target::Found { replicas: 0 },
        ready_endpoints: 0,
        slices: Slices::Absent,
        resolvers: Resolvers::Ready,
        unproven_resolvers: false,
        surplus_ports: false,
        autoscaler: Autoscaler::None,
        opinion: Opinion::unknown("NoTriggers", ""),
        may_sleep: true,
        last_active: None,
        unready_since: now(),
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

/// It has worked on `old`, and is to work on `new`.
fn object() -> ElastiService {
    let target = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    serde_json::from_value(json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"service": "new", "scaleTargetRef": target("new")},
        "status": {
            "mode": "serve",
            "ports": [{"port": 80, "resolverPort": 10_000}],
            "attached": {"service": "old", "target": target("old"), "scaledObject": "old"},
        },
    }))
    .unwrap()
}

fn told(observed: &Observed, undone: &[Step]) -> ElastiServiceStatus {
    told_of(&object(), observed, undone)
}

fn told_of(object: &ElastiService, observed: &Observed, undone: &[Step]) -> ElastiServiceStatus {
    status(&Report {
        object,
        observed,
        plan: &plan(observed, now(), Default::default()),
        routes: &Routes::default(),
        readiness: None,
        failure: None,
        undone,
        blindness: None,
        first_knock: None,
        now: now(),
    })
}

fn names(attached: Option<Attached>) -> Option<(String, String, Option<String>)> {
    let Attached {
        service,
        target: AttachedTarget { name, .. },
        scaled_object,
    } = attached?;
    Some((service, name, scaled_object))
}

#[test]
fn what_could_not_be_released_stays_ours_and_the_rest_moves_on() {
    let (old, new) = ("old".to_owned(), "new".to_owned());
    let all = told(&observed(), &[]);
    assert_eq!(names(all.attached), Some((new.clone(), new.clone(), None)));
    assert_eq!(all.ports, []);
    let target = told(&observed(), &[Step::ReleaseTarget]);
    assert_eq!(
        names(target.attached),
        Some((new.clone(), old.clone(), None))
    );
    assert_eq!(target.ports, [], "nor does the service wait for it");
    for step in SERVICE {
        let service = told(&observed(), &[step]);
        assert_eq!(
            names(service.attached),
            Some((old.clone(), new.clone(), None))
        );
        assert_eq!(service.ports.len(), 1, "resolvers listen there still");
    }
    let autoscaler = told(&observed(), &[Step::ReleaseAutoscaler]);
    assert_eq!(
        names(autoscaler.attached),
        Some((new.clone(), new, Some(old)))
    );
}

#[test]
fn the_younger_of_two_rivals_forgets_what_it_had_when_all_is_released() {
    let ousted = Observed {
        rival: Some("shop/older".into()),
        ..observed()
    };
    assert!(told(&ousted, &[Step::ReleaseTarget]).attached.is_some());
    assert!(told(&ousted, &[]).attached.is_none());
}

#[test]
fn proxy_is_said_when_the_slices_are_written_whatever_else_failed() {
    assert_eq!(told(&observed(), &[]).mode, Some(Mode::Proxy));
    let other = told(&observed(), &[Step::ReleaseTarget]);
    assert_eq!(other.mode, Some(Mode::Proxy));
    let unwritten = told(&observed(), &[Step::PublishSlices]);
    assert_eq!(unwritten.mode, Some(Mode::Serve));
}

#[test]
fn without_resolvers_it_is_said_what_becomes_of_those_who_sleep() {
    let gone = |why| Resolvers::Gone { since: now(), why };
    for resolvers in [
        gone(Absence::NoneReady),
        gone(Absence::OtherFamily),
        Resolvers::Partly { since: now() },
    ] {
        let message = |paused, dry_run, slices| {
            let observed = Observed {
                resolvers,
                paused,
                dry_run,
                slices,
                ..observed()
            };
            let mut conditions = told(&observed, &[]).conditions.into_iter();
            let found = conditions.find(|condition| condition.type_ == "ResolverAvailable");
            found.unwrap().message
        };
        let published = Slices::Current { since: now() };
        let (woken, paused) = ("what sleeps is woken", "left asleep, since spec.paused");
        let lost = matches!(resolvers, Resolvers::Gone { .. });
        for (message, wanted) in [
            (message(false, false, published), woken),
            (message(true, false, published), paused),
            (
                message(true, true, published),
                if lost { woken } else { paused },
            ),
            (
                message(false, true, Slices::Absent),
                "left asleep, since spec.dryRun",
            ),
        ] {
            assert!(message.contains(wanted), "{message}");
        }
    }
}

#[test]
fn a_wake_that_was_given_up_is_none() {
    let mut object = object();
    let begun = LastWake {
        time: Time(now()),
        duration: None,
    };
    object.status.as_mut().unwrap().last_wake = Some(begun.clone());
    let starting = Observed {
        target: Target::Found { replicas: 1 },
        ..observed()
    };
    let waking = told_of(&object, &starting, &[]);
    assert_eq!(waking.last_wake, Some(begun));
    let asleep = told_of(&object, &observed(), &[]);
    assert_eq!(
        asleep.last_wake, None,
        "or the next one would seem to have begun with it"
    );
}
