use super::sleeping;
use anyhow::{Result, ensure};
use elasti_e2e::{fetch, stage::Whole};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

#[test]
#[ignore = "needs a cluster: make e2e"]
fn each_port_of_a_service_leads_to_its_own_at_the_target() -> Result<()> {
    elasti_e2e::test(async |place| {
        let whole = Whole::set(place).await?;
        let ports = json!([
            {"name": "http", "port": 80, "targetPort": 8080},
            {"name": "talk", "port": 7, "targetPort": 9000},
        ]);
        let make = |container: &mut Value| container["args"] = json!(["tcp=9000"]);
        sleeping(&whole.stage, ports, make).await?;
        let http = whole.stage.reach("web", 80).await?;
        let url = format!("http://{http}/");
        let (answer, echo) = tokio::join!(fetch(&url), talk(SocketAddr::new(http.ip(), 7)));
        ensure!(answer? == "GET /\n");
        ensure!(echo? == "* hello");
        Ok(())
    })
}

async fn talk(address: SocketAddr) -> Result<String> {
    let mut client = TcpStream::connect(address).await?;
    client.write_all(b"* hello").await?;
    client.shutdown().await?;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await?;
    Ok(answer)
}
