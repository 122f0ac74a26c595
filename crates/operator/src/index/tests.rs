use super::*;
use crate::readiness::Unaskable;
use elasti_core::plan::Target;
use elasti_runtime::watch::Scope;
use kube::api::DynamicObject;
use serde_json::json;

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

fn declared(name: &str, service: &str, created: &str) -> (Key, Declared) {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created},
        "spec": {
            "service": service,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": service},
        },
    }))
    .unwrap();
    (key(name), Declared::from(object))
}

fn slice(service: &str, ready: &[&str]) -> SliceFacts {
    SliceFacts {
        service: service.into(),
        ours: false,
        owner: None,
        family: "IPv4".into(),
        ending: false,
        ready: ready.iter().map(ToString::to_string).collect(),
        ports: Vec::new(),
        since: None,
    }
}

fn index() -> Index {
    Index::new(key("resolvers"), 10_000..=10_009, now())
}

fn listed<F>(all: Vec<(Key, F)>) -> Change<F> {
    Change::Listed(Scope::All, all)
}

#[test]
fn a_relist_leaves_no_ghosts() {
    let mut index = index();
    let (web, api) = (
        declared("web", "web", "2026-01-01T00:00:00Z"),
        declared("api", "api", "2026-01-01T00:00:00Z"),
    );
    index.change_declared(listed(vec![web.clone(), api]), now());
    index.change_declared(listed(vec![web]), now());
    assert!(index.declared(&key("api")).is_none());
    assert_eq!(index.owner_of_service(&key("api")), None);
    assert_eq!(index.kinds_in_use().len(), 1);
}

#[test]
fn a_relist_of_one_namespace_leaves_the_others_alone() {
    let mut index = index();
    index.change_declared(
        listed(vec![declared("web", "web", "2026-01-01T00:00:00Z")]),
        now(),
    );
    index.change_declared(
        Change::Listed(Scope::Namespace("elsewhere".into()), Vec::new()),
        now(),
    );
    assert!(index.declared(&key("web")).is_some());
}

#[test]
fn the_older_of_two_that_name_one_service_has_it() {
    let mut index = index();
    let older = declared("older", "web", "2026-01-01T00:00:00Z");
    let younger = declared("younger", "web", "2026-02-01T00:00:00Z");
    index.change_declared(listed(vec![younger.clone(), older]), now());
    let Declared::Understood(object) = younger.1 else {
        panic!("it is understood");
    };
    assert_eq!(
        index.rival_of(&key("younger"), &object),
        Some(&key("older"))
    );
    assert_eq!(index.owner_of_service(&key("web")), Some(&key("older")));

    let touched = index.change_declared(Change::Deleted(key("older")), now());
    assert!(touched.contains(&key("younger")), "it is its turn now");
    assert_eq!(index.rival_of(&key("younger"), &object), None);
}

#[test]
fn another_version_of_its_kind_is_the_same_target() {
    let mut index = index();
    let with = |name: &str, version: &str, created: &str| {
        let (key, declared) = declared(name, "shared", created);
        let Declared::Understood(object) = declared else {
            panic!("it is understood");
        };
        let mut object = ElastiService::clone(&object.whole());
        object.spec.service = name.into();
        object.spec.scale_target_ref.api_version = version.into();
        (key, object)
    };
    let (_, old) = with("older", "apps/v1", "2026-01-01T00:00:00Z");
    let (_, young) = with("younger", "apps/v1beta1", "2026-02-01T00:00:00Z");
    let (_, other) = with("other", "example.com/v1", "2026-03-01T00:00:00Z");
    let declare = |object: &ElastiService| {
        let declared = Declared::Understood(Understood::from(object.clone()));
        Change::Applied(Key::of(object), declared)
    };
    for object in [&young, &other] {
        index.change_declared(declare(object), now());
        assert_eq!(index.rival_of(&Key::of(object), object), None);
    }
    let touched = index.change_declared(declare(&old), now());
    assert!(touched.contains(&key("younger")), "it has to give way");
    assert_eq!(index.rival_of(&key("younger"), &young), Some(&key("older")));
    assert_eq!(index.rival_of(&key("other"), &other), None, "another kind");
    let kind = Kind::from(&young.spec.scale_target_ref);
    assert!(!index.is_alone_with_target(&key("younger"), &kind, "shared"));
    let touched = index.change_declared(Change::Deleted(key("older")), now());
    assert!(touched.contains(&key("younger")), "it is its turn now");
}

#[test]
fn a_pause_is_ours_only_if_it_says_what_we_write() {
    let read = |annotations: serde_json::Value| {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
        }))
        .unwrap();
        ScaledObjectFacts::from(object).autoscaler()
    };
    let (paused, replicas) = (crate::facts::PAUSED, crate::facts::PAUSED_REPLICAS);
    for (annotations, expected) in [
        (json!(null), Autoscaler::Running),
        (json!({paused: "false"}), Autoscaler::Running),
        (json!({paused: "true", replicas: "0"}), Autoscaler::Paused),
        (json!({paused: "true"}), Autoscaler::Resting),
        (json!({paused: "yes"}), Autoscaler::Resting),
        (json!({paused: "true", replicas: "3"}), Autoscaler::Pinning),
        (json!({paused: "false", replicas: "0"}), Autoscaler::Pinning),
        (json!({replicas: "3"}), Autoscaler::Pinning),
    ] {
        assert_eq!(read(annotations.clone()), expected, "{annotations}");
    }
}

#[test]
fn endpoints_touch_those_who_name_their_service() {
    let mut index = index();
    index.change_declared(
        listed(vec![declared("es", "web", "2026-01-01T00:00:00Z")]),
        now(),
    );
    let added = index.change_slices(
        Change::Applied(key("web-1"), slice("web", &["10.0.0.1"])),
        now(),
    );
    assert!(added.contains(&key("es")));
    let again = index.change_slices(
        Change::Applied(key("web-1"), slice("web", &["10.0.0.1"])),
        now(),
    );
    assert!(again.is_empty(), "nothing has changed");
    let removed = index.change_slices(Change::Deleted(key("web-1")), now());
    assert!(removed.contains(&key("es")));
    assert_eq!(index.slices_of(&key("web")).count(), 0);
}

#[test]
fn resolvers_that_come_and_go_are_noticed() {
    let mut index = index();
    assert_eq!(
        index.no_resolver_since(),
        Some(now()),
        "none is known at first"
    );
    index.change_slices(
        Change::Applied(key("r"), slice("resolvers", &["10.0.0.9"])),
        now(),
    );
    assert_eq!(index.no_resolver_since(), None);
    let later = now() + SignedDuration::from_secs(5);
    index.change_slices(
        Change::Applied(key("r"), slice("resolvers", &["10.0.0.9", "10.0.0.10"])),
        later,
    );
    assert_eq!(index.families_since(), now(), "one more of the same family");
    index.change_slices(Change::Applied(key("r"), slice("resolvers", &[])), later);
    assert_eq!(index.no_resolver_since(), Some(later));
    assert_eq!(index.families_since(), later);
}

fn deployment() -> Kind {
    Kind {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
    }
}

fn target(replicas: i32) -> TargetFacts {
    TargetFacts {
        uid: None,
        replicas: Some(replicas),
        ready: None,
        lagging: false,
        readiness: Err(Unaskable::NoTemplate),
    }
}

#[test]
fn a_pod_that_was_ready_before_a_wake_is_doomed_until_it_is_listed_no_more() {
    let (mut index, kind) = (index(), deployment());
    let own = declared("web", "web", "2026-01-01T00:00:00Z");
    index.change_declared(listed(vec![own]), now());
    index.change_kind_health(&kind, &Scope::All, &Health::Synced);
    let tell = |index: &mut Index, addresses: &[&str]| {
        let change = Change::Applied(key("web-1"), slice("web", addresses));
        index.change_slices(change, now());
        index.memory(&key("web")).doomed
    };
    tell(&mut index, &["10.0.0.1"]);
    for replicas in [1, 0, 1] {
        let change = Change::Applied(key("web"), target(replicas));
        index.change_targets(&kind, change, now());
    }
    assert_eq!(tell(&mut index, &["10.0.0.1", "10.0.0.2"]), ["10.0.0.1"]);
    assert!(tell(&mut index, &["10.0.0.2"]).is_empty());
    let back = tell(&mut index, &["10.0.0.1"]);
    assert!(back.is_empty(), "another may have its address");
}

#[test]
fn a_service_lists_pods_that_end_until_none_of_its_own_slices_does() {
    let mut index = index();
    let mut tell = |name: &str, ours: bool, ending: bool| {
        let facts = SliceFacts {
            ours,
            ending,
            ..slice("web", &[])
        };
        index.change_slices(Change::Applied(key(name), facts), now());
        index.lists_ending(&key("web"))
    };
    assert!(!tell("resolvers", true, true), "a resolver is no pod of it");
    assert!(tell("web-1", false, true));
    assert!(tell("web-2", false, false));
    assert!(!tell("web-1", false, false));
}

#[test]
fn a_service_is_listed_unevenly_while_an_address_family_has_no_pod_yet() {
    let mut index = index();
    let mut tell = |name: &str, family: &str, ready: &[&str]| {
        let facts = SliceFacts {
            family: family.into(),
            ..slice("web", ready)
        };
        index.change_slices(Change::Applied(key(name), facts), now());
        index.lists_unevenly(&key("web"))
    };
    assert!(!tell("four", "IPv4", &[]));
    assert!(!tell("six", "IPv6", &[]), "none is ready");
    assert!(tell("six", "IPv6", &["fd00::2"]));
    assert!(tell("more", "IPv4", &[]));
    assert!(
        !tell("four", "IPv4", &["10.0.0.2"]),
        "a family may have several"
    );
}

#[test]
fn a_watch_that_failed_is_known_to_have_recovered() {
    let mut index = index();
    let later = now() + SignedDuration::from_secs(9);
    let mut tell = |health: Health, at| {
        index.change_sight("Service", &Scope::All, &health, at);
        index.recovered(&key("web"))
    };
    assert_eq!(tell(Health::Synced, now()), None, "nothing was wrong");
    assert_eq!(tell(Health::Failing("away".into()), now()), None);
    assert_eq!(tell(Health::Synced, later), Some(later));
}

#[test]
fn a_target_is_missing_only_once_its_kind_is_listed() {
    let (mut index, kind) = (index(), deployment());
    assert!(matches!(
        index.target(&kind, &key("web")),
        Target::Unknown(_)
    ));
    index.change_targets(&kind, listed(vec![(key("web"), target(3))]), now());
    index.change_kind_health(&kind, &Scope::All, &Health::Synced);
    assert_eq!(
        index.target(&kind, &key("web")),
        Target::Found { replicas: 3 }
    );
    assert_eq!(index.target(&kind, &key("other")), Target::Missing);
    index.change_kind_health(&kind, &Scope::All, &Health::Failing("forbidden".into()));
    assert!(
        matches!(index.target(&kind, &key("other")), Target::Unknown(why) if why.contains("forbidden"))
    );
}

#[test]
fn nothing_is_decided_before_the_targets_were_listed_once() {
    let mut index = index();
    index.change_declared(
        listed(vec![declared("es", "web", "2026-01-01T00:00:00Z")]),
        now(),
    );
    for kind in ["ElastiService", "Service", "EndpointSlice"] {
        index.change_sight(kind, &Scope::All, &Health::Synced, now());
    }
    assert!(!index.sees(&key("es")), "it would seem to have no target");
    let kind = index.kinds_in_use().pop_first().unwrap();
    let touched = index.change_kind_health(&kind, &Scope::All, &Health::Synced);
    assert!(index.sees(&key("es")));
    assert!(touched.contains(&key("es")));
}

#[test]
fn an_object_that_cannot_be_understood_harms_no_other() {
    let mut index = index();
    let broken: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": "broken", "namespace": "shop"},
        "spec": {"service": 7},
    }))
    .unwrap();
    let web = declared("web", "web", "2026-01-01T00:00:00Z");
    index.change_declared(
        listed(vec![(key("broken"), Declared::from(broken)), web]),
        now(),
    );
    assert!(matches!(
        index.declared(&key("broken")),
        Some(Declared::Malformed(_))
    ));
    assert_eq!(index.understood().count(), 1);
}

#[test]
fn nobody_is_given_time_while_the_api_server_does_not_answer() {
    let later = now() + SignedDuration::from_secs(60);
    let mut memory = Memory {
        failures: 9,
        ..Memory::default()
    };
    memory.note_leaving(true, now());
    assert_eq!(memory.failures, 0, "it is looked at soon again");
    memory.note_leaving(true, later);
    assert_eq!(memory.leaving_since, Some(now()));
    let answer = |code| {
        let status = kube::core::Status::failure("no", "no").with_code(code);
        apply::Error::Kube(kube::Error::Api(status.boxed()))
    };
    let refusal = answer(403);
    memory.note_outcome(Some(&refusal), later);
    memory.note_outcome(Some(&refusal), later);
    assert_eq!(memory.leaving_since, Some(now()), "an answer is an answer");
    assert_eq!(memory.failures, 2);
    for busy in [429, 503] {
        memory.leaving_since = Some(now());
        memory.note_outcome(Some(&answer(busy)), later);
        assert_eq!(memory.leaving_since, Some(later), "{busy} is none");
        assert!(!answer(busy).is_refusal());
    }
    memory.note_outcome(Some(&refusal), later);
    for _ in 0..9 {
        memory.note_outcome(Some(&apply::Error::Timeout), later);
    }
    assert_eq!((memory.leaving_since, memory.failures), (Some(later), 9));
    memory.note_outcome(Some(&refusal), later);
    assert_eq!(memory.failures, 1, "what is back may refuse at first");
    memory.note_leaving(false, later);
    assert_eq!(memory.leaving_since, None);
}

#[test]
fn a_new_leader_has_not_listened_for_knocks_before_it_led() {
    let mut index = index();
    let web = declared("web", "web", "2026-01-01T00:00:00Z");
    index.change_declared(listed(vec![web]), now());
    let led_before = |memory: &mut Memory| memory.unready_since = Some(now());
    index.remember(&key("web"), led_before);
    index.take_office();
    assert_eq!(index.memory(&key("web")).unready_since, None);
}
