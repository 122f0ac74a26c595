//! The admin routes, over the wire.

use anyhow::{Context, Result};
use elasti_runtime::{admin, readiness::Readiness};
use prometheus::{IntCounter, Registry};
use std::{iter, net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

const LENGTH: usize = 4 << 20;

struct Admin {
    address: SocketAddr,
    readiness: Readiness,
}

async fn start(registry: Registry) -> Result<Admin> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let readiness = Readiness::new();
    let router = admin::router(
        registry,
        readiness.clone(),
        Arc::new(|| Box::new(iter::once("page 1\n".to_owned()))),
    );
    tokio::spawn(admin::serve(listener, router, CancellationToken::new()));
    Ok(Admin { address, readiness })
}

fn counted(name: &str, help: &str) -> Result<Registry> {
    let registry = Registry::new();
    let counter = IntCounter::new(name, help)?;
    counter.inc();
    registry.register(Box::new(counter))?;
    Ok(registry)
}

async fn ask(address: SocketAddr, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Status and body.
async fn get(address: SocketAddr, path: &str) -> Result<(String, String)> {
    let mut answer = String::new();
    let mut stream = ask(address, path).await?;
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("a head")?;
    Ok((head[9..12].to_owned(), body.to_owned()))
}

#[tokio::test]
async fn metrics_bear_the_names_they_were_registered_with() -> Result<()> {
    let registry = counted("elasti_operator_scale_counter", "Scalings")?;
    let admin = start(registry).await?;
    let (status, body) = get(admin.address, "/metrics").await?;
    assert_eq!(status, "200");
    assert!(
        body.contains("\nelasti_operator_scale_counter 1\n"),
        "{body}"
    );
    Ok(())
}

#[tokio::test]
async fn readiness_says_what_it_waits_for_and_health_does_not_care() -> Result<()> {
    let admin = start(Registry::new()).await?;
    let services = admin.readiness.register("services");
    let slices = admin.readiness.register("slices");
    let waiting = (
        "503".to_owned(),
        "waiting for services, slices\n".to_owned(),
    );
    assert_eq!(get(admin.address, "/readyz").await?, waiting);
    let ok = ("200".to_owned(), "ok".to_owned());
    assert_eq!(get(admin.address, "/healthz").await?, ok);
    services.done();
    slices.done();
    assert_eq!(get(admin.address, "/readyz").await?, ok);
    admin.readiness.fail();
    assert_eq!(get(admin.address, "/readyz").await?.0, "503");
    assert_eq!(get(admin.address, "/healthz").await?, ok);
    Ok(())
}

#[tokio::test]
async fn readers_who_do_not_read_cost_a_bounded_amount() -> Result<()> {
    let admin = start(counted("large", &"x".repeat(LENGTH))?).await?;
    let (status, body) = get(admin.address, "/metrics").await?;
    assert!(
        status == "200" && body.len() > LENGTH,
        "a reader gets it all"
    );

    let mut stuck = Vec::new();
    for _ in 0..50 {
        let mut stream = ask(admin.address, "/metrics").await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        stuck.push((stream, head));
    }
    let taken = stuck
        .iter()
        .filter(|(_, head)| head.ends_with(b"200"))
        .count();
    assert_eq!(taken, 8, "the others are turned away at once");
    assert_eq!(get(admin.address, "/healthz").await?.0, "200");
    drop(stuck);
    while get(admin.address, "/metrics").await?.0 != "200" {
        tokio::task::yield_now().await;
    }
    Ok(())
}
