use super::*;
use crate::{
    directory::{Declared, Dial, Listed, Ready},
    knock::{self, Operators},
    metrics::Metrics,
    room::{House, Limits, Visit},
};
use elasti_api::{HttpCheck, Release};
use elasti_runtime::watch::{Change, Key};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicUsize, Ordering},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

/// It would have come by then.
const MOMENT: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(10);
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A connection.
pub(super) fn check(port: u16) -> ReadinessCheck {
    ReadinessCheck {
        container: "web".into(),
        startup: false,
        port: port.into(),
        http_get: None,
        grpc: None,
        initial_delay_seconds: 0,
        timeout_seconds: 1,
        success_threshold: 1,
        failure_threshold: 3,
    }
}

/// A request that may take long.
fn request(port: u16) -> ReadinessCheck {
    ReadinessCheck {
        timeout_seconds: 60,
        http_get: Some(HttpCheck {
            tls: false,
            path: "/ready".into(),
            headers: Vec::new(),
        }),
        ..check(port)
    }
}

/// A sleeping service that somebody knocks for.
struct Stage {
    directory: Arc<Directory>,
    room: Arc<Room>,
    /// Where its pods serve.
    port: u16,
    _work: AbortOnDropHandle<()>,
}

// === impl Stage ===

impl Stage {
    fn set(port: u16, checks: &[ReadinessCheck]) -> Self {
        let (knocks, rooms) = mpsc::channel(1);
        let limits = Limits {
            patience: Duration::from_secs(60),
            seats: 10,
        };
        let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap());
        let directory = Arc::new(Directory::new(
            House::new(10, knocks),
            limits,
            Dial::Endpoints,
            Release::EarliestReady,
            metrics.clone(),
        ));
        let operators = Operators::new(watch::channel(Vec::new()).1, None, metrics);
        let work = knock::work(rooms, Arc::new(operators), directory.clone());
        declare(&directory, checks);
        Self {
            room: directory.room("shop", "web").unwrap(),
            directory,
            port,
            _work: AbortOnDropHandle::new(tokio::spawn(work)),
        }
    }

    /// One pod, here, and perhaps others.
    fn starts(&self, ready: bool, others: &[IpAddr]) {
        let pod = |address: IpAddr, ready| Listed {
            address,
            uid: address.to_string().into(),
            ready,
        };
        let others = others.iter().map(|other| pod(*other, false));
        let slice = Ready {
            service: "web".into(),
            ports: vec![("http".into(), self.port)],
            pods: others.chain([pod(HOME, ready)]).collect(),
        };
        let change = Change::Applied(Key::new("shop", "web-abc"), slice);
        self.directory.change_ready(change);
    }

    fn visit(&self) -> AbortOnDropHandle<(Visit, crate::room::Busy)> {
        let mut visit = self.room.visit();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let busy = visit.endpoint("http").await.unwrap();
            (visit, busy)
        }))
    }

    async fn falls_asleep(&self) {
        let mut starting = self.room.starting();
        let gone = starting.wait_for(|now| !now.pods.values().any(|pod| pod.has_passed()));
        drop(timeout(LATEST, gone).await.unwrap());
        assert!(!self.room.is_awake());
    }
}

fn declare(directory: &Directory, checks: &[ReadinessCheck]) {
    let object = serde_json::from_value(json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "service": "web",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
        "status": {"mode": "proxy", "readiness": {"checks": checks}},
    }));
    let declared = Arc::new(Declared::read(object.unwrap()).unwrap());
    directory.change_declared(Change::Applied(Key::new("shop", "web"), declared));
}

async fn door() -> (TcpListener, u16) {
    let listener = TcpListener::bind((HOME, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn comes(listener: &TcpListener) -> Option<TcpStream> {
    let come = timeout(MOMENT, listener.accept()).await.ok()?;
    Some(come.unwrap().0)
}

/// Resolves when whoever asks has given up.
async fn ends(mut stream: TcpStream) {
    let mut asked = Vec::new();
    let asked = stream.read_to_end(&mut asked);
    timeout(LATEST, asked).await.unwrap().unwrap();
}

#[tokio::test]
async fn nobody_is_asked_while_nobody_waits_and_not_once_more_when_the_last_has_left() {
    let ((health, asked), (_target, port)) = (door().await, door().await);
    let stage = Stage::set(port, &[request(asked)]);
    stage.starts(false, &[]);
    assert!(comes(&health).await.is_none());
    let visits = [stage.visit(), stage.visit()];
    let (question, _) = health.accept().await.unwrap();
    let [first, last] = visits;
    drop(first);
    assert!(comes(&health).await.is_none(), "one at a time");
    drop(last);
    ends(question).await;
    assert!(comes(&health).await.is_none());
    let _visit = stage.visit();
    health.accept().await.unwrap();
}

#[tokio::test]
async fn others_than_the_one_that_passed_are_asked_while_somebody_waits() {
    let ((health, asked), (_target, port)) = (door().await, door().await);
    let other = IpAddr::from([127, 0, 0, 2]);
    let hesitant = TcpListener::bind((other, asked)).await.unwrap();
    let stage = Stage::set(port, &[request(asked)]);
    stage.starts(false, &[other]);
    let visit = stage.visit();
    let (question, _) = hesitant.accept().await.unwrap();
    let (mut quick, _) = health.accept().await.unwrap();
    quick
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .await
        .unwrap();
    timeout(LATEST, visit).await.unwrap().unwrap();
    ends(question).await;
    health.accept().await.unwrap();
    assert!(comes(&hesitant).await.is_none());
}

#[tokio::test]
async fn one_pod_is_asked_by_one() {
    let ((health, asked), (_target, port)) = (door().await, door().await);
    let stage = Stage::set(port, &[request(asked)]);
    stage.starts(false, &[]);
    let _visits = [stage.visit(), stage.visit()];
    let (_question, _) = health.accept().await.unwrap();
    stage.starts(false, &["127.0.0.2".parse().unwrap()]);
    stage.starts(false, &[]);
    assert!(comes(&health).await.is_none());
}

#[tokio::test]
async fn other_probes_than_it_was_made_with_are_not_for_a_pod() {
    let ((old, port), (new, other)) = (door().await, door().await);
    let stage = Stage::set(port, &[request(port)]);
    stage.starts(false, &[]);
    let _visit = stage.visit();
    let (question, _) = old.accept().await.unwrap();
    declare(&stage.directory, &[request(other)]);
    ends(question).await;
    assert!(comes(&new).await.is_none());
    assert!(comes(&old).await.is_none());
}

#[tokio::test]
async fn one_that_passes_and_takes_no_connections_is_waited_for_without_haste() {
    let ((health, asked), (target, port)) = (door().await, door().await);
    drop(target);
    let stage = Stage::set(port, &[check(asked)]);
    stage.starts(false, &[]);
    let mut visit = stage.visit();
    let mut asked = 0;
    let second = async {
        loop {
            health.accept().await.unwrap();
            asked += 1;
        }
    };
    let waits = async {
        tokio::select! {
            reached = &mut visit => drop(reached.unwrap()),
            () = second => {}
        }
    };
    assert!(timeout(Duration::from_secs(1), waits).await.is_err());
    assert!((1..=6).contains(&asked), "asked {asked} times in a second");
    let _target = TcpListener::bind((HOME, port)).await.unwrap();
    timeout(LATEST, visit).await.unwrap().unwrap();
}

#[tokio::test]
async fn one_that_refuses_whom_it_was_sent_has_to_pass_again_and_not_at_once() {
    let (_target, port) = door().await;
    let stage = Stage::set(port, &[]);
    stage.starts(false, &[]);
    let (mut visit, busy) = timeout(LATEST, stage.visit()).await.unwrap().unwrap();
    visit.failed(&busy).unwrap();
    assert!(stage.room.is_awake(), "that was no fault of its own");
    let begun = Instant::now();
    busy.shun();
    visit.failed(&busy).unwrap();
    stage.falls_asleep().await;
    timeout(LATEST, stage.visit()).await.unwrap().unwrap();
    assert!(begun.elapsed() >= LONGEST, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn one_that_fails_before_kubernetes_knows_it_is_sent_back() {
    let ((health, asked), (_target, port)) = (door().await, door().await);
    let status = Mutex::new("200 OK");
    let refused = AtomicUsize::new(0);
    let serve = async {
        loop {
            let (mut stream, _) = health.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1_024]).await.unwrap();
            let status = *status.lock();
            refused.fetch_add(usize::from(status != "200 OK"), Ordering::Relaxed);
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    let stage = Stage::set(port, &[request(asked)]);
    stage.starts(false, &[]);
    let wakes = async {
        timeout(LATEST, stage.visit()).await.unwrap().unwrap();
        *status.lock() = "503 Not Now";
        stage.falls_asleep().await;
        assert_eq!(refused.load(Ordering::Relaxed), 3, "as often as it may not");
        *status.lock() = "200 OK";
        timeout(LATEST, stage.visit()).await.unwrap().unwrap();
    };
    tokio::select! {
        () = wakes => {}
        () = serve => {}
    }
    drop(health);
    stage.falls_asleep().await;
}

#[tokio::test]
async fn one_that_passed_is_looked_after_until_kubernetes_does() {
    let ((health, asked), (_target, port)) = (door().await, door().await);
    let stage = Stage::set(port, &[check(asked)]);
    stage.starts(false, &[]);
    timeout(LATEST, stage.visit()).await.unwrap().unwrap();
    for _ in 0..3 {
        timeout(LATEST, health.accept()).await.unwrap().unwrap();
    }
    stage.starts(true, &[]);
    while comes(&health).await.is_some() {}
    let again = timeout(2 * LONGEST, health.accept()).await;
    assert!(again.is_err(), "Kubernetes asks it now");
    assert!(stage.room.is_awake());
}

/// When it was asked, if that is what it answered, one after the other.
async fn asked(check: &ReadinessCheck, answers: &[Answer]) -> Vec<Duration> {
    let (begun, times) = (Instant::now(), Mutex::new(Vec::new()));
    let ask = async || {
        let mut times = times.lock();
        times.push(begun.elapsed());
        answers
            .get(times.len() - 1)
            .copied()
            .unwrap_or(Answer::Passed)
    };
    in_a_row(check, begun, ask).await;
    times.into_inner()
}

#[tokio::test(start_paused = true)]
async fn questions_come_in_haste_at_first_and_four_times_a_second_at_last() {
    let times = asked(&check(80), &[Answer::Failed; 12]).await;
    let pauses: Vec<_> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses[0].abs_diff(FIRST) < Duration::from_millis(2));
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert!(pauses[11].abs_diff(LONGEST) < Duration::from_millis(2));
    assert_eq!(times[0], Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_first_question_waits_for_its_delay() {
    let late = ReadinessCheck {
        initial_delay_seconds: 5,
        ..check(80)
    };
    let times = asked(&late, &[]).await;
    assert_eq!(times, [Duration::from_secs(5)]);
}

#[tokio::test(start_paused = true)]
async fn it_has_to_pass_as_often_in_a_row_as_it_says() {
    let twice = ReadinessCheck {
        success_threshold: 2,
        ..check(80)
    };
    let answers = [
        Answer::Passed,
        Answer::Failed,
        Answer::Passed,
        Answer::Refused,
    ];
    assert_eq!(asked(&twice, &answers).await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_failure_now_and_then_is_forgiven_and_a_refusal_is_not() {
    for (answers, questions) in [("pffpffpfff", 10), ("pfpr", 4)] {
        let count = AtomicUsize::new(0);
        let ask = async || match answers.as_bytes()[count.fetch_add(1, Ordering::Relaxed)] {
            b'p' => Answer::Passed,
            b'f' => Answer::Failed,
            _ => Answer::Refused,
        };
        too_often(&check(80), ask).await;
        assert_eq!(count.into_inner(), questions);
    }
}
