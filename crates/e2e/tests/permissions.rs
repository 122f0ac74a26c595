//! Operator and resolver may do what they do, and nothing else: what the API server's audit log tells of them is
//! compared with the roles of `config/base`, and nothing that they ask for is refused.

use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase, names};
use elasti_e2e::{
    LONGEST, establish, fetch,
    install::install,
    scalable,
    stage::{Meter, Stage, courteous, scaled_object, service, workload},
    test_alone,
};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, net::SocketAddr};

const ROLES: [&str; 2] = [
    include_str!("../../../config/base/operator-permissions.yaml"),
    include_str!("../../../config/base/resolver-permissions.yaml"),
];
const KEDA: &str = include_str!("system/operator/keda.yaml");
const ACCOUNTS: [&str; 2] = ["elasti-operator-controller-manager", "elasti-resolver"];
/// What only some API servers ask for: those that check who may make owners, and OpenShift's for slices.
const ELSEWHERE: [&str; 2] = [
    "update elasti.truefoundry.com/elastiservices/finalizers",
    "create discovery.k8s.io/endpointslices/restricted",
];

#[test]
#[ignore = "needs a local cluster: make chart"]
fn they_use_every_permission_that_they_ask_for() -> Result<()> {
    test_alone("permissions", LONGEST, async |place| {
        let stage = Stage::empty(place).await?;
        let rollouts = scalable("argoproj.io", "Rollout", "rollouts")?;
        establish(place.cluster, &place.client, &rollouts).await?;
        stage.install(KEDA).await?;
        install(place.cluster)?;
        live(&stage).await?;
        let logs = place.cluster.logs().context("it is a local one")?;
        let audit = fs::read_to_string(logs.join("audit.log"))?;
        for (account, roles) in ACCOUNTS.into_iter().zip(ROLES) {
            let used = used(&audit, account)?;
            let granted = granted(roles)?;
            let idle: Vec<_> = granted.difference(&used).collect();
            ensure!(idle.is_empty(), "{account} never used {idle:#?}");
            let refused = refused(&audit, account)?;
            ensure!(refused.is_empty(), "{account} may not {refused:#?}");
        }
        Ok(())
    })
}

/// All that an ElastiService can ask of them.
async fn live(stage: &Stage<'_>) -> Result<()> {
    let meter = Meter::idle(stage.place).await?;
    for (name, kind, version) in [
        ("web", "Deployment", "apps/v1"),
        ("store", "StatefulSet", "apps/v1"),
        ("canary", "Rollout", "argoproj.io/v1"),
    ] {
        // Nobody runs pods for a Rollout here.
        let replicas = i32::from(kind != "Rollout");
        let mut target = workload(name, kind, replicas, &stage.image);
        target["apiVersion"] = json!(version);
        stage.serve(name, courteous(target, 3)).await?;
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": name},
            "triggers": meter.triggers(),
            "cooldownPeriod": 1,
        });
        if name == "web" {
            stage.place.put(scaled_object("web")).await?;
            spec["autoscaler"] = json!({"type": "keda", "name": "web"});
        }
        stage.declare_as(name, spec).await?;
    }
    stage
        .reaches_as("canary", Phase::Asleep, Mode::Proxy)
        .await?;
    for name in ["web", "store"] {
        stage.reaches_as(name, Phase::Asleep, Mode::Proxy).await?;
        stage.pods_end(&format!("of={name}")).await?;
        stage.amend(name, json!({"triggers": []})).await?;
        let address = stage.reach(name, 80).await?;
        wake(stage, name, address).await?;
    }
    let web = stage.reach("web", 80).await?;
    // What happens again is told by an event that counts, if the same of two operators tells it.
    for _ in 0..2 {
        stage
            .amend("web", json!({"triggers": meter.triggers()}))
            .await?;
        stage.reaches_as("web", Phase::Asleep, Mode::Proxy).await?;
        stage.pods_end("of=web").await?;
        stage.amend("web", json!({"triggers": []})).await?;
        wake(stage, "web", web).await?;
    }
    for name in ["web", "canary"] {
        take_another_service(stage, name).await?;
    }
    for name in ["web", "store", "canary"] {
        stage.delete::<ElastiService>(name).await?;
    }
    Ok(())
}

/// What was made for the old one goes: for one that sleeps slices, too.
async fn take_another_service(stage: &Stage<'_>, name: &str) -> Result<()> {
    let other = format!("other-{name}");
    let ports = json!([{"port": 80, "targetPort": 8080}]);
    stage.place.put(service(&other, name, &ports)).await?;
    let private = names::private_service(name);
    let slice = names::resolver_slice(name);
    let left = stage.uid::<Service>(&private).await?;
    let published = stage.api::<EndpointSlice>().get_opt(&slice).await?;
    stage.amend(name, json!({"service": other})).await?;
    stage.gone::<Service>(&private, &left).await?;
    if let Some(uid) = published.and_then(|slice| slice.metadata.uid) {
        stage.gone::<EndpointSlice>(&slice, &uid).await?;
    }
    stage
        .condition(name, "Ready", "True", "AllInPlace")
        .await
        .map(drop)
}

async fn wake(stage: &Stage<'_>, name: &str, address: SocketAddr) -> Result<()> {
    fetch(&format!("http://{address}/")).await?;
    stage.reaches_as(name, Phase::Awake, Mode::Serve).await
}

/// An object that a patch makes is created, too, and the API server asks for both.
fn used(audit: &str, account: &str) -> Result<BTreeSet<String>> {
    let mut used = BTreeSet::new();
    for event in events(audit, account)? {
        let (verb, what) = (verb(&event), object(&event));
        used.insert(format!("{verb} {what}"));
        if verb == "patch" && event["responseStatus"]["code"] == 201 {
            used.insert(format!("create {what}"));
        }
    }
    Ok(used)
}

/// Whatever it was that forbade it.
fn refused(audit: &str, account: &str) -> Result<BTreeSet<String>> {
    let events = events(audit, account)?;
    let refused = events
        .iter()
        .filter(|event| event["responseStatus"]["code"] == 403);
    Ok(refused
        .map(|event| format!("{} {}", verb(event), object(event)))
        .collect())
}

/// What one account did to objects.
fn events(audit: &str, account: &str) -> Result<Vec<Value>> {
    let account = format!(":{account}");
    let events: Vec<Value> = audit
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let is_its = |event: &Value| {
        let user = event["user"]["username"].as_str().unwrap_or_default();
        user.ends_with(&account) && event["objectRef"].is_object()
    };
    Ok(events.into_iter().filter(is_its).collect())
}

fn verb(event: &Value) -> &str {
    event["verb"].as_str().unwrap_or_default()
}

fn object(event: &Value) -> String {
    let text = |name: &str| event["objectRef"][name].as_str().unwrap_or_default();
    named(text("apiGroup"), text("resource"), text("subresource"))
}

fn granted(roles: &str) -> Result<BTreeSet<String>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(roles)?;
    let rules = objects
        .iter()
        .filter_map(|object| object["rules"].as_array());
    let mut granted = BTreeSet::new();
    for rule in rules.flatten() {
        let all = |key: &str| {
            let list = rule[key].as_array().into_iter().flatten();
            list.filter_map(Value::as_str)
        };
        for group in all("apiGroups") {
            for resource in all("resources") {
                let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
                let what = named(group, resource, part);
                granted.extend(all("verbs").map(|verb| format!("{verb} {what}")));
            }
        }
    }
    granted.retain(|permission| !ELSEWHERE.contains(&permission.as_str()));
    Ok(granted)
}

fn named(group: &str, resource: &str, part: &str) -> String {
    let parts = [group, resource, part];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("/")
}
