use crate::{
    life::{idle, slow},
    release::{CRD, Release},
    traffic::{ask, crowd},
};
use anyhow::{Context, Result, ensure};
use elasti_api::ElastiService;
use elasti_e2e::{LONGEST, stage::Stage, test_alone};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{ResourceExt, api::ListParams};
use serde_json::json;
use std::time::Duration;
use tokio::{
    time::{Instant, sleep},
    try_join,
};

/// A target is waited for that long, and longer while others come up.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
#[ignore = "needs a local cluster: make chart"]
fn an_uninstall_at_full_traffic_loses_no_request() -> Result<()> {
    test_alone("chart-traffic", LONGEST, async |place| {
        let release = Release::install(place, &[]).await?;
        let stage = Stage::empty(place).await?;
        stage.sleeping().await?;
        let web = stage.reach("web", 80).await?;
        ask(web).await?;
        let idle = idle(&stage).await?;
        let [late, later] = [slow(&stage, "late").await?, slow(&stage, "later").await?];

        let come_up = async {
            sleep(PATIENCE * 2 / 3).await;
            stage.open("late").await?;
            sleep(PATIENCE * 5 / 6).await;
            stage.open("later").await?;
            Ok(())
        };
        let leave = async {
            try_join!(release.leaves_nothing(), come_up)?;
            Ok(())
        };
        crowd(web, crowd(late, crowd(later, leave))).await?;
        ask(idle).await.context("left asleep")?;

        let slices = stage.api::<EndpointSlice>().list(&ours()).await?.items;
        ensure!(slices.is_empty(), "{slices:?} are left");
        for name in ["web", "idle", "late", "later"] {
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
        slow(&stage, "slow").await?;
        release.leaves_nothing().await?;
        let left = stage.api::<ElastiService>().get("slow").await?;
        ensure!(left.finalizers().is_empty(), "{left:?}");
        stage.target("slow").await?;
        Ok(())
    })
}

/// It can give nothing back in order: it never leads.
#[test]
#[ignore = "needs a local cluster: make chart"]
fn an_uninstall_that_lets_go_leaves_nothing_asleep() -> Result<()> {
    test_alone("chart-deadline", LONGEST, async |place| {
        let release = Release::install(place, &["--set=uninstall.deadlineSeconds=5"]).await?;
        let stage = Stage::empty(place).await?;
        slow(&stage, "slow").await?;
        let kubectl = |args: &[&str]| place.kubectl_text(&[&["--namespace=elasti"], args].concat());
        let operators = "--selector=control-plane=controller-manager";
        kubectl(&["scale", "--replicas=0", "deployment", operators])?;
        kubectl(&["wait", "--for=delete", "pod", operators, "--timeout=1m"])?;
        let taken = json!({"spec": {"holderIdentity": "nobody", "leaseDurationSeconds": 3600}});
        let taken = taken.to_string();
        let lease = ["patch", "lease/elasti-operator", "--type=merge", "--patch"];
        kubectl(&[&lease[..], &[&*taken]].concat())?;
        release.leaves_nothing().await?;
        let left = stage.api::<ElastiService>().get("slow").await?;
        ensure!(left.finalizers().is_empty(), "{left:?}");
        stage.target("slow").await?;
        Ok(())
    })
}

#[test]
#[ignore = "needs a local cluster: make chart"]
fn an_uninstall_without_the_crd_has_nothing_to_wait_for() -> Result<()> {
    test_alone("chart-crd", LONGEST, async |place| {
        let release = Release::install(place, &[]).await?;
        place.kubectl_text(&["delete", CRD])?;
        let begun = Instant::now();
        let left = release.uninstall().await?;
        ensure!(left.is_empty(), "{left} is left");
        let took = begun.elapsed();
        ensure!(took < 2 * PATIENCE, "it took {took:?}");
        Ok(())
    })
}

/// Slices that point at resolvers.
fn ours() -> ListParams {
    ListParams::default().labels("endpointslice.kubernetes.io/managed-by=elasti-operator")
}
