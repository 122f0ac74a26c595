use anyhow::{Result, ensure};
use elasti_e2e::{
    Trial, long_test,
    stage::{Cast, Meter, Whole},
};

const CYCLES: usize = 50;
/// Seconds in which a data plane drops what ends.
const FAREWELL: u32 = 5;

#[test]
#[ignore = "needs a cluster: make e2e"]
fn nothing_is_lost_however_often_a_service_falls_asleep_and_wakes() -> Result<()> {
    long_test(async |place| {
        let whole = Whole::with(place, Cast::default().resolvers(2)).await?;
        let meter = Meter::idle(place).await?;
        let trial = Trial::new(&whole.stage, meter.triggers(), FAREWELL)?;
        trial.conclude(trial.run(CYCLES).await)?;
        for name in [Trial::BY_TRIGGER, Trial::BY_SOMEBODY, Trial::BY_CHANCE] {
            ensure!(trial.ledger.slept(name) >= CYCLES, "{name}: {trial}");
        }
        Ok(())
    })
}
