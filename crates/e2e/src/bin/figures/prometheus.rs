//! A Prometheus that knows one answer: 1. To the health query that means up, and it is below the
//! threshold of our triggers, which means idle.

use anyhow::Result;
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{convert::Infallible, net::Ipv4Addr};
use tokio::{net::TcpListener, task::JoinSet};

const PORT: u16 = 18_091;
const ANSWER: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1735689600,"1"]}]}}"#;

pub(crate) fn trigger() -> Value {
    json!([{"type": "prometheus", "metadata": {
        "serverAddress": format!("http://127.0.0.1:{PORT}"),
        "query": "sum(rate(envoy_cluster_upstream_rq{cluster=\"web\"}[1m])) or vector(0)",
        "threshold": "2",
    }}])
}

pub(crate) async fn start() -> Result<JoinSet<()>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await?;
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)),
            );
            while connections.try_join_next().is_some() {}
        }
    });
    Ok(server)
}

async fn answer<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from(ANSWER)))
}
