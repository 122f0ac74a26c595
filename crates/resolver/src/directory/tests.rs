use super::*;
use crate::room::{Busy, Turned};
use elasti_api::names::PRIVATE_LABEL;
use elasti_runtime::watch::Scope;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    sync::mpsc,
    task::yield_now,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

fn directory() -> Directory {
    dialling(Dial::Endpoints)
}

fn dialling(dial: Dial) -> Directory {
    measured(dial, &prometheus::Registry::new())
}

fn measured(dial: Dial, registry: &prometheus::Registry) -> Directory {
    let house = House::new(10, mpsc::channel(1).0);
    let defaults = Limits {
        patience: Duration::from_secs(600),
        seats: 100,
    };
    let metrics = Metrics::new(registry).unwrap();
    Directory::new(house, defaults, dial, Release::default(), Arc::new(metrics))
}

fn declared(name: &str, created: &str, spec: &Value) -> (Key, Arc<Declared>) {
    let mut full = json!({
        "service": "web",
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    full.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created},
        "spec": full,
        "status": {"mode": "proxy", "ports": [{"port": 80, "resolverPort": 10_080}]},
    }))
    .unwrap();
    (
        Key::new("shop", name),
        Arc::new(Declared::read(object).unwrap()),
    )
}

fn ports() -> Change<Ports> {
    called(&[(80, "http")])
}

/// The private service has these ports.
fn called(ports: &[(u16, &str)]) -> Change<Ports> {
    let port = |(number, name): &(u16, &str)| Port {
        name: (*name).into(),
        number: *number,
        speaks: crate::route::Speaks::Anything,
    };
    let key = Key::new("shop", &names::private_service("web"));
    let ports = Ports {
        service: "web".into(),
        ports: ports.iter().map(port).collect(),
        cluster_ips: vec!["10.96.0.7".parse().unwrap()],
    };
    Change::Applied(key, ports)
}

fn slice(pods: &[(&str, bool)]) -> Ready {
    let pod = |(address, ready): &(&str, bool)| Listed {
        address: address.parse().unwrap(),
        uid: "one".into(),
        ready: *ready,
    };
    Ready {
        service: "web".into(),
        ports: vec![("http".into(), 8080)],
        pods: pods.iter().map(pod).collect(),
    }
}

fn ready(addresses: &[&str]) -> Ready {
    let pods: Vec<_> = addresses.iter().map(|address| (*address, true)).collect();
    slice(&pods)
}

/// Not ready, as far as Kubernetes knows.
fn starting(address: &str) -> Ready {
    slice(&[(address, false)])
}

/// The pod at this address, as the room knows it.
fn pod(room: &Room, address: &str) -> Arc<Pod> {
    let known = room.starting();
    let known = known.borrow();
    known.pods[&address.parse::<IpAddr>().unwrap()].clone()
}

/// With what its pods are asked, at these ports.
fn asked(web: &Declared, ports: &[i32]) -> Arc<Declared> {
    let check = |port: &i32| ReadinessCheck {
        container: "web".into(),
        startup: false,
        port: *port,
        http_get: None,
        grpc: None,
        initial_delay_seconds: 0,
        timeout_seconds: 1,
        success_threshold: 1,
        failure_threshold: 3,
    };
    Arc::new(Declared {
        checks: Some(ports.iter().map(check).collect()),
        ..web.clone()
    })
}

#[tokio::test]
async fn a_pod_that_passes_is_reached_before_kubernetes_knows_until_it_fails() {
    let directory = directory();
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key, asked(&web, &[8080])));
    let room = directory.room("shop", "web").unwrap();
    let slice = Key::new("shop", "web-abc");
    directory.change_ready(Change::Applied(slice.clone(), starting("10.0.0.1")));
    assert!(!room.is_awake());
    let one = pod(&room, "10.0.0.1");
    directory.passed(&room, &one, 9090);
    assert!(!room.is_awake(), "that port is not the service's");
    directory.passed(&room, &one, 8080);
    let reached = room.visit().endpoint("http").await.unwrap();
    assert_eq!(reached.address().to_string(), "10.0.0.1:8080");
    directory.failed(&room, &one);
    assert!(!room.is_awake(), "it has to pass again");
    directory.passed(&room, &one, 8080);
    assert!(room.is_awake());
    directory.change_ready(Change::Applied(slice.clone(), ready(&["10.0.0.1"])));
    directory.failed(&room, &one);
    assert!(room.is_awake(), "what Kubernetes says stands");
    directory.change_ready(Change::Applied(slice, ready(&[])));
    directory.passed(&room, &one, 8080);
    assert!(!room.is_awake(), "it ends");
}

#[tokio::test]
async fn nobody_looks_after_the_pods_of_a_service_that_nobody_speaks_for() {
    let directory = directory();
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key.clone(), asked(&web, &[8080])));
    let room = directory.room("shop", "web").unwrap();
    let slice = Key::new("shop", "web-abc");
    directory.change_ready(Change::Applied(slice, starting("10.0.0.1")));
    directory.passed(&room, &pod(&room, "10.0.0.1"), 8080);
    assert!(!room.starting().borrow().is_over());
    directory.change_declared(Change::Deleted(key));
    assert!(room.starting().borrow().is_over());
}

#[tokio::test]
async fn whoever_passed_is_known_no_more_when_anything_is_new_about_it() {
    let news: [fn(&mut Ready); 2] = [
        |slice| slice.pods[0].uid = "another at its address".into(),
        |slice| slice.ports[0].1 = 9090,
    ];
    for changes in news {
        let directory = directory();
        let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
        directory.change_declared(Change::Applied(key, asked(&web, &[8080])));
        let room = directory.room("shop", "web").unwrap();
        let (key, mut slice) = (Key::new("shop", "web-abc"), starting("10.0.0.1"));
        directory.change_ready(Change::Applied(key.clone(), slice.clone()));
        directory.passed(&room, &pod(&room, "10.0.0.1"), 8080);
        directory.change_ready(Change::Applied(key.clone(), slice.clone()));
        assert!(room.is_awake(), "nothing is new");
        changes(&mut slice);
        directory.change_ready(Change::Applied(key, slice.clone()));
        assert!(!room.is_awake(), "{slice:?}");
        assert_eq!(pod(&room, "10.0.0.1").seen.ports, [slice.ports[0].1]);
        assert!(pod(&room, "10.0.0.1").checks().is_some());
    }
}

#[tokio::test]
async fn pods_of_another_template_are_left_to_kubernetes() {
    for before in [Some(8080), None] {
        let directory = directory();
        let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
        let old = before.map_or(web.clone(), |port| asked(&web, &[port]));
        directory.change_declared(Change::Applied(key.clone(), old));
        let room = directory.room("shop", "web").unwrap();
        let name = Key::new("shop", "web-abc");
        let both = slice(&[("10.0.0.1", false), ("10.0.0.2", true)]);
        directory.change_ready(Change::Applied(name.clone(), both));
        if before.is_some() {
            directory.passed(&room, &pod(&room, "10.0.0.1"), 8080);
        }
        directory.change_declared(Change::Applied(key, asked(&web, &[9090])));
        assert!(
            !pod(&room, "10.0.0.1").has_passed(),
            "what is asked no more"
        );
        let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let pods = slice(&all.map(|address| (address, false)));
        directory.change_ready(Change::Applied(name.clone(), pods.clone()));
        let is_asked = |address: &&str| pod(&room, address).checks().is_some();
        let asked: Vec<_> = all.into_iter().filter(is_asked).collect();
        assert_eq!(asked, ["10.0.0.3"], "and not one that was ready, either");
        let mut pods = pods;
        pods.pods[0].uid = "another".into();
        directory.change_ready(Change::Applied(name, pods));
        assert!(is_asked(&"10.0.0.1"), "that one is new");
    }
}

#[tokio::test]
async fn nobody_is_asked_where_kubernetes_shall_decide() {
    let directory = directory();
    let release = json!({"hold": {"release": "KubernetesReady"}});
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &release);
    directory.change_declared(Change::Applied(key, asked(&web, &[8080])));
    let slice = Key::new("shop", "web-abc");
    directory.change_ready(Change::Applied(slice, starting("10.0.0.1")));
    let room = directory.room("shop", "web").unwrap();
    assert!(pod(&room, "10.0.0.1").checks().is_none());
}

#[test]
fn pods_that_end_and_ports_of_other_protocols_are_left_out() {
    let endpoint = |address: &str, ready: bool, terminating: bool| {
        json!({
            "addresses": [address],
            "conditions": {"ready": ready, "terminating": terminating},
            "targetRef": {"kind": "Pod", "uid": format!("of {address}")},
        })
    };
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"labels": {(PRIVATE_LABEL): "web"}},
        "addressType": "IPv4",
        "endpoints": [
            endpoint("10.0.0.1", true, false),
            endpoint("10.0.0.2", false, false),
            endpoint("10.0.0.3", false, true),
        ],
        "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "http", "port": 8080, "protocol": "TCP"},
            {"name": "plain", "port": 9090},
        ],
    }))
    .unwrap();
    let known = Ready::from(slice);
    let pod = |address: &str, ready| Listed {
        address: address.parse().unwrap(),
        uid: format!("of {address}").into(),
        ready,
    };
    assert_eq!(known.pods, [pod("10.0.0.1", true), pod("10.0.0.2", false)]);
    let ports = [("http".into(), 8080), ("plain".into(), 9090)];
    assert_eq!(known.ports, ports);
}

#[tokio::test]
async fn a_routed_port_leads_to_the_room_of_its_service() {
    let directory = directory();
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key.clone(), web));
    directory.change_ports(ports());
    let table = directory.table();
    assert_eq!(&*table.by_port[&10_080].port, "http");
    directory.change_declared(Change::Deleted(key));
    assert!(directory.table().by_port.is_empty(), "nobody speaks for it");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_at_a_port_that_is_renamed_reaches_it_in_whatever_order_things_are_told() {
    for order in [["ports", "ready"], ["ready", "ports"]] {
        let directory = directory();
        let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
        directory.change_declared(Change::Applied(key, web));
        directory.change_ports(called(&[(80, "")]));
        let way = directory.table().by_port[&10_080].clone();
        let mut visit = way.visit();
        let renamed = async {
            for told in order {
                yield_now().await;
                if told == "ports" {
                    directory.change_ports(called(&[(80, "http"), (81, "admin")]));
                } else {
                    let slice = Key::new("shop", "web-abc");
                    let mut ready = ready(&["10.0.0.1"]);
                    ready.ports.push(("admin".into(), 9090));
                    directory.change_ready(Change::Applied(slice, ready));
                }
            }
        };
        let (reached, ()) = tokio::join!(visit.endpoint(&way.port), renamed);
        assert_eq!(reached.unwrap().address().port(), 8080, "{order:?}");
        let late = way.visit().endpoint(&way.port).await.unwrap();
        assert_eq!(
            late.address().port(),
            8080,
            "{order:?}: on a kept connection"
        );
    }
}

#[tokio::test]
async fn a_port_that_gets_another_number_is_found_by_its_name() {
    let directory = directory();
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key, web));
    directory.change_ports(ports());
    let way = directory.table().by_port[&10_080].clone();
    directory.change_ports(called(&[(81, "http")]));
    let slice = Key::new("shop", "web-abc");
    directory.change_ready(Change::Applied(slice, ready(&["10.0.0.1"])));
    assert!(way.visit().endpoint(&way.port).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_when_an_elasti_service_is_made_anew_waits_in_the_new_one() {
    let directory = directory();
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key.clone(), web.clone()));
    let room = directory.room("shop", "web").unwrap();
    let mut visit = room.visit();
    drop(room);
    let anew = async {
        yield_now().await;
        directory.change_declared(Change::Deleted(key.clone()));
        sleep(Duration::from_secs(5)).await;
        directory.change_declared(Change::Applied(key, web));
        sleep(Duration::from_secs(60)).await;
        let slice = Key::new("shop", "web-abc");
        directory.change_ready(Change::Applied(slice, ready(&["10.0.0.1"])));
    };
    let (reached, ()) = tokio::join!(visit.endpoint("http"), anew);
    assert!(reached.is_ok(), "{reached:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_known_of_a_service_goes_with_its_elasti_service() {
    let directory = directory();
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key.clone(), web));
    let slice = Key::new("shop", "web-abc");
    directory.change_ready(Change::Applied(slice, ready(&["10.0.0.1"])));
    let room = directory.room("shop", "web").unwrap();
    let guest = room.guest(&CancellationToken::new());
    assert!(room.visit().endpoint("http").await.is_ok());
    directory.change_declared(Change::Deleted(key));
    assert!(guest.is_cancelled(), "clients are shown out");
    let begun = Instant::now();
    let turned = room.visit().endpoint("http").await.err();
    assert_eq!(turned, Some(Turned::Gone), "nobody is sent where it was");
    assert_eq!(begun.elapsed(), Duration::from_secs(10), "it may come back");
    let turned = room.visit().endpoint("http").await.err();
    assert_eq!(turned, Some(Turned::Gone));
    assert_eq!(begun.elapsed(), Duration::from_secs(10), "it has not");
}

#[test]
fn what_was_measured_of_a_service_goes_with_the_last_who_is_there() {
    let registry = prometheus::Registry::new();
    let directory = measured(Dial::Endpoints, &registry);
    let (web, mut declared) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    Arc::make_mut(&mut declared).mode = None;
    let namesake = Key::new("other", "web");
    for key in [&web, &namesake] {
        directory.change_declared(Change::Applied(key.clone(), declared.clone()));
        let room = directory.room(&key.namespace, "web").unwrap();
        let (method, took) = (http::Method::GET, Duration::ZERO);
        let metrics = &directory.metrics;
        metrics.answered(&room, &method, http::StatusCode::OK, took);
        metrics.held(&room, Some(took));
        metrics.found(true, Some(&room));
        metrics.switched("web", true);
    }
    let namespaces = || {
        let families = registry.gather();
        let metrics = families.iter().flat_map(|family| family.get_metric());
        let labels = metrics.flat_map(|metric| metric.get_label());
        let namespaces = labels.filter(|label| label.name() == "namespace");
        let values = namespaces.map(|label| label.value().to_owned());
        values
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    };
    let guest = directory.room("shop", "web").unwrap();
    directory.change_declared(Change::Deleted(web));
    directory.tidy();
    assert_eq!(namespaces(), ["other", "shop"], "somebody is still there");
    drop(guest);
    directory.tidy();
    assert_eq!(namespaces(), ["other"]);
    assert_eq!(
        registry.gather().len(),
        4,
        "what has no namespace is the other's, too"
    );
    directory.change_declared(Change::Deleted(namesake));
    directory.tidy();
    assert!(registry.gather().is_empty());
}

#[tokio::test]
async fn ready_endpoints_reach_the_room_at_once_in_whatever_order_things_are_told() {
    let directory = directory();
    let slice = Key::new("shop", "web-abc");
    directory.change_ready(Change::Applied(slice.clone(), ready(&["10.0.0.1"])));
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key, web));
    let room = directory.room("shop", "web").unwrap();
    assert!(room.is_awake());
    directory.change_ready(Change::Applied(slice, ready(&[])));
    assert!(!room.is_awake());
    directory.change_ready(Change::Listed(Scope::All, Vec::new()));
    assert!(!room.is_awake(), "a re-list leaves no ghosts");
}

#[test]
fn headers_of_probes_are_for_those_who_ask_them() {
    let (_, web) = declared("web", "2024-01-01T00:00:00Z", &json!({}));
    let mut object = json!(&*web.object);
    let header = json!({"name": "Authorization", "value": "secret"});
    let check = json!({
        "container": "web", "port": 80, "timeoutSeconds": 1, "successThreshold": 1,
        "httpGet": {"path": "/", "headers": [header]},
    });
    object["status"]["readiness"] = json!({"checks": [check]});
    let declared = Declared::read(serde_json::from_value(object).unwrap()).unwrap();
    let shown = serde_json::to_string(&*declared.object).unwrap();
    assert!(!shown.contains("secret"), "{shown}");
    let asked = declared.checks.unwrap();
    assert_eq!(
        asked[0].http_get.as_ref().unwrap().headers[0].value,
        "secret"
    );
}

#[test]
fn credentials_of_triggers_are_not_kept() {
    let metadata = json!({"query": "up", "threshold": "1", "headers": {"Authorization": "secret"}});
    let triggers = json!({"triggers": [{"type": "prometheus", "metadata": metadata}]});
    let (_, declared) = declared("web", "2024-01-01T00:00:00Z", &triggers);
    let shown = serde_json::to_string(&*declared.object).unwrap();
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_service_may_have_its_own_patience_and_seats() {
    let directory = directory();
    let hold = json!({"hold": {"timeout": "2m", "maxPending": 1}});
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &hold);
    directory.change_declared(Change::Applied(key.clone(), web));
    let room = directory.room("shop", "web").unwrap();
    let begun = Instant::now();
    let (mut first, mut second) = (room.visit(), room.visit());
    let turned = async { tokio::join!(first.endpoint("http"), second.endpoint("http")) };
    let (first, second) = turned.await;
    assert_eq!(first.err(), Some(Turned::Late));
    assert_eq!(second.err(), Some(Turned::Full));
    assert_eq!(begun.elapsed(), Duration::from_secs(120));
    let (_, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key, web));
    let patience = room.visit().deadline() - Instant::now();
    assert_eq!(patience, Duration::from_secs(600), "that of the resolver");
}

#[tokio::test]
async fn the_older_of_two_speaks_for_a_service() {
    let directory = directory();
    let (young, second) = declared(
        "young",
        "2026-02-01T00:00:00Z",
        &json!({"hold": {"maxPending": 1}}),
    );
    let (old, first) = declared(
        "old",
        "2026-01-01T00:00:00Z",
        &json!({"hold": {"maxPending": 2}}),
    );
    directory.change_declared(Change::Applied(young, second));
    directory.change_declared(Change::Applied(old.clone(), first));
    assert_eq!(directory.rooms()[0].1.seats, Some(2));
    directory.change_declared(Change::Deleted(old));
    assert_eq!(directory.rooms()[0].1.seats, Some(1));
}

#[tokio::test]
async fn an_address_in_two_slices_is_one_endpoint() {
    let directory = directory();
    let (first, second) = (["10.0.0.1", "10.0.0.2"], ["10.0.0.2", "10.0.0.1"]);
    for (slice, addresses) in [("web-a", first), ("web-b", second)] {
        let slice = Key::new("shop", slice);
        directory.change_ready(Change::Applied(slice, ready(&addresses)));
    }
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key, web));
    let room = directory.room("shop", "web").unwrap();
    let mut reached = Vec::new();
    for _ in 0..4 {
        reached.push(room.visit().endpoint("http").await.unwrap());
    }
    let addresses: Vec<_> = reached.iter().map(Busy::address).collect();
    assert_ne!(addresses[0], addresses[1], "each in its turn");
    assert_eq!(addresses[..2], addresses[2..], "each in its turn");
}

#[tokio::test]
async fn a_mesh_is_given_the_private_service_once_an_endpoint_is_ready() {
    let directory = dialling(Dial::ClusterIp);
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key, web));
    directory.change_ports(ports());
    let room = directory.room("shop", "web").unwrap();
    assert!(!room.is_awake(), "a service alone is nobody");
    let slice = Key::new("shop", "web-abc");
    let two = ready(&["10.0.0.1", "10.0.0.2"]);
    directory.change_ready(Change::Applied(slice.clone(), two));
    let reached = room.visit().endpoint("http").await.unwrap();
    assert_eq!(reached.address().to_string(), "10.96.0.7:80");
    directory.change_ready(Change::Applied(slice, ready(&[])));
    assert!(!room.is_awake(), "its pods are gone");
}

#[tokio::test]
async fn a_mesh_is_served_in_whatever_order_things_are_told() {
    let directory = dialling(Dial::ClusterIp);
    let slice = Key::new("shop", "web-abc");
    directory.change_ready(Change::Applied(slice, ready(&["10.0.0.1"])));
    let (key, web) = declared("web", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key, web));
    let room = directory.room("shop", "web").unwrap();
    assert!(!room.is_awake(), "where is it?");
    directory.change_ports(ports());
    assert!(room.is_awake());
}

#[test]
fn a_port_stays_open_while_its_private_service_is_made_anew() {
    let directory = directory();
    let (key, es) = declared("es", "2026-01-01T00:00:00Z", &json!({}));
    directory.change_declared(Change::Applied(key.clone(), es.clone()));
    directory.change_ports(ports());
    let private = Key::new("shop", &names::private_service("web"));
    directory.change_ports(Change::Deleted(private));
    assert!(directory.table().by_port.contains_key(&10_080));
    directory.change_ports(Change::Listed(Scope::All, Vec::new()));
    assert!(directory.table().by_port.contains_key(&10_080));
    directory.change_declared(Change::Deleted(key.clone()));
    assert!(directory.table().by_port.is_empty());

    directory.change_ports(ports());
    directory.change_declared(Change::Applied(key.clone(), es.clone()));
    directory.change_declared(Change::Deleted(key.clone()));
    directory.change_declared(Change::Applied(key, es));
    let by_port = directory.table().by_port;
    assert!(
        by_port.contains_key(&10_080),
        "its private service was there all the time"
    );
}
