//! Figures beside their goals.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Default, Serialize, Deserialize)]
pub struct Report {
    pub parts: Vec<Part>,
}

/// Figures of one kind, and the command that makes them.
#[derive(Serialize, Deserialize)]
pub struct Part {
    pub title: String,
    pub command: String,
    pub rows: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
pub struct Row {
    pub figure: String,
    pub unit: String,
    pub goal: Goal,
    pub measured: f64,
    /// Each single measurement, where there were several.
    pub samples: Vec<f64>,
    /// The same of KubeElasti, in words.
    pub theirs: String,
    pub mark: Option<Mark>,
}

/// Where a row stands in a plot.
#[derive(Serialize, Deserialize)]
pub struct Mark {
    pub plot: String,
    pub series: String,
    pub at: At,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum At {
    Number(f64),
    Name(String),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Goal {
    Below(f64),
    AtMost(f64),
    AtLeast(f64),
    /// Not a figure that was promised: it explains another.
    None,
}

pub fn median(all: Vec<f64>) -> f64 {
    percentile(all, 50)
}

/// The smallest that so many percent do not exceed.
pub fn percentile(mut all: Vec<f64>, percent: usize) -> f64 {
    all.sort_by(f64::total_cmp);
    let rank = (all.len() * percent).div_ceil(100).saturating_sub(1);
    all.get(rank).copied().unwrap_or(f64::NAN)
}

// === impl Report ===

impl Report {
    /// What is added from now on belongs to it.
    pub fn part(&mut self, title: &str, command: &str) {
        eprintln!("{title}");
        self.parts.push(Part {
            title: title.into(),
            command: command.into(),
            rows: Vec::new(),
        });
    }

    pub fn add(
        &mut self,
        figure: impl Into<String>,
        measured: f64,
        unit: &str,
        goal: Goal,
    ) -> &mut Row {
        self.push(Row {
            figure: figure.into(),
            unit: unit.into(),
            goal,
            measured,
            samples: Vec::new(),
            theirs: String::new(),
            mark: None,
        })
    }

    /// The median of several.
    pub fn add_median(
        &mut self,
        figure: impl Into<String>,
        samples: Vec<f64>,
        unit: &str,
        goal: Goal,
    ) -> &mut Row {
        self.add_percentile(figure, 50, samples, unit, goal)
    }

    pub fn add_percentile(
        &mut self,
        figure: impl Into<String>,
        percent: usize,
        samples: Vec<f64>,
        unit: &str,
        goal: Goal,
    ) -> &mut Row {
        let measured = percentile(samples.clone(), percent);
        self.add(figure, measured, unit, goal).of(samples)
    }

    fn push(&mut self, row: Row) -> &mut Row {
        eprintln!("  {}: {} {}", row.figure, row.value(), row.unit);
        if self.parts.is_empty() {
            self.part("Figures", "");
        }
        let last = self.parts.len() - 1;
        let rows = &mut self.parts[last].rows;
        rows.push(row);
        let last = rows.len() - 1;
        &mut rows[last]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = || self.parts.iter().flat_map(|part| &part.rows);
        let width = rows().map(|row| row.figure.chars().count()).max();
        let width = width.unwrap_or_default();
        writeln!(
            f,
            "{:width$}  {:>8} {:>10} {:14}",
            "figure", "goal", "measured", ""
        )?;
        for row in rows() {
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
    /// What KubeElasti was seen to do, on such a machine.
    pub fn theirs(&mut self, what: &str) -> &mut Self {
        self.theirs = what.into();
        self
    }

    /// Of what it was made.
    pub fn of(&mut self, samples: Vec<f64>) -> &mut Self {
        self.samples = samples;
        self
    }

    pub fn mark(&mut self, plot: &str, series: &str, at: impl Into<At>) -> &mut Self {
        self.mark = Some(Mark {
            plot: plot.into(),
            series: series.into(),
            at: at.into(),
        });
        self
    }

    pub fn value(&self) -> String {
        number(self.measured)
    }

    /// From the least to the most of what was measured, where it was measured more than once.
    pub fn spread(&self) -> String {
        let least = self.samples.iter().copied().reduce(f64::min);
        let most = self.samples.iter().copied().reduce(f64::max);
        match (least, most) {
            (Some(least), Some(most)) => format!("{} – {}", number(least), number(most)),
            _ => "one".into(),
        }
    }

    pub fn verdict(&self) -> &'static str {
        let met = match self.goal {
            Goal::Below(limit) => self.measured < limit,
            Goal::AtMost(limit) => self.measured <= limit,
            Goal::AtLeast(limit) => self.measured >= limit,
            Goal::None => return "",
        };
        if met { "ok" } else { "missed" }
    }
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value}")
    } else if value.abs() < 10.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.2}")
    }
}

// === impl At ===

impl From<f64> for At {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for At {
    fn from(number: usize) -> Self {
        Self::Number(number as f64)
    }
}

impl From<&str> for At {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_or_missed_and_a_mere_figure_is_neither() {
        let mut report = Report::default();
        let row = report.add_median("ratio", vec![3.0, 1.0, 2.0], "", Goal::AtMost(2.0));
        assert_eq!((row.verdict(), row.value().as_str()), ("ok", "2"));
        assert_eq!(row.spread(), "1 – 3");
        let row = report.add("b", 0.9, "", Goal::AtLeast(1.0));
        assert_eq!((row.verdict(), row.spread().as_str()), ("missed", "one"));
        assert_eq!(report.add("c", 0.9, "", Goal::None).verdict(), "");
    }

    #[test]
    fn percentiles_are_of_what_was_seen() {
        let all: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(all.clone(), 99), 198.0);
        assert_eq!(percentile(all, 50), 100.0);
    }
}
