//! Everything that was measured, as CSV.

use anyhow::Result;
use elasti_e2e::report::{Report, Row};
use std::{fmt::Write, fs, path::Path};

pub(crate) fn write(report: &Report, folder: &Path) -> Result<()> {
    let mut figures = "part,figure,goal,measured,unit,verdict\n".to_owned();
    let mut samples = "part,figure,unit,sample\n".to_owned();
    for part in &report.parts {
        for row in &part.rows {
            let Row {
                figure, unit, goal, ..
            } = row;
            let start = format!("{},{}", quoted(&part.title), quoted(figure));
            let (measured, verdict) = (row.measured, row.verdict());
            writeln!(figures, "{start},{goal},{measured},{unit},{verdict}")?;
            for sample in &row.samples {
                writeln!(samples, "{start},{unit},{sample}")?;
            }
        }
    }
    fs::write(folder.join("figures.csv"), figures)?;
    fs::write(folder.join("samples.csv"), samples)?;
    Ok(())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
