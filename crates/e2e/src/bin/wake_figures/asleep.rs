//! Services that fall asleep while they are used, in every protocol.

use anyhow::Result;
use elasti_e2e::{
    Trial,
    report::{Goal, Report},
    stage::{Meter, Stage},
};

const CYCLES: usize = 10;
/// Of the service that has lone requests.
const CHANCES: usize = 6;
/// Seconds in which a data plane drops what ends.
const FAREWELL: u32 = 5;
/// How each is put to sleep and used, and what KubeElasti lost so.
const SERVICES: [(&str, &str, &str); 3] = [
    (
        Trial::BY_TRIGGER,
        "by its trigger, then all come",
        "1 064 of 7 121 in 13 sleeps: 82 per sleep, at 50 requests/s",
    ),
    (
        Trial::BY_SOMEBODY,
        "by somebody else, at 50 requests/s",
        "820 of 4 781",
    ),
    (
        Trial::BY_CHANCE,
        "by its trigger, lone requests at any moment",
        "5 of 59 in 10 sleeps",
    ),
];

pub(crate) async fn measure(stage: &Stage<'_>, report: &mut Report) -> Result<()> {
    report.part(
        "Falling asleep under load, in eleven protocols and manners",
        "elasti-wake-figures --only asleep",
    );
    let meter = Meter::idle(stage.place).await?;
    let trial = Trial::new(stage, meter.triggers(), FAREWELL)?;
    trial.run_with(CYCLES, CHANCES).await?;
    let ledger = &trial.ledger;
    for (name, how, theirs) in SERVICES {
        for (what, count) in [
            ("sleeps", ledger.slept(name)),
            ("requests", ledger.asked(name)),
        ] {
            report.add(format!("{how}: {what}"), count as f64, "", Goal::None);
        }
        let lost = ledger.lost_of(name) as f64;
        report
            .add(format!("{how}: lost"), lost, "requests", Goal::AtMost(0.0))
            .theirs(theirs);
    }
    Ok(())
}
