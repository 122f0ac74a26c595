use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase, names};
use elasti_e2e::stage::{Gate, Rule, Setting, Stage, service};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::json;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_private_service_follows_the_public_one() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let ports = json!({"spec": {"ports": [{"port": 81, "targetPort": 8080}]}});
        stage.amend_object::<Service>("web", ports).await?;
        let private = names::private_service("web");
        let follows = |service: &Service| {
            let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
            ports.is_some_and(|ports| ports.iter().any(|port| port.port == 81))
        };
        stage.until(&private, "port 81", follows).await?;
        stage
            .api::<Service>()
            .delete(&private, &DeleteParams::default())
            .await?;
        stage.until(&private, "made again", follows).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_private_service_follows_selector_and_labels_and_has_its_owner_again() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        let labelled = json!({"metadata": {"labels": {"tier": "front", "team": "blue"}}});
        stage.amend_object::<Service>("web", labelled).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let owner = stage.uid::<ElastiService>("web").await?;
        let private = names::private_service("web");
        let others = json!({"metadata": {"labels": {"theirs": "yes"}}});
        stage.amend_object::<Service>(&private, others).await?;

        let changed = json!({
            "metadata": {"labels": {"tier": null}},
            "spec": {"selector": {"app": "web", "of": "web"}},
        });
        stage.amend_object::<Service>("web", changed).await?;
        let follows = |service: &Service| {
            let selector = service
                .spec
                .as_ref()
                .and_then(|spec| spec.selector.as_ref());
            selector.is_some_and(|selector| selector.len() == 2)
                && service
                    .labels()
                    .get("team")
                    .is_some_and(|team| team == "blue")
                && !service.labels().contains_key("tier")
                && service.owner_references().iter().any(|it| it.uid == owner)
        };
        let followed = stage.until(&private, "what changed", follows).await?;
        ensure!(followed.labels().contains_key("theirs"), "{followed:?}");
        let orphan = json!({"metadata": {"ownerReferences": null}});
        stage.amend_object::<Service>(&private, orphan).await?;
        stage.until(&private, "its owner again", follows).await?;
        stage
            .api::<Service>()
            .delete(&private, &DeleteParams::default())
            .await?;
        stage.until(&private, "made again", follows).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_somebody_else_makes_first_is_put_right() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let gate = Gate::open(place)?;
        let setting = Setting::default().through(&gate);
        let _operator = stage.operator_with(setting).await?;
        stage.deploy("Deployment", 0).await?;
        let private = names::private_service("web");
        let creating = gate.hold(Rule::new("POST", "/services"));
        stage.declare(json!({})).await?;
        creating.await?;
        let ports = json!([{"name": "http", "port": 80, "targetPort": 9}]);
        let mut anothers = service(&private, "another", &ports);
        anothers["spec"]["clusterIP"] = json!("None");
        place.put(anothers).await?;
        let slice = names::resolver_slice("web");
        gate.release();
        let publishing = gate.hold(Rule::new("PATCH", "/endpointslices/"));
        let follows = |service: &Service| {
            let selector = service.spec.clone().and_then(|spec| spec.selector);
            selector.is_some_and(|selector| selector["app"] == "web")
                && service.owner_references().len() == 1
        };
        stage
            .until(&private, "that of the public one", follows)
            .await?;
        publishing.await?;
        let to_nobody = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": slice, "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.1"]}],
            "ports": [{"port": 9}],
        });
        place.put(to_nobody).await?;
        gate.release();
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let leads_on = |slice: &EndpointSlice| {
            let mut addresses = slice.endpoints.iter().flat_map(|it| &it.addresses);
            slice.owner_references().len() == 1 && addresses.all(|it| it != "192.0.2.1")
        };
        stage
            .until(&slice, "one that leads to resolvers", leads_on)
            .await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_private_service_costs_no_address_unless_that_is_wanted() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        let private = names::private_service("web");
        let address = |service: &Service| service.spec.clone()?.cluster_ip;
        {
            let _operator = stage.operator().await?;
            let headless = |service: &Service| address(service).as_deref() == Some("None");
            stage.until(&private, "headless", headless).await?;
        }
        let addressed = |service: &Service| address(service).is_some_and(|ip| ip != "None");
        let wanted = Setting::default().flag("private-addresses", true);
        {
            let _operator = stage.operator_with(wanted).await?;
            stage.until(&private, "an address", addressed).await?;
        }
        // It cannot be taken away again, and hinders nothing.
        let _operator = stage.operator().await?;
        let ports = json!({"spec": {"ports": [{"port": 81, "targetPort": 8080}]}});
        stage.amend_object::<Service>("web", ports).await?;
        let follows = |service: &Service| {
            let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
            addressed(service) && ports.is_some_and(|ports| ports[0].port == 81)
        };
        stage.until(&private, "port 81", follows).await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_missing_service_or_target_is_told_in_a_condition() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.declare(json!({})).await?;
        stage
            .condition("web", "ServiceFound", "False", "ServiceMissing")
            .await?;
        stage.deploy("Deployment", 1).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.delete::<Deployment>("web").await?;
        stage
            .condition("web", "TargetFound", "False", "TargetMissing")
            .await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn what_sleeps_without_a_service_is_not_said_to_be_proxied() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.sleeping().await?;
        stage.delete::<Service>("web").await?;
        stage.reaches(Phase::Asleep, Mode::Serve).await?;
        stage.has_no_resolver_slice("web").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_service_that_cannot_be_woken_is_told_in_a_condition() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        stage.delete::<Service>("web").await?;
        let meta =
            |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}});
        let mut unselective = meta("web");
        unselective["spec"] = json!({"ports": [{"port": 80}]});
        place.put(unselective).await?;
        let mut external = meta("far");
        external["spec"] = json!({"type": "ExternalName", "externalName": "example.com"});
        place.put(external).await?;
        stage.declare(json!({})).await?;
        stage.declare_as("far", json!({})).await?;
        for (name, word) in [("web", "selector"), ("far", "ExternalName")] {
            let condition = stage
                .condition(name, "ServiceFound", "False", "ServiceUnusable")
                .await?;
            ensure!(condition.message.contains(word), "{}", condition.message);
        }
        let selector = json!({"spec": {"selector": {"app": "web"}}});
        stage.amend_object::<Service>("web", selector).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn another_service_is_taken_while_asleep() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        place.put(shop()).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let slice = names::resolver_slice("web");
        let uid = stage.uid::<EndpointSlice>(&slice).await?;

        changed_to_shop(&stage).await?;
        stage.gone::<EndpointSlice>(&slice, &uid).await?;
        stage
            .until::<EndpointSlice>(&names::resolver_slice("shop"), "published", |_| true)
            .await?;
        operator.knock("shop").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.has_no_resolver_slice("shop").await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn another_service_is_taken_while_awake() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.deploy("Deployment", 1).await?;
        place.put(shop()).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        changed_to_shop(&stage).await?;
        stage.scale("web", 0).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        stage.has_no_resolver_slice("web").await?;
        operator.knock("shop").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_younger_of_two_that_name_one_service_says_so() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let _operator = stage.operator().await?;
        stage.deploy("Deployment", 0).await?;
        stage.declare(json!({})).await?;
        stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let same = json!({
            "service": "web",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        });
        stage.declare_as("younger", same).await?;
        stage
            .condition("younger", "Ready", "False", "Conflict")
            .await?;
        stage.delete::<ElastiService>("web").await?;
        stage
            .condition("younger", "Ready", "True", "AllInPlace")
            .await
            .context("it inherits")?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn the_younger_of_two_that_name_one_target_leaves_it_to_the_older() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.sleeping().await?;
        place.put(shop()).await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let same_target = json!({"service": "shop", "scaleTargetRef": target});
        stage.declare_as("younger", same_target).await?;
        stage
            .condition("younger", "Ready", "False", "Conflict")
            .await?;
        operator.knock("shop").await?;
        operator.knock("web").await?;
        stage.reaches(Phase::Awake, Mode::Serve).await?;
        stage.has_no_resolver_slice("shop").await?;
        stage.delete::<ElastiService>("web").await?;
        stage
            .reaches_as("younger", Phase::Awake, Mode::Serve)
            .await
            .context("it inherits")
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_sleeper_that_the_older_of_two_lets_go_of_passes_to_the_younger() -> Result<()> {
    elasti_e2e::test(async |place| {
        let stage = Stage::set(place).await?;
        let operator = stage.operator().await?;
        stage.sleeping().await?;
        place.put(shop()).await?;
        let target = |name| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        let same = json!({"service": "web", "scaleTargetRef": target("web")});
        stage.declare_as("younger", same).await?;
        stage
            .condition("younger", "Ready", "False", "Conflict")
            .await?;
        let other = json!({"service": "shop", "scaleTargetRef": target("shop")});
        stage.amend("web", other).await?;
        stage
            .reaches_as("younger", Phase::Asleep, Mode::Proxy)
            .await?;
        let heir = stage.uid::<ElastiService>("younger").await?;
        let is_its = |owners: &[OwnerReference]| matches!(owners, [owner] if owner.uid == heir);
        stage
            .until::<EndpointSlice>(&names::resolver_slice("web"), "the younger's", |slice| {
                is_its(slice.owner_references())
            })
            .await?;
        stage
            .until::<Service>(&names::private_service("web"), "the younger's", |service| {
                is_its(service.owner_references())
            })
            .await?;
        operator.knock("web").await?;
        stage.reaches_as("younger", Phase::Awake, Mode::Serve).await
    })
}

/// A second service for the pods of `web`.
fn shop() -> serde_json::Value {
    service("shop", "web", &json!([{"port": 80, "targetPort": 8080}]))
}

/// The private service of the old one goes, that of the new one comes.
async fn changed_to_shop(stage: &Stage<'_>) -> Result<()> {
    let private = names::private_service("web");
    let uid = stage.uid::<Service>(&private).await?;
    stage.amend("web", json!({"service": "shop"})).await?;
    stage
        .until::<Service>(&names::private_service("shop"), "made", |_| true)
        .await?;
    stage.gone::<Service>(&private, &uid).await
}
