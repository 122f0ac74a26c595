//! Reports of this very program, run in a process of its own, to a Sentry on this machine.

use anyhow::{Context, Result, ensure};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
};
use elasti_runtime::{
    logs::{self, Format},
    sentry::{self, Settings},
};
use serde_json::Value;
use std::{
    env,
    net::SocketAddr,
    panic,
    process::{self, Command, Output},
    time::Duration,
};
use tokio::{net::TcpListener, sync::mpsc, task, time::Instant};

const DSN: &str = "ELASTI_TEST_DSN";
const DEED: &str = "ELASTI_TEST_DEED";

/// What a Sentry was sent.
struct Report {
    path: String,
    auth: String,
    event: Value,
}

struct Sink {
    address: SocketAddr,
    reports: mpsc::UnboundedReceiver<Report>,
}

/// The process that the tests below start.
#[tokio::test]
async fn reporting_process() -> Result<()> {
    let (Ok(dsn), Ok(deed)) = (env::var(DSN), env::var(DEED)) else {
        return Ok(());
    };
    let sentry = sentry::init(Settings {
        dsn: Some(&dsn),
        environment: Some("staging"),
        release: "elasti-operator@1.2.3",
        server: Some("pod-a"),
    })?;
    logs::init("info", Format::Json, sentry.layer())?;
    let start = Instant::now();
    match deed.as_str() {
        "err" => {
            tracing::warn!(attempt = 1, "Stumbled");
            tracing::debug!("Unseen");
            tracing::error!(lease = "elasti", "Fell");
        }
        "warn" => {
            tracing::warn!("Stumbled");
            tracing::info!("Went on");
        }
        "panic" => {
            tracing::info!("Went on");
            let _ = panic::catch_unwind(|| panic!("Died {}", "here"));
            // As the release does: nothing is dropped.
            process::abort();
        }
        "loop" => (0..1000).for_each(|round| tracing::error!(round, "Fell")),
        _ => unreachable!(),
    }
    ensure!(start.elapsed() < Duration::from_secs(1), "logging waits");
    drop(sentry);
    ensure!(start.elapsed() < Duration::from_secs(3), "the end waits");
    tracing::error!("Said too late to be reported");
    Ok(())
}

async fn reporting(deed: &'static str, address: SocketAddr) -> Result<Output> {
    let process = move || {
        Command::new(env::current_exe()?)
            .args(["--exact", "reporting_process", "--nocapture"])
            .env(DSN, format!("http://public:hush@{address}/42"))
            .env(DEED, deed)
            .output()
    };
    Ok(task::spawn_blocking(process).await??)
}

async fn receive(
    State((reports, status)): State<(mpsc::UnboundedSender<Report>, StatusCode)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let lines: Vec<_> = body.split(|byte| *byte == b'\n').collect();
    let report = Report {
        path: uri.path().to_owned(),
        auth: String::from_utf8_lossy(headers["x-sentry-auth"].as_bytes()).into_owned(),
        event: serde_json::from_slice(lines[2]).unwrap_or_default(),
    };
    let _ = reports.send(report);
    (status, "{}")
}

impl Sink {
    async fn answering(status: StatusCode) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (sender, reports) = mpsc::unbounded_channel();
        let routes = Router::new().fallback(receive).with_state((sender, status));
        tokio::spawn(async { axum::serve(listener, routes).await });
        Ok(Self { address, reports })
    }

    /// All that a process says from beginning to end.
    async fn hear(&mut self, deed: &'static str) -> Result<(Output, Vec<Report>)> {
        let output = reporting(deed, self.address).await?;
        let mut reports = Vec::new();
        while let Ok(report) = self.reports.try_recv() {
            reports.push(report);
        }
        Ok((output, reports))
    }
}

#[tokio::test]
async fn an_error_is_reported_with_what_was_logged_before_it() -> Result<()> {
    let (output, reports) = Sink::answering(StatusCode::OK).await?.hear("err").await?;
    assert!(output.status.success(), "{}", output.status);
    let [report] = reports.as_slice() else {
        panic!("{} reports", reports.len());
    };
    assert_eq!(report.path, "/api/42/envelope/");
    assert!(report.auth.contains("sentry_key=public"), "{}", report.auth);
    let event = &report.event;
    assert_eq!(event["message"], "Fell", "{event}");
    assert!(event["level"].is_null(), "an error, unless said: {event}");
    assert_eq!(event["environment"], "staging", "{event}");
    assert_eq!(event["release"], "elasti-operator@1.2.3", "{event}");
    assert_eq!(event["server_name"], "pod-a", "{event}");
    let fields = &event["contexts"]["Rust Tracing Fields"];
    assert_eq!(fields["lease"], "elasti", "{event}");
    let history = event["breadcrumbs"]["values"].as_array();
    let [crumb] = history.context("a history")?.as_slice() else {
        panic!("one line was logged before: {event}");
    };
    assert_eq!(crumb["message"], "Stumbled", "{event}");
    let logged = String::from_utf8(output.stderr)?;
    assert!(
        logged.contains("Stumbled") && logged.contains("Fell") && !logged.contains("Unseen"),
        "the log is as ever: {logged}"
    );
    Ok(())
}

#[tokio::test]
async fn a_warning_is_not_reported() -> Result<()> {
    let (output, reports) = Sink::answering(StatusCode::OK).await?.hear("warn").await?;
    assert!(output.status.success(), "{}", output.status);
    assert!(reports.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_panic_is_reported_before_the_process_aborts() -> Result<()> {
    let (output, reports) = Sink::answering(StatusCode::OK).await?.hear("panic").await?;
    assert!(output.status.code().is_none(), "aborted: {}", output.status);
    let [Report { event, .. }] = reports.as_slice() else {
        panic!("{} reports", reports.len());
    };
    assert_eq!(event["level"], "fatal", "{event}");
    assert_eq!(event["release"], "elasti-operator@1.2.3", "{event}");
    let exception = &event["exception"]["values"][0];
    assert_eq!(exception["value"], "Died here", "{event}");
    let place = &exception["stacktrace"]["frames"][0]["filename"];
    assert_eq!(place, file!(), "{event}");
    assert_eq!(event["breadcrumbs"]["values"][0]["message"], "Went on");
    let printed = String::from_utf8(output.stderr)?;
    assert!(printed.contains("Died here"), "printed, too: {printed}");
    Ok(())
}

#[tokio::test]
async fn an_error_in_a_loop_does_not_flood() -> Result<()> {
    let (output, reports) = Sink::answering(StatusCode::OK).await?.hear("loop").await?;
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(reports.len(), 20);
    Ok(())
}

#[tokio::test]
async fn a_sentry_that_has_heard_enough_is_left_alone() -> Result<()> {
    let mut sink = Sink::answering(StatusCode::TOO_MANY_REQUESTS).await?;
    let (output, reports) = sink.hear("loop").await?;
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(reports.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_dead_sentry_holds_nobody_up() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let output = reporting("loop", silent.local_addr()?).await?;
    assert!(output.status.success(), "{}", output.status);

    let address = silent.local_addr()?;
    drop(silent);
    let output = reporting("loop", address).await?;
    assert!(output.status.success(), "{}", output.status);
    let logged = String::from_utf8(output.stderr)?;
    assert_eq!(
        logged.matches("Cannot report to Sentry").count(),
        1,
        "said once"
    );
    assert!(!logged.contains("hush"), "the key is a secret");
    Ok(())
}
