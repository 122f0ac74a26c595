//! elasti-soak: services fall asleep and wake for hours, while parts of the system are killed, and every
//! request is counted.

use anyhow::Result;
use clap::Parser;
use elasti_e2e::{
    Trial,
    install::install,
    stage::{Meter, Stage},
    test_alone,
};
use std::{process::ExitCode, time::Duration};
use tokio::{
    signal::ctrl_c,
    time::{Instant, interval, sleep},
};

/// Seconds in which a data plane drops what ends, though it was killed itself.
const FAREWELL: u32 = 15;
/// To come and to go.
const BESIDES: Duration = Duration::from_secs(300);
const MINUTE: Duration = Duration::from_secs(60);

/// Puts services to sleep and wakes them, without an end, and counts what is lost.
#[derive(Parser)]
struct Cli {
    /// How long
    #[arg(long, default_value_t = 120)]
    minutes: u32,
    /// Let nothing be killed
    #[arg(long)]
    calm: bool,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("elasti-soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let long = MINUTE * cli.minutes;
    test_alone("soak", long + BESIDES, async |place| {
        install(place.cluster)?;
        let stage = Stage::empty(place).await?;
        let meter = Meter::idle(place).await?;
        let trial = Trial::new(&stage, meter.triggers(), FAREWELL)?;
        let cycles = async {
            if cli.calm {
                Box::pin(trial.run(usize::MAX)).await
            } else {
                Box::pin(trial.run_through_disasters(usize::MAX, usize::MAX)).await
            }
        };
        let beginning = Instant::now();
        let done = tokio::select! {
            ended = cycles => ended,
            () = tell(&trial, beginning) => Ok(()),
            () = sleep(long) => Ok(()),
            interrupted = ctrl_c() => Ok(interrupted?),
        };
        println!("After {} minutes:", beginning.elapsed().as_secs() / 60);
        trial.conclude(done)
    })
}

async fn tell(trial: &Trial<'_>, beginning: Instant) {
    let mut minutes = interval(MINUTE);
    loop {
        minutes.tick().await;
        let passed = beginning.elapsed().as_secs() / 60;
        println!("{passed} min: {}", trial.ledger);
    }
}
