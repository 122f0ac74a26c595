//! An operator that hears every knock and does nothing: who wakes the target here is the program.

use anyhow::Result;
use http_body_util::Full;
use hyper::{Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, net::IpAddr};
use tokio::{net::TcpListener, task::JoinSet};

pub(crate) const SERVICE: &str = "operator";
pub(crate) const PORT: u16 = 18_090;

/// Works until it is dropped.
pub(crate) async fn listen(address: IpAddr) -> Result<JoinSet<()>> {
    let listener = TcpListener::bind((address, PORT)).await?;
    let mut listening = JoinSet::new();
    listening.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(heard)));
                },
                Some(_) = connections.join_next() => {}
            }
        }
    });
    Ok(listening)
}

async fn heard<R>(_: R) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::default()))
}
