//! The application that tests put to sleep: it answers every request with what it was asked. Called
//! as `elasti-echo get URL`, `elasti-echo call HOST:PORT` (gRPC) or `elasti-echo say HOST:PORT WORDS` (TCP) it is the
//! client instead, and with `wait` before that only when it was given a line. As `elasti-echo
//! ports=8012,10000-10063` it listens there too, and so stands in for a resolver. `late=3` lets it
//! begin three seconds late, `unready=3` refuse for three seconds more, `port=9090` listen there and
//! `snub=ADDRESS` never speak with whoever comes from there; `tcp=PORT`, `greeting=PORT` and `tls=PORT`
//! open doors for those who do not speak HTTP.

mod client;
mod http;
mod tcp;
mod tls;

use anyhow::{Context, Result, bail};
use elasti_runtime::listen;
use http::Answers;
use std::{env, net::IpAddr, str::FromStr, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time,
};

const PORT: u16 = 8080;

/// Where it listens besides its own port, and when.
#[derive(Default)]
struct Doors {
    own: Option<u16>,
    http: Vec<u16>,
    tcp: Option<u16>,
    greeting: Option<u16>,
    tls: Option<u16>,
    late: Duration,
    unready: Duration,
    snub: Option<IpAddr>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let Some(answer) = client::ask(&words).await? {
        print!("{answer}");
        return Ok(());
    }
    serve(Doors::read(&args)?).await
}

async fn serve(doors: Doors) -> Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    tokio::select! {
        () = time::sleep(doors.late) => {}
        _ = stop.recv() => return Ok(()),
    }
    let answers = Answers::ready_after(doors.unready);
    let mut listeners = JoinSet::new();
    let own = doors.own.unwrap_or(PORT);
    for port in doors.http.into_iter().chain([own]) {
        let (listener, answers) = (bind(port)?, answers.clone());
        listeners.spawn(accept(listener, doors.snub, move |stream| {
            http::serve(stream, answers.clone())
        }));
    }
    if let Some(port) = doors.tcp {
        let echo = |stream| tcp::echo(stream, "");
        listeners.spawn(accept(bind(port)?, doors.snub, echo));
    }
    if let Some(port) = doors.greeting {
        let greet = |stream| tcp::echo(stream, tcp::GREETING);
        listeners.spawn(accept(bind(port)?, doors.snub, greet));
    }
    if let Some(port) = doors.tls {
        let (listener, acceptor) = (bind(port)?, tls::acceptor()?);
        listeners.spawn(accept(listener, doors.snub, move |stream| {
            tls::serve(acceptor.clone(), stream, answers.clone())
        }));
    }
    println!("Listening on {own}");
    tokio::select! {
        Some(ended) = listeners.join_next() => ended?,
        _ = stop.recv() => Ok(()),
    }
}

fn bind(port: u16) -> Result<TcpListener> {
    let listener = listen::everywhere(port);
    listener.with_context(|| format!("listening on {port}"))
}

async fn accept<F>(
    listener: TcpListener,
    snub: Option<IpAddr>,
    serve: impl Fn(TcpStream) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, client) = accepted?;
                if Some(client.ip().to_canonical()) != snub {
                    connections.spawn(serve(stream));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

// === impl Doors ===

impl Doors {
    fn read(args: &[String]) -> Result<Self> {
        let mut doors = Self::default();
        for arg in args {
            match arg.split_once('=') {
                Some(("ports", list)) => doors.http = ports(list)?,
                Some(("tcp", port)) => doors.tcp = Some(number(port)?),
                Some(("greeting", port)) => doors.greeting = Some(number(port)?),
                Some(("tls", port)) => doors.tls = Some(number(port)?),
                Some(("late", seconds)) => doors.late = Duration::from_secs(number(seconds)?),
                Some(("unready", seconds)) => doors.unready = Duration::from_secs(number(seconds)?),
                Some(("snub", address)) => {
                    let parsed = address.parse();
                    doors.snub =
                        Some(parsed.with_context(|| format!("{address:?} is no address"))?);
                }
                Some(("port", port)) => doors.own = Some(number(port)?),
                _ => bail!(
                    "elasti-echo takes `get URL`, `call HOST:PORT`, `say HOST:PORT WORDS`, or any of `ports=LIST`, `tcp=PORT`, `greeting=PORT`, `tls=PORT`, `port=PORT`, `late=SECONDS`, `unready=SECONDS` and `snub=ADDRESS`, not {arg:?}"
                ),
            }
        }
        Ok(doors)
    }
}

/// `8012,10000-10063`
fn ports(list: &str) -> Result<Vec<u16>> {
    let mut ports = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        ports.extend(number::<u16>(first)?..=number(last)?);
    }
    Ok(ports)
}

fn number<N: FromStr<Err: std::error::Error + Send + Sync + 'static>>(text: &str) -> Result<N> {
    text.parse()
        .with_context(|| format!("{text:?} is no number"))
}
