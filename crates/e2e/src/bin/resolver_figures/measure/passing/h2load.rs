//! nghttp2's load generator, for HTTP/2.

use crate::{
    process::{Core, command},
    stage::Stage,
};
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use tokio::process::Command;

const CONNECTIONS: &str = "8";
const STREAMS: &str = "16";

/// Small requests in a second.
pub(super) async fn many(stage: &Stage<'_>, address: SocketAddr, milliseconds: u64) -> Result<f64> {
    let said = run(
        stage,
        &[
            "--clients",
            CONNECTIONS,
            "--max-concurrent-streams",
            STREAMS,
            "--warm-up-time=300ms",
            &format!("--duration={milliseconds}ms"),
            &format!("http://{address}/"),
        ],
    )
    .await?;
    figure(&said, " req/s")
}

/// Seconds for one large answer.
pub(super) async fn one(stage: &Stage<'_>, address: SocketAddr, bytes: u64) -> Result<f64> {
    let said = run(
        stage,
        &[
            "--requests=1",
            "--window-bits=24",
            "--connection-window-bits=24",
            &format!("http://{address}/{bytes}"),
        ],
    )
    .await?;
    let told = figure(&said, "B/s")?;
    let mib = (bytes >> 20) as f64;
    Ok(mib / told)
}

async fn run(stage: &Stage<'_>, args: &[&str]) -> Result<String> {
    let mut h2load = command(stage.cluster, "h2load", Core::Helping)?;
    h2load.args(args);
    let output = Command::from(h2load)
        .output()
        .await
        .context("running h2load: is the package nghttp2-client installed?")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        said.contains(" 0 failed, 0 errored, 0 timeout"),
        "h2load: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

/// Of `finished in 1.00s, 12345.60 req/s, 1.23MB/s`; bytes in MiB.
fn figure(said: &str, unit: &str) -> Result<f64> {
    let line = said.lines().find(|line| line.starts_with("finished in "));
    let line = line.with_context(|| format!("h2load said {said}"))?;
    let part = line.split(", ").find_map(|part| part.strip_suffix(unit));
    let part = part.with_context(|| format!("no {unit} in {line}"))?;
    let (digits, scale) = match part.char_indices().last() {
        Some((at, 'K')) => (&part[..at], 1.0 / 1_024.0),
        Some((at, 'M')) => (&part[..at], 1.0),
        Some((at, 'G')) => (&part[..at], 1_024.0),
        _ => (part, 1.0),
    };
    Ok(digits.parse::<f64>()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_h2load_writes_them() {
        let said = "\nfinished in 1.00s, 12345.60 req/s, 1.50GB/s\nrequests: 1 total";
        assert_eq!(figure(said, " req/s").unwrap(), 12_345.6);
        assert_eq!(figure(said, "B/s").unwrap(), 1_536.0);
        assert!(figure("nothing", "B/s").is_err());
    }
}
