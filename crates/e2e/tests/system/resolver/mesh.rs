use anyhow::{Context, Result, ensure};
use elasti_api::names;
use elasti_e2e::{
    fetch,
    stage::{Cast, Whole},
};
use k8s_openapi::api::core::v1::Service;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn where_only_services_may_be_dialled_the_private_one_is() -> Result<()> {
    elasti_e2e::test(async |place| {
        let cast = Cast::default()
            .operator_flag("private-addresses", true)
            .resolver_flag("dial", "cluster-ip");
        let whole = Whole::with(place, cast).await?;
        let stage = &whole.stage;
        stage.sleeping().await?;
        let private: Service = stage.api().get(&names::private_service("web")).await?;
        let address = private.spec.and_then(|spec| spec.cluster_ip);
        let address = address.context("it has an address")?;
        ensure!(address != "None", "one that can be dialled");
        let url = format!("http://{}/meshed", stage.reach("web", 80).await?);
        ensure!(fetch(&url).await? == "GET /meshed\n");
        let dials = "elasti_resolver_dial_seconds_count";
        let dialled = whole.samples(dials, &[("result", "success")]).await?;
        ensure!(dialled.iter().sum::<f64>() >= 1.0, "{dialled:?}");
        Ok(())
    })
}
