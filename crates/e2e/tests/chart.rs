//! The Helm chart: what it renders, and its life on a cluster.

use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::{
    LONGEST, Place, fetch,
    install::image,
    stage::{PATIENCE, Stage, gated, workload},
    test_alone,
};
use k8s_openapi::{
    api::discovery::v1::EndpointSlice,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec,
};
use kube::{ResourceExt, api::ListParams};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env, fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};
use tokio::{
    process,
    time::{sleep, timeout},
};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/elasti");
/// Without a cluster, helm takes one for granted that is too old.
const VERSION: &str = "--kube-version=1.35.0";
const CRD: &str =
    "customresourcedefinition.apiextensions.k8s.io/elastiservices.elasti.truefoundry.com";

#[test]
#[ignore = "needs helm: make chart"]
fn it_has_the_names_that_people_know() -> Result<()> {
    let mut lint = Command::new(helm());
    succeeded(&lint.args(["lint", "--strict", VERSION, CHART]).output()?)?;
    let expected = [
        "ClusterRole/elasti-operator-controller-manager",
        "ClusterRole/elasti-resolver",
        "ClusterRoleBinding/elasti-operator-controller-manager",
        "ClusterRoleBinding/elasti-resolver",
        "CustomResourceDefinition/elastiservices.elasti.truefoundry.com",
        "Deployment/elasti-operator-controller-manager",
        "Deployment/elasti-resolver",
        "HorizontalPodAutoscaler/elasti-resolver",
        "Job/elasti-uninstall",
        "PodDisruptionBudget/elasti-operator-controller-manager",
        "PodDisruptionBudget/elasti-resolver",
        "Role/elasti-operator-controller-manager-at-home",
        "Role/elasti-uninstall",
        "RoleBinding/elasti-operator-controller-manager-at-home",
        "RoleBinding/elasti-uninstall",
        "Service/elasti-operator-controller-manager-metrics-service",
        "Service/elasti-operator-controller-service",
        "Service/elasti-resolver-service",
        "ServiceAccount/elasti-operator-controller-manager",
        "ServiceAccount/elasti-resolver",
    ];
    let rendered = rendered("default")?;
    let names: BTreeSet<String> = rendered.iter().map(name).collect();
    let expected: BTreeSet<String> = expected.into_iter().map(String::from).collect();
    ensure!(names == expected, "{names:#?}");
    Ok(())
}

/// `UPDATE=1 make chart` writes them anew, for a review of what a change does.
#[test]
#[ignore = "needs helm: make chart"]
fn it_renders_what_was_reviewed() -> Result<()> {
    for set in ["allowed-namespaces", "default", "kubeelasti"] {
        let rendered = succeeded(&template(set, &["--set=crds.enabled=false"])?)?;
        let reviewed = format!("{WORKSPACE}/crates/e2e/tests/chart/{set}.yaml");
        if env::var_os("UPDATE").is_some() {
            fs::write(&reviewed, &rendered)?;
        }
        let known = fs::read_to_string(&reviewed)?;
        let changed = rendered.lines().zip(known.lines()).find(|(a, b)| a != b);
        ensure!(rendered == known, "{set}, first at {changed:?}");
    }
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn it_makes_what_config_base_makes() -> Result<()> {
    let rendered = rendered("default")?;
    let find = |like: &Value, kinds: &[&str]| {
        let wanted = name(like);
        let found = rendered.iter().find(|object| name(object) == wanted);
        let kind = like["kind"].as_str().unwrap_or_default();
        kinds.contains(&kind).then_some(found).flatten()
    };
    let mut compared = 0;
    for file in [
        "operator",
        "operator-permissions",
        "resolver",
        "resolver-permissions",
    ] {
        let file = format!("{WORKSPACE}/config/base/{file}.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(file)?)?;
        for base in &objects {
            let Some(object) = find(base, &["ClusterRole", "Deployment"]) else {
                continue;
            };
            ensure!(rules(object) == rules(base), "{} differs", name(object));
            for part in [
                "securityContext",
                "containers/0/securityContext",
                "containers/0/resources",
                "containers/0/readinessProbe",
                "containers/0/livenessProbe",
                "containers/0/ports",
                "containers/0/image",
                "terminationGracePeriodSeconds",
                "volumes",
            ] {
                let part = format!("/spec/template/spec/{part}");
                let (ours, theirs) = (object.pointer(&part), base.pointer(&part));
                ensure!(ours == theirs, "{} {part}: {ours:?} {theirs:?}", name(base));
            }
            compared += 1;
        }
    }
    ensure!(
        compared == 4,
        "two roles and two deployments, not {compared}"
    );
    let crd = fs::read_to_string(format!("{WORKSPACE}/config/crd/elastiservices.yaml"))?;
    let crd: Value = serde_saphyr::from_str(&crd)?;
    let ours = find(&crd, &["CustomResourceDefinition"]).context("it has the CRD")?;
    let spec = |crd: &Value| -> Result<CustomResourceDefinitionSpec> {
        Ok(serde_json::from_value(crd["spec"].clone())?)
    };
    ensure!(spec(ours)? == spec(&crd)?, "the CRD came through unchanged");
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn with_namespaces_it_asks_for_nothing_cluster_wide() -> Result<()> {
    let rendered = rendered("allowed-namespaces")?;
    for object in &rendered {
        let kind = object["kind"].as_str().unwrap_or_default();
        ensure!(!kind.starts_with("ClusterRole"), "{}", name(object));
        let has_namespace = object["metadata"]["namespace"].is_string();
        ensure!(
            has_namespace || kind == "CustomResourceDefinition",
            "{} is in no namespace",
            name(object)
        );
        if kind == "Deployment" {
            let environment = &object["spec"]["template"]["spec"]["containers"][0]["env"];
            let watched = json!({"name": "WATCH_NAMESPACES", "value": "shop,office,elasti"});
            let all = environment.as_array().context("it has an environment")?;
            ensure!(all.contains(&watched), "{environment}");
            let asks = json!({"name": "ELASTI_AUTHENTICATE_KNOCKS", "value": "true"});
            ensure!(!all.contains(&asks), "TokenReview is cluster-wide");
        }
    }
    let without = ["--set=crds.enabled=false"];
    let without = template("allowed-namespaces", &without)?;
    ensure!(!succeeded(&without)?.contains("CustomResourceDefinition"));
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn every_value_of_kubeelasti_has_an_effect() -> Result<()> {
    let file = fs::read_to_string(format!("{CHART}/ci/kubeelasti.yaml"))?;
    let mut values: Value = serde_saphyr::from_str(&file)?;
    values["leftOver"].take();
    let mut texts = BTreeSet::new();
    leaves(&values, &mut texts);
    let rendered = succeeded(&template("kubeelasti", &[])?)?;
    let missing: Vec<_> = texts
        .iter()
        .filter(|text| !rendered.contains(*text))
        .collect();
    ensure!(missing.is_empty(), "without effect: {missing:?}");
    ensure!(!rendered.contains("replicas: 5"), "the autoscaler decides");
    ensure!(rendered.contains("terminationGracePeriodSeconds: 1270"));
    Ok(())
}

#[test]
#[ignore = "needs helm: make chart"]
fn a_wrong_value_is_named() -> Result<()> {
    for (wrong, told) in [
        ("elastiResolver.replicas=two", "/elastiResolver/replicas"),
        (
            "elastiResolver.proxy.env.reqTimeout=soon",
            "/elastiResolver/proxy/env/reqTimeout",
        ),
        ("elastiController.service.port=70000", "65,535"),
        ("elastiController.service.type=Public", "LoadBalancer"),
        ("global.allowedNamespaces=shop", "/global/allowedNamespaces"),
        (
            "global.nameOverride=much-too-long-a-name",
            "global.fullnameOverride",
        ),
    ] {
        let output = template("default", &[&format!("--set={wrong}")])?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success(), "{wrong} passed");
        ensure!(error.contains(told), "{wrong}: {error}");
    }
    succeeded(&template("default", &["--set=nobody.knows=this"])?)?;
    Ok(())
}

#[test]
#[ignore = "needs a local cluster: make chart"]
fn it_comes_changes_and_goes_without_losing_a_request() -> Result<()> {
    test_alone("chart", LONGEST, async |place| {
        let release = Release::install(place, &[]).await?;
        let stage = Stage::empty(place).await?;
        stage.sleeping().await?;
        let web = stage.reach("web", 80).await?;
        ask(web).await?;
        let slow = slow(&stage).await?;

        let changed = [
            "--reuse-values",
            "--set=elastiController.manager.env.pollingInterval=20s",
            "--set=elastiResolver.proxy.env.queueSize=9999",
        ];
        let play = async {
            stage.target("slow").await?;
            release
                .run("upgrade", &[&[CHART], &changed[..]].concat())
                .await?;
            stage.open("slow").await?;
            stage.reaches_as("slow", Phase::Awake, Mode::Serve).await?;
            release.run("rollback", &["1"]).await
        };
        let waits = async {
            ask(slow).await.context("held by a resolver that ended")?;
            keep_asking(slow).await
        };
        tokio::select! {
            done = play => done?,
            lost = keep_asking(web) => lost?,
            lost = waits => lost?,
        }

        let idle = idle(&stage).await?;
        release.leaves_nothing().await?;
        ask(idle).await.context("left asleep")?;
        let slices = stage.api::<EndpointSlice>().list(&ours()).await?.items;
        ensure!(slices.is_empty(), "{slices:?} are left");
        for name in ["web", "slow", "idle"] {
            let left = stage.api::<ElastiService>().get(name).await?;
            ensure!(left.finalizers().is_empty(), "{left:?}");
            stage.delete::<ElastiService>(name).await?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make chart"]
fn an_uninstall_ends_though_a_target_cannot_come_up() -> Result<()> {
    test_alone("chart-uninstall", LONGEST, async |place| {
        let release = Release::install(place, &[]).await?;
        let stage = Stage::empty(place).await?;
        slow(&stage).await?;
        release.leaves_nothing().await?;
        let left = stage.api::<ElastiService>().get("slow").await?;
        ensure!(left.finalizers().is_empty(), "{left:?}");
        stage.target("slow").await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make chart"]
fn in_some_namespaces_its_roles_are_all_that_it_needs() -> Result<()> {
    test_alone("chart-namespaces", LONGEST, async |place| {
        let allowed = format!(
            "--set=global.allowedNamespaces={{{}}}",
            place.namespace.name()
        );
        // With what else the API server has to take.
        let all = [
            &*allowed,
            "--set=networkPolicies.enabled=true,elastiResolver.autoscaling.enabled=true",
            "--set=elastiController.manager.args={--leader-elect,--metrics-bind-address=0}",
        ];
        let release = Release::install(place, &all).await?;
        let stage = Stage::empty(place).await?;
        let elsewhere = place.beside("elsewhere").await?;
        let there = stage.at(&elsewhere);
        there.deploy("Deployment", 0).await?;
        there.declare(json!({})).await?;
        stage.sleeping().await?;
        ask(stage.reach("web", 80).await?).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        let untouched = there.api::<ElastiService>().get("web").await?;
        ensure!(untouched.status.is_none(), "{untouched:?} is left alone");
        let metrics = "/api/v1/namespaces/elasti/services/elasti-operator-controller-manager-metrics-service:8080/proxy/metrics";
        let metrics = place.kubectl_text(&["get", "--raw", metrics])?;
        ensure!(metrics.contains("elasti_operator_mode"), "{metrics}");
        stage.delete::<ElastiService>("web").await?;
        elsewhere.leave().await?;
        release.leaves_nothing().await
    })
}

/// Of a chart, in the namespace `elasti`, which lets in only what is `restricted`.
struct Release<'a> {
    place: &'a Place,
}

// === impl Release ===

impl<'a> Release<'a> {
    async fn install(place: &'a Place, values: &[&str]) -> Result<Self> {
        place.kubectl_text(&["create", "namespace", "elasti"])?;
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        place.kubectl_text(&["label", "namespace", "elasti", restricted])?;
        let (_, operator) = image(place.cluster, "operator")?;
        let (_, resolver) = image(place.cluster, "resolver")?;
        let release = Self { place };
        let images = [
            format!("--set-string=elastiController.manager.image.tag={operator}"),
            format!("--set-string=elastiResolver.proxy.image.tag={resolver}"),
        ];
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        release
            .run("install", &[&[CHART], &images[..], values].concat())
            .await?;
        Ok(release)
    }

    async fn run(&self, verb: &str, args: &[&str]) -> Result<()> {
        self.helm(&[&[verb, "elasti"], args, &["--wait", "--timeout=2m"]].concat())
            .await?;
        Ok(())
    }

    async fn helm(&self, args: &[&str]) -> Result<String> {
        let program = helm().display().to_string();
        let mut helm = process::Command::from(self.place.cluster.command(&program)?);
        helm.args(["--namespace", "elasti"]).args(args);
        succeeded(&helm.output().await?)
    }

    /// But the CRD, with which all ElastiServices would go.
    async fn leaves_nothing(self) -> Result<()> {
        let manifest = self.place.folder().join("manifest.yaml");
        fs::write(&manifest, self.helm(&["get", "manifest", "elasti"]).await?)?;
        self.run("uninstall", &["--cascade=foreground"]).await?;
        let mut kubectl = self.place.cluster.command("kubectl")?;
        kubectl.args(["get", "--ignore-not-found", "--output=name", "--filename"]);
        let left = succeeded(&kubectl.arg(manifest).stdin(Stdio::null()).output()?)?;
        ensure!(left.trim() == CRD, "{left} is left");
        Ok(())
    }
}

/// `slow`, asleep; its pod is not ready until it is opened.
async fn slow(stage: &Stage<'_>) -> Result<SocketAddr> {
    let slow = gated("slow", 0, &stage.image);
    stage.asleep_as("slow", slow, json!({})).await
}

/// `idle`, asleep.
async fn idle(stage: &Stage<'_>) -> Result<SocketAddr> {
    let idle = workload("idle", "Deployment", 0, &stage.image);
    stage.asleep_as("idle", idle, json!({})).await
}

/// Slices that point at resolvers.
fn ours() -> ListParams {
    ListParams::default().labels("endpointslice.kubernetes.io/managed-by=elasti-operator")
}

async fn ask(address: SocketAddr) -> Result<()> {
    let answer = timeout(2 * PATIENCE, fetch(&format!("http://{address}/hello"))).await;
    let answer = answer.context("no answer")??;
    ensure!(answer == "GET /hello\n", "{answer}");
    Ok(())
}

async fn keep_asking(address: SocketAddr) -> Result<()> {
    loop {
        ask(address).await?;
        sleep(Duration::from_millis(20)).await;
    }
}

/// `HELM`, or what `make chart` has installed.
fn helm() -> PathBuf {
    let own = || {
        let cache = env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty());
        let home = || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache");
        let cache = cache.map_or_else(home, PathBuf::from);
        cache.join("elasti/tools/bin/helm")
    };
    env::var_os("HELM").map_or_else(own, PathBuf::from)
}

fn template(set: &str, args: &[&str]) -> Result<Output> {
    let values = format!("--values={CHART}/ci/{set}.yaml");
    let mut helm = Command::new(helm());
    helm.args(["template", "elasti", CHART, "--namespace=elasti"]);
    helm.args([VERSION, &values]).args(args);
    helm.output().context("running helm: make chart")
}

fn rendered(set: &str) -> Result<Vec<Value>> {
    let text = succeeded(&template(set, &[])?)?;
    Ok(serde_saphyr::from_multiple(&text)?)
}

fn succeeded(output: &Output) -> Result<String> {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{error}");
    Ok(String::from_utf8_lossy(&output.stdout).into())
}

fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}/{}",
        text(&object["kind"]),
        text(&object["metadata"]["name"])
    )
}

fn rules(object: &Value) -> BTreeSet<String> {
    let rules = object["rules"].as_array().into_iter().flatten();
    rules.map(Value::to_string).collect()
}

/// Every number and text, and the names of those that only say yes.
fn leaves(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            if value == "yes" {
                texts.insert(key.clone());
            }
            leaves(value, texts);
        }),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, texts)),
        Value::String(text) => drop(texts.insert(text.clone())),
        Value::Number(number) => drop(texts.insert(number.to_string())),
        Value::Bool(_) | Value::Null => {}
    }
}
