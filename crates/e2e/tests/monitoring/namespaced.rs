use crate::{ask, can_be_applied, of_kind, path, rendered};
use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, Mode, Phase};
use elasti_e2e::{LONGEST, Place, install::install_overlay, stage::Stage, test_alone};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs};

const OVERLAY: &str = "config/namespaced";
const FOLDER: &str = "installation-namespaced";
/// Groups of what no Role could give.
const CLUSTER_WIDE: [&str; 2] = ["apiextensions.k8s.io", "authentication.k8s.io"];

#[test]
#[ignore = "needs a local cluster: make monitoring"]
fn in_some_namespaces_the_overlay_asks_for_nothing_cluster_wide() -> Result<()> {
    test_alone("namespaced", LONGEST, async |place| {
        let objects = rendered(place, OVERLAY)?;
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            ensure!(of_kind(&objects, kind).is_empty(), "it has a {kind}");
        }
        let base = rendered(place, "config/base")?;
        for (role, cluster_role) in [
            ("elasti-operator", "elasti-operator-controller-manager"),
            ("elasti-resolver", "elasti-resolver"),
        ] {
            let ours = rules(&of_kind(&objects, "Role"), role)?;
            let mut theirs = rules(&of_kind(&base, "ClusterRole"), cluster_role)?;
            theirs.retain(|rule| !CLUSTER_WIDE.iter().any(|group| rule.contains(group)));
            ensure!(ours == theirs, "{role}: {ours:#?} {theirs:#?}");
        }

        install_for(place)?;
        can_be_applied(place, OVERLAY)?;
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
        stage.delete::<ElastiService>("web").await?;
        elsewhere.leave().await
    })
}

/// For the namespace of the test, as the comments in the overlay say.
fn install_for(place: &Place) -> Result<()> {
    let namespace = place.namespace.name();
    let folder = path("target").join(FOLDER).join("mine");
    fs::create_dir_all(&folder)?;
    let permissions =
        format!("namespace: {namespace}\nresources:\n  - ../../../config/namespaced/permissions\n");
    fs::write(folder.join("kustomization.yaml"), permissions)?;
    let kustomization = format!(
        "resources:
  - ../../{OVERLAY}
  - mine
configMapGenerator:
  - name: elasti-namespaces
    namespace: elasti
    behavior: merge
    literals:
      - WATCH_NAMESPACES={namespace}
"
    );
    install_overlay(place.cluster, FOLDER, &kustomization)
}

fn rules(roles: &[&Value], name: &str) -> Result<BTreeSet<String>> {
    let role = roles.iter().find(|role| role["metadata"]["name"] == name);
    let rules = role.and_then(|role| role["rules"].as_array());
    let rules = rules.with_context(|| format!("{name} has rules"))?;
    Ok(rules.iter().map(Value::to_string).collect())
}
