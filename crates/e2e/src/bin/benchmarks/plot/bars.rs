//! Values side by side.

use super::{Area, COLORS, Kind, Series, ceiling, failed};
use anyhow::Result;
use elasti_e2e::report::At;
use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    prelude::Rectangle,
    style::{BLACK, Color, WHITE},
};

/// Of the room for one name.
const USED: f64 = 0.8;

pub(super) fn draw(root: &Area<'_>, kind: &Kind, series: &[Series]) -> Result<()> {
    let names: Vec<String> = series[0].points.iter().map(|(at, _)| name(at)).collect();
    let mut chart = ChartBuilder::on(root)
        .caption(kind.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..names.len() as f64 - 0.5, 0.0..ceiling(series))
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * names.len() + 1)
        .x_label_formatter(&|x| label(&names, *x))
        .x_label_style(("sans-serif", 11))
        .x_desc(kind.x)
        .y_desc(kind.y)
        .light_line_style(WHITE)
        .draw()
        .map_err(failed)?;
    let width = USED / series.len() as f64;
    for (which, (one, color)) in series.iter().zip(COLORS).enumerate() {
        let bars = one.points.iter().enumerate().map(|(at, (_, value))| {
            let left = at as f64 - USED / 2.0 + which as f64 * width;
            Rectangle::new([(left, 0.0), (left + width, *value)], color.filled())
        });
        chart
            .draw_series(bars)
            .map_err(failed)?
            .label(&one.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .border_style(BLACK.mix(0.2))
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(failed)
}

/// In the middle of its bars only.
fn label(names: &[String], x: f64) -> String {
    if x.fract().abs() > 1e-9 || x < 0.0 {
        return String::new();
    }
    names.get(x as usize).cloned().unwrap_or_default()
}

fn name(at: &At) -> String {
    match at {
        At::Number(number) => number.to_string(),
        At::Name(name) => name.clone(),
    }
}
