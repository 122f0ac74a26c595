use super::*;
use crate::{
    metrics::Metrics,
    settings::{Routing, Settings},
};
use elasti_runtime::{lease::Claim, watch::Change};
use kube::{Client, Config, api::DynamicObject};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::sleep,
};

const INTERVAL: Duration = Duration::from_millis(20);

/// One that knows `shop/web` and nobody else, and never reaches an API server.
fn operator(spec: Value) -> (Operator, Key, Arc<ElastiService>) {
    let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let settings = Settings {
        name: "elasti".into(),
        identity: "one".into(),
        namespace: "elasti".into(),
        authenticate_knocks: false,
        resolver_namespace: "elasti".into(),
        resolver_service: "resolvers".into(),
        proxy_port: 8012,
        routing: Routing::Host,
        private_addresses: false,
        polling_interval: INTERVAL,
        watch_namespaces: Vec::new(),
        prometheus: Default::default(),
        patience: Default::default(),
        release: false,
    };
    let metrics = Metrics::new(&Registry::new()).unwrap();
    let claim = Claim::unopposed();
    let operator = Operator::new(client.clone(), client, claim, settings, metrics).unwrap();
    let mut object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "service": "web",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
    }))
    .unwrap();
    for (name, value) in spec.as_object().unwrap() {
        object.data["spec"][name] = value.clone();
    }
    let key = Key::new("shop", "web");
    let declared = Change::Applied(key.clone(), Declared::from(object));
    operator.note(|index| index.change_declared(declared, clock::now()));
    let object = understood(&operator, &key).unwrap();
    (operator, key, object)
}

fn trigger(server: &str) -> Value {
    let metadata = json!({
        "serverAddress": server,
        "query": "requests",
        "threshold": 1,
        "healthCheck": false,
    });
    json!([{"type": "prometheus", "metadata": metadata}])
}

fn moment(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

#[test]
fn an_answer_as_before_is_news_once_that_has_ceased_to_count() {
    let mut memory = Memory::default();
    let mut answers = |second| {
        let idle = Opinion::idle("BelowThreshold", "0 is below 1");
        let trust = SignedDuration::from_secs(90);
        note_opinion(&mut memory, idle, false, moment(second), trust)
    };
    assert!(answers(0), "the first");
    assert!(!answers(89));
    assert!(answers(179), "nobody was idle any more meanwhile");
    assert!(!answers(200));
}

#[tokio::test]
async fn an_answer_that_took_long_counts_from_when_it_came() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", server.local_addr().unwrap());
    let (operator, key, object) = operator(json!({"triggers": trigger(&address)}));
    let answers = async {
        let (mut stream, _) = server.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        sleep(INTERVAL * 10).await;
        let body = json!({"status": "success", "data": {
            "resultType": "vector",
            "result": [{"metric": {}, "value": [0, "0"]}],
        }})
        .to_string();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        stream
    };
    let asked = clock::now();
    let (_stream, _) = tokio::join!(answers, ask(&operator, &key, &object));
    let memory = operator.read(|index| index.memory(&key));
    assert_eq!(memory.opinion.unwrap().verdict, Verdict::Idle);
    let took = memory.answered.unwrap().duration_since(asked);
    assert!(took >= trust(&operator, &object), "or it never counted");
}

#[tokio::test]
async fn a_period_ends_whether_or_not_a_server_has_time() {
    let triggers = trigger("http://127.0.0.1:1");
    let (operator, key, object) = operator(json!({
        "triggers": triggers,
        "enabledPeriod": {"schedule": "0 0 29 2 *", "duration": "1m"},
    }));
    let take = || operator.prometheus.turn(&object.spec.triggers);
    let turns: Vec<_> = std::iter::from_fn(take).collect();
    assert_eq!(ask(&operator, &key, &object).await, BUSY);
    let memory = operator.read(|index| index.memory(&key));
    assert_eq!((memory.opinion, memory.may_sleep), (None, Some(false)));
    let touched = operator.work.next().await;
    assert_eq!(touched, key, "it is to be woken");
    drop(turns);
}
