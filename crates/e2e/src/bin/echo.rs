//! The application that tests put to sleep: it answers every request with what it was asked. Called
//! as `elasti-echo get URL` it is the client instead, for use inside pods. As `elasti-echo
//! ports=8012,10000-10063` it listens there too, and so stands in for a resolver.

use anyhow::{Context, Result, bail};
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
async fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => serve(&[]).await,
        ["get", url] => {
            print!("{}", elasti_e2e::fetch(url).await?);
            Ok(())
        }
        [arg] if let Some(list) = arg.strip_prefix("ports=") => serve(&ports(list)?).await,
        other => bail!("elasti-echo takes nothing, `ports=LIST`, or `get URL`, not {other:?}"),
    }
}

/// `8012,10000-10063`
fn ports(list: &str) -> Result<Vec<u16>> {
    let mut ports = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let parse = |text: &str| {
            text.parse::<u16>()
                .with_context(|| format!("port {text:?}"))
        };
        ports.extend(parse(first)?..=parse(last)?);
    }
    Ok(ports)
}

async fn serve(more: &[u16]) -> Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    let mut listeners = JoinSet::new();
    for port in more.iter().chain([&PORT]) {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).await?;
        listeners.spawn(accept(listener));
    }
    println!("Listening on {PORT}");
    tokio::select! {
        Some(ended) = listeners.join_next() => ended?,
        _ = stop.recv() => Ok(()),
    }
}

async fn accept(listener: TcpListener) -> Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo)));
            }
            Some(_) = connections.join_next() => {}
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
