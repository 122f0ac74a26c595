//! The application that tests put to sleep: it answers every request with what it was asked. Called
//! as `elasti-echo get URL` it is the client instead, for use inside pods.

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, env, net::Ipv6Addr};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

const PORT: u16 = 8080;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => serve().await,
        ["get", url] => {
            print!("{}", elasti_e2e::fetch(url).await?);
            Ok(())
        }
        other => anyhow::bail!("elasti-echo takes nothing, or `get URL`, not {other:?}"),
    }
}

async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).await?;
    println!("Listening on {PORT}");
    let mut stop = signal(SignalKind::terminate())?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo)));
            }
            Some(_) = connections.join_next() => {}
            _ = stop.recv() => return Ok(()),
        }
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from(format!(
        "{} {}\n",
        request.method(),
        request.uri()
    ))))
}
