//! Every way of speaking to a service finds it, though it sleeps.

use anyhow::Result;
use elasti_api::{Mode, Phase};
use elasti_e2e::{Identity, Manner, stage::Whole};
use serde_json::{Value, json};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_unary_grpc_call_waits_and_ends_with_its_status() -> Result<()> {
    wakes(Manner::Grpc)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_grpc_stream_goes_both_ways_at_once() -> Result<()> {
    wakes(Manner::GrpcStream)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_websocket_opens_when_its_target_is_awake() -> Result<()> {
    wakes(Manner::WebSocket)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn tls_goes_through_to_the_target_that_has_the_certificate() -> Result<()> {
    wakes(Manner::Tls)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_client_that_speaks_first_and_closes_its_side_gets_its_answer() -> Result<()> {
    wakes(Manner::Tcp)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_server_that_is_declared_to_speak_first_does() -> Result<()> {
    wakes(Manner::ServerFirst)
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_server_speaks_first_to_whoever_stays_silent() -> Result<()> {
    wakes_as(Manner::ServerFirst, |service| {
        for port in service["spec"]["ports"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            port["appProtocol"] = Value::Null;
        }
    })
}

fn wakes(manner: Manner) -> Result<()> {
    wakes_as(manner, |_| {})
}

fn wakes_as(manner: Manner, amend: impl FnOnce(&mut Value) + Send) -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let identity = Identity::make()?;
        let [mut web, mut service] = identity.application("web", &whole.stage.image, 0);
        web["spec"]["replicas"] = json!(0);
        amend(&mut service);
        place.put(web).await?;
        place.put(service).await?;
        whole.stage.declare(json!({})).await?;
        whole.stage.reaches(Phase::Asleep, Mode::Proxy).await?;
        let address = whole.stage.reach("web", 80).await?;
        identity.visitor(address.ip())?.ask(manner).await
    })
}
