use anyhow::{Context, Result, ensure};
use elasti_e2e::{fetch, stage::PATIENCE};
use std::{net::SocketAddr, pin::pin, time::Duration};
use tokio::{
    task::JoinSet,
    time::{interval, timeout},
};

const OFTEN: Duration = Duration::from_millis(100);

pub async fn ask(address: SocketAddr) -> Result<()> {
    let answer = timeout(2 * PATIENCE, fetch(&format!("http://{address}/hello"))).await;
    let answer = answer.context("no answer")?;
    let answer = answer.with_context(|| format!("lost by {address}"))?;
    ensure!(answer == "GET /hello\n", "{answer}");
    Ok(())
}

/// Somebody comes ten times a second until this is done, and all of them get their answer.
pub async fn crowd(address: SocketAddr, play: impl Future<Output = Result<()>>) -> Result<()> {
    let mut play = pin!(play);
    let mut visitors = JoinSet::new();
    let mut often = interval(OFTEN);
    loop {
        tokio::select! {
            done = &mut play => break done?,
            _ = often.tick() => drop(visitors.spawn(ask(address))),
            Some(visit) = visitors.join_next() => visit??,
        }
    }
    while let Some(visit) = visitors.join_next().await {
        visit??;
    }
    Ok(())
}
