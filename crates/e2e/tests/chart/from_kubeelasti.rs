use crate::{
    life::resolvers,
    release::Release,
    traffic::{ask, crowd},
};
use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::{Place, built, kubeelasti, stage::Stage, test_alone};
use futures::future::try_join_all;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{fs, net::SocketAddr, path::Path, time::Duration};

const LONGEST: Duration = Duration::from_secs(600);
const OPERATOR: &str = "elasti-operator-controller-manager";
const RESOLVER: &str = "elasti-resolver";
const SERVICES: [&str; 3] = [
    "elasti-operator-controller-service",
    "elasti-operator-controller-manager-metrics-service",
    "elasti-resolver-service",
];

/// As docs/migrate.md says.
#[test]
#[ignore = "needs a local cluster: make chart"]
fn a_release_of_kubeelasti_is_upgraded_and_loses_no_request() -> Result<()> {
    test_alone("chart-swap", LONGEST, async |place| {
        let image = place.echo_image(&built("elasti-echo")?)?;
        let theirs = place.folder().join("kubeelasti");
        stand_in(&theirs, &image)?;
        let theirs = theirs.display().to_string();
        let release = Release::install_other(place, &theirs).await?;
        let stage = Stage { place, image };
        let web = awake(&stage).await?;
        let idle = asleep(&stage).await?;
        let before = identities(place).await?;

        let play = async {
            kubectl(place, &["rollout", "pause", "deployment/elasti-resolver"])?;
            let end = ["scale", "--replicas=0", "deployment"];
            kubectl(place, &[&end[..], &[OPERATOR]].concat())?;
            let open = "--set=elastiController.manager.authenticateKnocks=false";
            release.upgrade(&[open]).await?;
            for name in ["web", "idle"] {
                stage.reaches_as(name, Phase::Awake, Mode::Serve).await?;
            }
            kubectl(place, &["rollout", "resume", "deployment/elasti-resolver"])?;
            kubectl(place, &["rollout", "status", "deployment/elasti-resolver"])?;
            release.upgrade(&[]).await
        };
        crowd(web, crowd(idle, play)).await?;

        ensure!(identities(place).await? == before, "objects were made anew");
        ensure!(resolvers(place).await? == 3, "as many as there were");
        let left = place.kubectl(&["get", "clusterrole", "elasti-manager-role"])?;
        ensure!(!left.status.success(), "its permissions are left");
        for name in ["web", "idle"] {
            stage.condition(name, "Ready", "True", "AllInPlace").await?;
        }
        stage.scale("idle", 0).await?;
        stage.reaches_as("idle", Phase::Asleep, Mode::Proxy).await?;
        // Whoever else scales to zero leaves a gap.
        stage.pods_end("of=idle").await?;
        ask(stage.reach("idle", 80).await?).await?;

        for name in ["web", "idle"] {
            stage.delete::<ElastiService>(name).await?;
        }
        release.run("rollback", &["1"]).await?;
        ensure!(identities(place).await? == before, "on the way back, too");
        Ok(())
    })
}

/// A chart with the names, labels and selectors of KubeElasti's, whose pods answer everything at once.
fn stand_in(folder: &Path, image: &str) -> Result<()> {
    fs::create_dir_all(folder.join("templates"))?;
    let chart = json!({"apiVersion": "v2", "name": "elasti", "version": "0.1.30"});
    fs::write(folder.join("Chart.yaml"), chart.to_string())?;
    let mut objects = vec![
        definition(),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "elasti-manager-role"},
        }),
        deployment(OPERATOR, "manager", &operator_labels(), image, 1),
        deployment(RESOLVER, "proxy", &resolver_labels(), image, 3),
    ];
    let [knocks, metrics, resolver] = SERVICES;
    for (name, labels, ports) in [
        (
            knocks,
            operator_labels(),
            json!([{"name": "custom-port", "port": 8013}]),
        ),
        (
            metrics,
            operator_labels(),
            json!([{"name": "http", "port": 8080}]),
        ),
        (
            resolver,
            resolver_labels(),
            json!([
                {"name": "http-resolver", "port": 8013},
                {"name": "http-resolver-reverse-proxy", "port": 8012},
            ]),
        ),
    ] {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "ClusterIP", "selector": labels, "ports": ports},
        }));
    }
    for name in [OPERATOR, RESOLVER] {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        objects.push(account);
    }
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    fs::write(folder.join("templates/all.yaml"), texts.join("\n---\n"))?;
    Ok(())
}

/// It is part of the release, and nothing says that it is to be kept.
fn definition() -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "elastiservices.elasti.truefoundry.com"},
        "spec": {
            "group": "elasti.truefoundry.com",
            "scope": "Namespaced",
            "names": {
                "kind": "ElastiService",
                "listKind": "ElastiServiceList",
                "plural": "elastiservices",
                "singular": "elastiservice",
            },
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": anything, "status": anything},
                }},
            }],
        },
    })
}

fn deployment(name: &str, container: &str, labels: &Value, image: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8013"},
                },
                "spec": {
                    "serviceAccountName": name,
                    "terminationGracePeriodSeconds": 10,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": container,
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "args": ["ports=8012,8013"],
                        "ports": [{"containerPort": 8013}, {"containerPort": 8012}],
                        "resources": {"limits": {"memory": "80Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    })
}

fn operator_labels() -> Value {
    labels("control-plane", "controller-manager")
}

fn resolver_labels() -> Value {
    labels("app", RESOLVER)
}

fn labels(key: &str, value: &str) -> Value {
    json!({
        (key): value,
        "app.kubernetes.io/name": "elasti",
        "app.kubernetes.io/instance": "elasti",
    })
}

async fn awake(stage: &Stage<'_>) -> Result<SocketAddr> {
    stage.deploy("Deployment", 1).await?;
    stage.has_ready("web", 1).await?;
    leave_behind(stage, "web", "serve").await?;
    stage.reach("web", 80).await
}

/// Its traffic goes to pods that stand in for resolvers.
async fn asleep(stage: &Stage<'_>) -> Result<SocketAddr> {
    stage.deploy_as("idle", "Deployment", 0).await?;
    leave_behind(stage, "idle", "proxy").await?;
    let pods: Api<Pod> = Api::namespaced(stage.place.client.clone(), "elasti");
    let resolvers = ListParams::default().labels("app=elasti-resolver");
    let resolvers = pods.list(&resolvers).await?;
    let addresses = resolvers.iter().filter_map(|pod| {
        let status = pod.status.as_ref()?;
        status.pod_ip.as_deref()
    });
    stage
        .place
        .put(kubeelasti::slice("idle", addresses))
        .await?;
    stage.reach("idle", 80).await
}

async fn leave_behind(stage: &Stage<'_>, name: &str, mode: &str) -> Result<()> {
    let left = stage.place.put(kubeelasti::elasti_service(name)).await?;
    let owner = left.uid().context("it has a uid")?;
    let private = kubeelasti::private_service(name, &owner);
    stage.place.put(private).await?;
    let status = Patch::Merge(kubeelasti::status(mode));
    stage
        .api::<ElastiService>()
        .patch_status(name, &PatchParams::default(), &status)
        .await?;
    Ok(())
}

/// Of what an upgrade has to leave in place.
async fn identities(place: &Place) -> Result<Vec<Option<String>>> {
    let deployments: Api<Deployment> = Api::namespaced(place.client.clone(), "elasti");
    let services: Api<Service> = Api::namespaced(place.client.clone(), "elasti");
    let deployments = try_join_all([OPERATOR, RESOLVER].map(|name| deployments.get(name))).await?;
    let services = try_join_all(SERVICES.map(|name| services.get(name))).await?;
    let services = services.iter().map(ResourceExt::uid);
    Ok(deployments
        .iter()
        .map(ResourceExt::uid)
        .chain(services)
        .collect())
}

fn kubectl(place: &Place, args: &[&str]) -> Result<()> {
    place.kubectl_text(&[&["--namespace=elasti"], args].concat())?;
    Ok(())
}
