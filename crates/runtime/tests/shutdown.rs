//! Signals, sent to this very program in a process of its own.

use anyhow::{Context, Result, ensure};
use elasti_runtime::shutdown::on_signals;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    env,
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};
use tokio_util::sync::CancellationToken;

const ROLE: &str = "ELASTI_TEST_IS_SIGNALLED";

struct Signalled {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// The process that the tests below signal: it is told to end and does not.
#[tokio::test]
async fn stubborn_process() -> Result<()> {
    if env::var_os(ROLE).is_none() {
        return Ok(());
    }
    let shutdown = CancellationToken::new();
    let signals = on_signals(shutdown.clone())?;
    println!("\nlistening");
    let work = async {
        shutdown.cancelled().await;
        println!("cancelled");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = work => {}
        never = signals => match never {},
    }
    Ok(())
}

fn start() -> Result<Signalled> {
    let mut child = Command::new(env::current_exe()?)
        .args(["--exact", "stubborn_process", "--nocapture"])
        .env(ROLE, "yes")
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("it prints")?).lines();
    Ok(Signalled { child, lines })
}

impl Signalled {
    fn wait_for(&mut self, word: &str) -> Result<()> {
        let said = self
            .lines
            .by_ref()
            .map_while(std::result::Result::ok)
            .any(|line| line == word);
        ensure!(said, "says {word}");
        Ok(())
    }

    fn send(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(self.child.id().try_into()?);
        Ok(kill(id, signal)?)
    }
}

#[test]
fn the_first_signal_cancels_and_the_second_ends_the_process() -> Result<()> {
    for (first, second) in [
        (Signal::SIGTERM, Signal::SIGTERM),
        (Signal::SIGINT, Signal::SIGTERM),
        (Signal::SIGTERM, Signal::SIGINT),
    ] {
        let mut process = start()?;
        process.wait_for("listening")?;
        process.send(first)?;
        process.wait_for("cancelled")?;
        process.send(second)?;
        assert_eq!(process.child.wait()?.code(), Some(1));
    }
    Ok(())
}
