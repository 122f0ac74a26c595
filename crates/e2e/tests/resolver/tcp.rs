use crate::sleeping;
use anyhow::{Result, ensure};
use elasti_e2e::stage::{Stage, Whole};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const GREETING: &str = "220 echo\r\n";

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_client_that_speaks_first_and_closes_its_side_gets_its_answer() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let address = doors(&whole.stage, json!({"port": 7, "targetPort": 9000})).await?;
        let mut client = TcpStream::connect(address).await?;
        client.write_all(b"\x00\x01ping").await?;
        client.shutdown().await?;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await?;
        ensure!(answer == b"\x00\x01ping", "{answer:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_server_that_is_declared_to_speak_first_does() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let declared = json!({"port": 25, "targetPort": 9001, "appProtocol": "smtp"});
        let address = doors(&whole.stage, declared).await?;
        is_greeted(address).await
    })
}

#[test]
#[ignore = "needs a cluster: make e2e"]
fn a_server_speaks_first_to_whoever_stays_silent() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let address = doors(&whole.stage, json!({"port": 25, "targetPort": 9001})).await?;
        is_greeted(address).await
    })
}

/// The address of a port of `web`, which sleeps. The data plane is asked for another port: whoever
/// only looks at this one might wake it.
async fn doors(stage: &Stage<'_>, mut port: Value) -> Result<SocketAddr> {
    port["name"] = "plain".into();
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}, port]);
    let make = |container: &mut Value| {
        container["args"] = json!(["tcp=9000", "greeting=9001"]);
    };
    sleeping(stage, ports, make).await?;
    let mut address = stage.reach("web", 80).await?;
    address.set_port(port["port"].as_u64().unwrap_or_default().try_into()?);
    Ok(address)
}

async fn is_greeted(address: SocketAddr) -> Result<()> {
    let mut client = TcpStream::connect(address).await?;
    let mut greeting = [0; GREETING.len()];
    client.read_exact(&mut greeting).await?;
    ensure!(greeting == GREETING.as_bytes(), "{greeting:?}");
    client.write_all(b"quit").await?;
    client.shutdown().await?;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await?;
    ensure!(answer == "quit", "{answer}");
    Ok(())
}
