use super::*;
use anyhow::anyhow;
use elasti_e2e::{Running, app, built};
use futures::{StreamExt, pin_mut};
use http_body_util::Full;
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use kube::runtime::watcher::{self, watcher};
use std::{
    cell::RefCell,
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};
use tokio::{net::TcpStream, time};

const PATIENCE: Duration = Duration::from_secs(60);
const CRD: &str = include_str!("../../../../config/crd/elastiservices.yaml");

/// An operator with everything that it needs around it.
pub(super) struct Stage<'a> {
    place: &'a Place,
    image: String,
    port: u16,
    _operator: Running,
    prometheus: RefCell<Option<(Running, PathBuf)>>,
}

impl<'a> Stage<'a> {
    pub(super) fn set(place: &'a Place) -> Result<Self> {
        place.apply(CRD)?;
        place.kubectl_text(&[
            "wait",
            "--for=condition=Established",
            "crd/elastiservices.elasti.truefoundry.com",
        ])?;
        let image = place.echo_image(Path::new(env!("CARGO_BIN_EXE_elasti-echo")))?;
        place.apply(&app("elasti-resolver-service", "Deployment", &image))?;
        place.kubectl_text(&[
            "rollout",
            "status",
            "deployment/elasti-resolver-service",
            "--timeout=60s",
        ])?;
        let port = free_port();
        let namespace = place.namespace.name();
        let mut operator = place
            .cluster
            .command(&built("elasti-operator")?.display().to_string())?;
        operator
            .args([
                "--namespace",
                namespace,
                "--watch-namespace",
                namespace,
                "--resolver-namespace",
                namespace,
            ])
            .args([
                "--port",
                &port.to_string(),
                "--polling-interval=1s",
                "--settle=1s",
                "--log-level=warn",
            ])
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"]);
        Ok(Self {
            place,
            image,
            port,
            _operator: Running::start(&mut operator)?,
            prometheus: RefCell::default(),
        })
    }

    pub(super) fn idle_prometheus(&self) -> Result<()> {
        let folder = std::env::temp_dir().join(self.place.namespace.name());
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("prometheus.yml"), "global: {}\n")?;
        let mut prometheus = self.place.cluster.command("prometheus")?;
        prometheus
            .arg(format!("--config.file={}/prometheus.yml", folder.display()))
            .arg(format!("--storage.tsdb.path={}/data", folder.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", self.port + 1))
            .arg("--log.level=error");
        self.prometheus
            .replace(Some((Running::start(&mut prometheus)?, folder)));
        Ok(())
    }

    pub(super) fn idle_trigger(&self) -> serde_json::Value {
        json!([{"type": "prometheus", "metadata": {
            "serverAddress": format!("http://127.0.0.1:{}", self.port + 1),
            "query": "vector(0)",
            "threshold": 1,
            "healthCheck": false,
        }}])
    }

    pub(super) fn deploy(&self, kind: &str) -> Result<()> {
        self.place.apply(&app("web", kind, &self.image))?;
        let name = format!("{}/web", kind.to_lowercase());
        self.place
            .kubectl_text(&["rollout", "status", &name, "--timeout=60s"])?;
        Ok(())
    }

    pub(super) fn declare(&self, kind: &str, triggers: &serde_json::Value) -> Result<()> {
        self.declare_as("web", kind, triggers)
    }

    pub(super) fn declare_as(
        &self,
        name: &str,
        kind: &str,
        triggers: &serde_json::Value,
    ) -> Result<()> {
        let api_version = if kind == "Gizmo" {
            "e2e.elasti.local/v1"
        } else {
            "apps/v1"
        };
        let object = json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1",
            "kind": "ElastiService",
            "metadata": {"name": name},
            "spec": {
                "service": "web",
                "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": "web"},
                "minTargetReplicas": 2,
                "cooldownPeriod": 2,
                "triggers": triggers,
            },
        });
        self.place.apply(&object.to_string())
    }

    /// What wakes from now on stays awake for longer than a test.
    pub(super) async fn sleep_no_more(&self) -> Result<()> {
        let patch = json!({"spec": {"cooldownPeriod": 900}});
        self.elasti_services()
            .patch("web", &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    pub(super) fn elasti_services(&self) -> Api<ElastiService> {
        Api::namespaced(self.place.client.clone(), self.place.namespace.name())
    }

    pub(super) async fn reaches(&self, phase: Phase, mode: Mode) -> Result<()> {
        let is_there = |object: Option<&ElastiService>| {
            let status = object.and_then(|object| object.status.as_ref());
            status.is_some_and(|status| (status.phase, status.mode) == (Some(phase), Some(mode)))
        };
        time::timeout(
            PATIENCE,
            await_condition(self.elasti_services(), "web", is_there),
        )
        .await
        .with_context(|| format!("waiting for {phase:?} in mode {mode:?}"))??;
        Ok(())
    }

    pub(super) async fn has_condition(
        &self,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<()> {
        let says = |object: Option<&ElastiService>| {
            let conditions = object.and_then(|object| Some(&object.status.as_ref()?.conditions));
            conditions.into_iter().flatten().any(|condition| {
                (
                    condition.type_.as_str(),
                    condition.status.as_str(),
                    condition.reason.as_str(),
                ) == (kind, status, reason)
            })
        };
        time::timeout(
            PATIENCE,
            await_condition(self.elasti_services(), name, says),
        )
        .await
        .with_context(|| format!("waiting for {kind}={status} ({reason}) of {name}"))??;
        Ok(())
    }

    pub(super) async fn replicas<K>(&self) -> Result<i32>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.place.client.clone(), self.place.namespace.name());
        let scale = api.get_scale("web").await?;
        // Zero is left out.
        Ok(scale
            .spec
            .and_then(|spec| spec.replicas)
            .unwrap_or_default())
    }

    pub(super) async fn resolver_slices(&self) -> Result<Vec<EndpointSlice>> {
        let ours =
            "kubernetes.io/service-name=web,endpointslice.kubernetes.io/managed-by=elasti-operator";
        Ok(self
            .slices()
            .list(&ListParams::default().labels(ours))
            .await?
            .items)
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.place.client.clone(), self.place.namespace.name())
    }

    /// Ends only with what must never be: an instant in which the public service, once it was served,
    /// has nobody.
    pub(super) async fn witness_endpoints(&self) -> anyhow::Error {
        let config = watcher::Config::default().labels("kubernetes.io/service-name=web");
        let events = watcher(self.slices(), config);
        pin_mut!(events);
        let mut ready: HashMap<String, usize> = HashMap::new();
        let mut served = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(slice) | watcher::Event::InitApply(slice)) => {
                    ready.insert(slice.name_any(), count_ready(&slice));
                }
                Ok(watcher::Event::Delete(slice)) => {
                    ready.remove(&slice.name_any());
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                Err(error) => return error.into(),
            }
            let count: usize = ready.values().sum();
            served |= count > 0;
            if served && count == 0 {
                return anyhow!("the public service had no endpoint: {ready:?}");
            }
        }
        anyhow!("the watch of the endpoints ended")
    }

    pub(super) async fn knock(&self, service: &str) -> Result<()> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let knock = json!({"count": 1, "svc": service, "namespace": self.place.namespace.name()});
        let request = Request::post("/informer/incoming-request")
            .header("host", "operator")
            .body(Full::new(Bytes::from(knock.to_string())))?;
        let (answer, ended) = tokio::join!(
            async {
                let answer = sender.send_request(request).await;
                drop(sender);
                answer
            },
            connection
        );
        ended?;
        ensure!(answer?.status() == 200, "a knock is answered with 200");
        Ok(())
    }

    /// On the ElastiService and on its target.
    pub(super) async fn said(&self, reason: &str) -> Result<()> {
        let events: Api<Event> =
            Api::namespaced(self.place.client.clone(), self.place.namespace.name());
        let listed = events.list(&ListParams::default()).await?;
        for kind in ["ElastiService", "Deployment"] {
            let about = listed.iter().any(|event| {
                event.reason.as_deref() == Some(reason)
                    && event.involved_object.kind.as_deref() == Some(kind)
            });
            ensure!(about, "no event {reason} on the {kind}");
        }
        Ok(())
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if let Some((prometheus, folder)) = self.prometheus.take() {
            drop(prometheus);
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Two ports for each test, far from those of the cluster's own components.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(18_100);
    NEXT.fetch_add(2, Ordering::Relaxed)
}

fn count_ready(slice: &EndpointSlice) -> usize {
    let is_ready = |ready: Option<bool>| ready.unwrap_or(true);
    slice
        .endpoints
        .iter()
        .filter(|endpoint| {
            is_ready(
                endpoint
                    .conditions
                    .as_ref()
                    .and_then(|conditions| conditions.ready),
            )
        })
        .count()
}

pub(super) const GIZMO_KIND: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.e2e.elasti.local}
spec:
  group: e2e.elasti.local
  scope: Namespaced
  names: {kind: Gizmo, plural: gizmos, singular: gizmo}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}}}
"#;

pub(super) const GIZMO: &str = r#"
apiVersion: e2e.elasti.local/v1
kind: Gizmo
metadata: {name: web}
spec: {replicas: 0}
"#;
