//! Nothing is lost on the worst of days, either.

use anyhow::{Context, Result, ensure};
use elasti_e2e::{
    LONGEST, Trial,
    install::install,
    stage::{Meter, Stage},
    test_alone,
};
use std::env;

/// At least; `make disasters CYCLES=50` takes half an hour.
const CYCLES: usize = 8;
/// In each of which everything that can be killed is killed once.
const ROUNDS: usize = 2;
/// Seconds in which a data plane drops what ends, though it was killed itself.
const FAREWELL: u32 = 15;

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn nothing_is_lost_while_parts_of_the_system_are_killed_at_random() -> Result<()> {
    let cycles = match env::var("ELASTI_CYCLES") {
        Ok(cycles) => cycles.parse().context("ELASTI_CYCLES is a number")?,
        Err(_) => CYCLES,
    };
    let as_long = u32::try_from(cycles.div_ceil(CYCLES))?;
    test_alone("disasters", 3 * LONGEST * as_long, async |place| {
        install(place.cluster)?;
        let stage = Stage::empty(place).await?;
        let meter = Meter::idle(place).await?;
        let trial = Trial::new(&stage, meter.triggers(), FAREWELL)?;
        trial.conclude(trial.run_through_disasters(cycles, ROUNDS).await)?;
        for name in [Trial::BY_TRIGGER, Trial::BY_SOMEBODY] {
            ensure!(trial.ledger.slept(name) >= cycles, "{name}: {trial}");
        }
        ensure!(trial.rounds() >= ROUNDS, "{trial}");
        Ok(())
    })
}
