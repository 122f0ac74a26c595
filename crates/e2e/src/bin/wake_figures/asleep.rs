//! Services that fall asleep while they are used, in every protocol.

use anyhow::Result;
use elasti_e2e::{
    Trial,
    report::{Goal, Report},
    stage::{Meter, Stage},
};

const CYCLES: usize = 10;
/// Seconds in which a data plane drops what ends.
const FAREWELL: u32 = 10;

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part(
        "Falling asleep under load, in eleven protocols and manners",
        "elasti-wake-figures --only asleep",
    );
    let meter = Meter::idle(stage.place).await?;
    let trial = Trial::new(stage, meter.triggers(), FAREWELL)?;
    trial.run(CYCLES).await?;
    let ledger = &trial.ledger;
    report.add("sleeps", ledger.sleeps() as f64, "", Goal::None);
    let asked = ledger.answered_in_all() + ledger.lost_in_all();
    report.add("requests", asked as f64, "", Goal::None);
    report
        .add(
            "lost",
            ledger.lost_in_all() as f64,
            "requests",
            Goal::AtMost(0.0),
        )
        .theirs("82 per sleep at 50 requests/s");
    Ok(())
}
