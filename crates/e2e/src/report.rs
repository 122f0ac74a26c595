//! Figures beside their goals.

use std::fmt;

#[derive(Default)]
pub struct Report(Vec<Row>);

struct Row {
    figure: String,
    measured: f64,
    unit: &'static str,
    goal: Goal,
}

#[derive(Clone, Copy)]
pub enum Goal {
    Below(f64),
    AtMost(f64),
    AtLeast(f64),
    /// Not a figure that was promised: it explains another.
    None,
}

pub fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

// === impl Report ===

impl Report {
    pub fn add(
        &mut self,
        figure: impl Into<String>,
        measured: f64,
        unit: &'static str,
        goal: Goal,
    ) {
        let row = Row {
            figure: figure.into(),
            measured,
            unit,
            goal,
        };
        eprintln!("  {}: {} {}", row.figure, row.value(), row.unit);
        self.0.push(row);
    }

    pub fn csv(&self) -> String {
        let rows = self.0.iter().map(|row| {
            format!(
                "\"{}\",{},{},{},{}\n",
                row.figure,
                row.unit,
                row.goal,
                row.value(),
                row.verdict()
            )
        });
        std::iter::once("figure,unit,goal,measured,verdict\n".to_owned())
            .chain(rows)
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|row| row.figure.chars().count()).max();
        let width = width.unwrap_or_default();
        writeln!(
            f,
            "{:width$}  {:>8} {:>10} {:14}",
            "figure", "goal", "measured", ""
        )?;
        for row in &self.0 {
            writeln!(
                f,
                "{:width$}  {:>8} {:>10} {:14} {}",
                row.figure,
                row.goal.to_string(),
                row.value(),
                row.unit,
                row.verdict()
            )?;
        }
        Ok(())
    }
}

// === impl Row ===

impl Row {
    fn value(&self) -> String {
        if self.measured.fract() == 0.0 {
            format!("{}", self.measured)
        } else {
            format!("{:.2}", self.measured)
        }
    }

    fn verdict(&self) -> &'static str {
        let met = match self.goal {
            Goal::Below(limit) => self.measured < limit,
            Goal::AtMost(limit) => self.measured <= limit,
            Goal::AtLeast(limit) => self.measured >= limit,
            Goal::None => return "",
        };
        if met { "ok" } else { "missed" }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(limit) => write!(f, "< {limit}"),
            Self::AtMost(limit) => write!(f, "<= {limit}"),
            Self::AtLeast(limit) => write!(f, ">= {limit}"),
            Self::None => Ok(()),
        }
    }
}
