//! Plots of what belongs together.

mod bars;
mod lines;

use anyhow::{Result, anyhow};
use elasti_e2e::report::{At, Report};
use plotters::{
    coord::Shift,
    prelude::{DrawingArea, IntoDrawingArea, SVGBackend},
    style::{RGBColor, WHITE},
};
use std::{fmt, path::Path};

/// One that was drawn.
pub(crate) struct Plot {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Of which part.
    pub(crate) part: String,
}

struct Kind {
    name: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
}

/// What one series shows, in the order in which it was measured.
struct Series {
    name: String,
    points: Vec<(At, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (860, 420);
const COLORS: [RGBColor; 4] = [
    RGBColor(0x1f, 0x6f, 0xeb),
    RGBColor(0xe3, 0x6f, 0x1e),
    RGBColor(0x2d, 0x9d, 0x5c),
    RGBColor(0x8a, 0x8f, 0x98),
];
const KINDS: [Kind; 6] = [
    kind(
        "early",
        "From zero to the first answer, and to Ready",
        "listens after, probed",
        "seconds",
    ),
    kind(
        "holding",
        "Resident memory for each that is held",
        "held",
        "KiB",
    ),
    kind(
        "burst",
        "From the endpoint to the last of a burst",
        "held",
        "milliseconds",
    ),
    kind(
        "passing",
        "Passing through: ratio to haproxy on the same core",
        "",
        "ratio (haproxy is 1)",
    ),
    kind(
        "memory",
        "Resident memory of the operator",
        "ElastiServices",
        "MiB",
    ),
    kind(
        "reconciled",
        "From start to everything reconciled",
        "ElastiServices",
        "seconds",
    ),
];

const fn kind(name: &'static str, title: &'static str, x: &'static str, y: &'static str) -> Kind {
    Kind { name, title, x, y }
}

pub(crate) fn draw(report: &Report, folder: &Path) -> Result<Vec<Plot>> {
    let mut plots = Vec::new();
    for kind in &KINDS {
        let series = series(report, kind.name);
        let Some(part) = part_of(report, kind.name) else {
            continue;
        };
        let path = folder.join(format!("{}.svg", kind.name));
        let root = SVGBackend::new(&path, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        match series[0].points[0].0 {
            At::Number(_) => lines::draw(&root, kind, &series)?,
            At::Name(_) => bars::draw(&root, kind, &series)?,
        }
        root.present().map_err(failed)?;
        plots.push(Plot {
            name: kind.name,
            title: kind.title,
            part,
        });
    }
    Ok(plots)
}

fn part_of(report: &Report, plot: &str) -> Option<String> {
    let is_in = |mark: &elasti_e2e::report::Mark| mark.plot == plot;
    let parts = report.parts.iter();
    let mut found = parts
        .filter(|part| {
            part.rows
                .iter()
                .filter_map(|row| row.mark.as_ref())
                .any(is_in)
        })
        .map(|part| part.title.clone());
    found.next_back()
}

fn series(report: &Report, plot: &str) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in report.parts.iter().flat_map(|part| &part.rows) {
        let Some(mark) = row.mark.as_ref().filter(|mark| mark.plot == plot) else {
            continue;
        };
        let point = (mark.at.clone(), row.measured);
        match all.iter_mut().find(|series| series.name == mark.series) {
            Some(series) => series.points.push(point),
            None => all.push(Series {
                name: mark.series.clone(),
                points: vec![point],
            }),
        }
    }
    all
}

fn failed(error: impl fmt::Display) -> anyhow::Error {
    anyhow!("drawing: {error}")
}

/// Above all of them.
fn ceiling(series: &[Series]) -> f64 {
    let values = series.iter().flat_map(|one| &one.points);
    1.1 * values.map(|(_, value)| *value).fold(0.0, f64::max)
}
