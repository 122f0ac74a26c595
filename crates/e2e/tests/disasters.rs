//! Nothing is lost on the worst of days, either.

use anyhow::{Result, ensure};
use elasti_e2e::{
    LONGEST, Trial,
    install::install,
    stage::{Meter, Stage},
    test_alone,
};

const CYCLES: usize = 20;
/// Seconds in which a data plane drops what ends, though it was killed itself.
const FAREWELL: u32 = 15;

#[test]
#[ignore = "needs a local cluster: make e2e"]
fn nothing_is_lost_while_parts_of_the_system_are_killed_at_random() -> Result<()> {
    test_alone("disasters", 3 * LONGEST, async |place| {
        install(place.cluster)?;
        let stage = Stage::empty(place).await?;
        let meter = Meter::idle(place).await?;
        let trial = Trial::new(&stage, meter.triggers(), FAREWELL)?;
        let done = trial.run_through_disasters(CYCLES).await;
        println!("{}", trial.ledger);
        done?;
        ensure!(trial.ledger.is_clean(), "{}", trial.ledger);
        ensure!(trial.ledger.sleeps() >= 2 * CYCLES, "{}", trial.ledger);
        Ok(())
    })
}
