//! The page that people read.

use crate::plot::Plot;
use elasti_e2e::report::{Part, Report, Row};
use std::fmt;

pub(crate) struct Page<'a> {
    pub(crate) report: &'a Report,
    pub(crate) plots: &'a [Plot],
    pub(crate) machine: Vec<(&'static str, String)>,
    pub(crate) revision: &'a str,
    pub(crate) seconds: u64,
}

// === impl Page ===

impl Page<'_> {
    /// How many goals there are, and which are missed.
    pub(crate) fn summary(&self) -> String {
        let rows = self.report.parts.iter().flat_map(|part| &part.rows);
        let goals: Vec<&Row> = rows.filter(|row| !row.verdict().is_empty()).collect();
        let missed: Vec<&&Row> = goals
            .iter()
            .filter(|row| row.verdict() == "missed")
            .collect();
        let mut summary = format!(
            "{} of {} goals are met",
            goals.len() - missed.len(),
            goals.len()
        );
        for row in missed {
            let (figure, value, unit, goal) = (&row.figure, row.value(), &row.unit, row.goal);
            summary += &format!("\n- missed: {figure}: {value} {unit} (goal {goal})");
        }
        summary
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.seconds.div_ceil(60);
        writeln!(
            f,
            "# Benchmarks

Written by `make bench`, which took {minutes} minutes; nothing here is entered by hand but the column
KubeElasti, which is what its version 0.1.30 was seen to do on such a machine. Ratios count: times do not
carry over to another machine. A figure is the median of what was measured, unless it says otherwise; the spread is
from the least to the most, or `one` where it was measured once. All of it is in [figures.csv](figures.csv), each
single measurement in [samples.csv](samples.csv). The programs are in `target/<platform>/measure` after `make bench`.
While the operator is measured kube-proxy stands still: no traffic passes, and it would take a core from the API server.
While the resolver is measured so do kubelet, containerd, controllers and scheduler; controllers and scheduler do while
wakes in a second are counted.

What else a figure may owe to how it was made:

- Where wakes are measured, Kubernetes' controllers may call the API server 500 times a second, not 20 as by default:
  pods are made sooner, through Elasti and by hand. The p99 of 20 pairs is the largest of them. Less than 0 after
  the endpoint is ready is before a watch shows it: the resolver asked the pod itself, or its own watch was told sooner.
- What passes goes through one proxy at a time, on core 0; client and target share core 1. nginx and no proxy are
  measured in every fifth round. nginx cannot speak HTTP/2 to a target: where its client does, it speaks HTTP/1.
- Up to 5 000, ElastiServices that are new at a size are written into etcd as copies of one that nobody has worked on
  yet; those of smaller sizes were reconciled before. Beyond, they are copies of one that was reconciled: 10 000 from
  nothing are not timed, because the API server alone needs minutes for what belongs to them.

{}

| | |
|---|---|
| commit | {} |",
            self.summary(),
            self.revision
        )?;
        for (name, what) in &self.machine {
            writeln!(f, "| {name} | {what} |")?;
        }
        for part in &self.report.parts {
            section(f, part, self.plots)?;
        }
        Ok(())
    }
}

fn section(f: &mut fmt::Formatter<'_>, part: &Part, plots: &[Plot]) -> fmt::Result {
    writeln!(f, "\n## {}\n\n`{}`\n", part.title, part.command)?;
    for plot in plots.iter().filter(|plot| plot.part == part.title) {
        writeln!(f, "![{}]({}.svg)\n", plot.title, plot.name)?;
    }
    writeln!(
        f,
        "| figure | goal | measured | unit | spread | | KubeElasti |"
    )?;
    writeln!(f, "|---|---|---|---|---|---|---|")?;
    for row in &part.rows {
        writeln!(
            f,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.figure,
            row.goal,
            row.value(),
            row.unit,
            row.spread(),
            row.verdict(),
            row.theirs
        )?;
    }
    Ok(())
}
