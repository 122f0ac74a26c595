//! Values over a number that grows by powers of ten.

use super::{Area, COLORS, Kind, Series, ceiling, failed};
use anyhow::Result;
use elasti_e2e::report::At;
use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    prelude::{Circle, IntoLogRange, PathElement},
    series::LineSeries,
    style::{BLACK, Color, WHITE},
};

pub(super) fn draw(root: &Area<'_>, kind: &Kind, series: &[Series]) -> Result<()> {
    let numbers = || {
        series
            .iter()
            .flat_map(|one| &one.points)
            .map(|(at, _)| number(at))
    };
    let least = numbers().fold(f64::INFINITY, f64::min);
    let most = numbers().fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(root)
        .caption(kind.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d((least * 0.9..most * 1.1).log_scale(), 0.0..ceiling(series))
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc(kind.x)
        .y_desc(kind.y)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .light_line_style(WHITE)
        .draw()
        .map_err(failed)?;
    for (one, color) in series.iter().zip(COLORS) {
        let points = || one.points.iter().map(|(at, value)| (number(at), *value));
        chart
            .draw_series(LineSeries::new(points(), color.stroke_width(2)))
            .map_err(failed)?
            .label(&one.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        let dots = points().map(|point| Circle::new(point, 4, color.filled()));
        chart.draw_series(dots).map_err(failed)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK.mix(0.2))
        .background_style(WHITE.mix(0.8))
        .draw()
        .map_err(failed)
}

fn number(at: &At) -> f64 {
    match at {
        At::Number(number) => *number,
        At::Name(_) => f64::NAN,
    }
}
