use crate::{OUTSIDE, deploy, used};
use anyhow::{Context, Result, ensure};
use elasti_api::{Mode, Phase};
use elasti_e2e::{
    Place, Running, exchange,
    stage::{Cast, PATIENCE, Whole, free_port, workload},
};
use http_body_util::Full;
use hyper::{
    Request,
    header::{HOST, LOCATION},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use serde_json::json;
use std::{fs, net::SocketAddr, time::Duration};
use tokio::{net::TcpStream, time};

const CYCLES: usize = 5;
/// A process has no event for that it listens.
const LOOK: Duration = Duration::from_millis(20);

struct Proxy {
    program: &'static str,
    /// Where to listen, and for whom.
    config: fn(SocketAddr, SocketAddr) -> String,
    args: &'static [&'static str],
}

const NGINX: Proxy = Proxy {
    program: "/usr/sbin/nginx",
    config: nginx,
    args: &["-e", "stderr", "-c"],
};

const HAPROXY: Proxy = Proxy {
    program: "/usr/sbin/haproxy",
    config: haproxy,
    args: &["-db", "-f"],
};

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn through_nginx_a_request_wakes_a_service_and_keeps_its_host() -> Result<()> {
    wakes_and_keeps_its_host(&NGINX)
}

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn through_haproxy_a_request_wakes_a_service_and_keeps_its_host() -> Result<()> {
    wakes_and_keeps_its_host(&HAPROXY)
}

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn through_nginx_every_request_is_answered_however_often_it_sleeps() -> Result<()> {
    answers_every_request(&NGINX)
}

#[test]
#[ignore = "needs a local cluster: make test-integrations"]
fn through_haproxy_every_request_is_answered_however_often_it_sleeps() -> Result<()> {
    answers_every_request(&HAPROXY)
}

fn wakes_and_keeps_its_host(proxy: &Proxy) -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let stage = &whole.stage;
        stage.sleeping().await?;
        let (door, _proxy) = proxy.start(place, stage.reach("web", 80).await?).await?;
        let request = Request::get(format!("http://{door}/moved")).header(HOST, OUTSIDE);
        let answer = exchange(request.body(Full::default())?).await?;
        ensure!(answer.headers().contains_key("x-elasti-held"), "{answer:?}");
        ensure!(answer.headers()[LOCATION] == format!("http://{OUTSIDE}/hello"));
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

fn answers_every_request(proxy: &Proxy) -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::with(place, Cast::default().resolvers(2)).await?;
        let stage = &whole.stage;
        deploy(stage, workload("web", "Deployment", 1, &stage.image)).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let (door, _proxy) = proxy.start(place, stage.reach("web", 80).await?).await?;
        used(door, async {
            for _ in 0..CYCLES {
                let old = stage.target("web").await?.pod;
                let uid = stage.uid::<Pod>(&old).await?;
                stage.scale("web", 0).await?;
                stage.until("web", "awake", is_up).await?;
                stage.reaches(Phase::Awake, Mode::Serve).await?;
                // With whatever connections the proxy has kept to it.
                stage.gone::<Pod>(&old, &uid).await?;
            }
            Ok(())
        })
        .await
    })
}

/// With the pods that it has now, not with those that are ending.
fn is_up(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && wanted > Some(0)
            && status.ready_replicas == wanted
    })
}

// === impl Proxy ===

impl Proxy {
    /// Gives where the world comes in.
    async fn start(&self, place: &Place, service: SocketAddr) -> Result<(SocketAddr, Running)> {
        let door = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let config = place.folder().join("proxy.conf");
        fs::write(&config, (self.config)(door, service))?;
        let log = fs::File::create(place.folder().join("proxy.log"))?;
        let mut command = place.cluster.command(self.program)?;
        command
            .args(self.args)
            .arg(&config)
            .stdout(log.try_clone()?)
            .stderr(log);
        let running = Running::start(&mut command)?;
        let listens = async {
            while TcpStream::connect(door).await.is_err() {
                time::sleep(LOOK).await;
            }
        };
        time::timeout(PATIENCE, listens)
            .await
            .with_context(|| format!("waiting for {}", self.program))?;
        Ok((door, running))
    }
}

fn nginx(door: SocketAddr, service: SocketAddr) -> String {
    format!(
        "daemon off;
master_process off;
pid /dev/null;
events {{}}
http {{
  access_log off;
  upstream web {{ server {service}; keepalive 16; }}
  server {{
    listen {door};
    server_name {OUTSIDE};
    location / {{
      proxy_pass http://web;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $host;
    }}
  }}
}}
"
    )
}

/// A request that met the end of a kept connection is sent once more, as nginx does by itself.
fn haproxy(door: SocketAddr, service: SocketAddr) -> String {
    format!(
        "defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend world
  bind {door}
  use_backend web if {{ hdr(host) {OUTSIDE} }}
backend web
  http-reuse always
  retry-on conn-failure empty-response
  server web {service}
"
    )
}
