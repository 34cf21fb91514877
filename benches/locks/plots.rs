//! The report's pictures, as SVG: bars lie, so that their names can be read; lines have logarithmic axes.

use std::error::Error;
use std::io;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::stats::digits;

const WIDTH: u32 = 900;
const INK: RGBColor = RGBColor(40, 44, 52);
const FAINT: RGBColor = RGBColor(190, 196, 204);
const OURS: RGBColor = RGBColor(196, 60, 40);
const THEIRS: RGBColor = RGBColor(120, 140, 165);
const OTHERS: [RGBColor; 6] = [
    RGBColor(60, 90, 150),
    RGBColor(120, 140, 165),
    RGBColor(80, 140, 110),
    RGBColor(150, 110, 160),
    RGBColor(180, 140, 60),
    RGBColor(90, 90, 90),
];

pub enum Plot {
    Bars { file: &'static str, title: &'static str, unit: &'static str, bars: Vec<Bar> },
    Lines { file: &'static str, title: &'static str, x: &'static str, y: &'static str, lines: Vec<Line> },
}

pub struct Bar {
    pub label: &'static str,
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

pub struct Line {
    pub label: String,
    /// Both axes are logarithmic.
    pub points: Vec<(f64, f64)>,
}

/// Draws into `directory` and returns the file's name.
pub fn draw(directory: &Path, plot: &Plot, version: &str) -> io::Result<String> {
    let (Plot::Bars { file, .. } | Plot::Lines { file, .. }) = plot;
    let name = format!("{file}-{}.svg", version.to_lowercase().replace(' ', "-"));
    let path = directory.join(&name);
    let drawn = match plot {
        Plot::Bars { title, unit, bars, .. } => draw_bars(&path, &format!("{title}, {version}"), unit, bars),
        Plot::Lines { title, x, y, lines, .. } => draw_lines(&path, &format!("{title}, {version}"), x, y, lines),
    };
    drawn.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(name)
}

fn ours(label: &str) -> bool {
    ["LOCK", "RLOCK", "RWLOCK", "SEM", "MLOCK"].iter().any(|family| label.split(' ').next() == Some(family))
}

fn draw_bars(path: &Path, title: &str, unit: &str, bars: &[Bar]) -> Result<(), Box<dyn Error>> {
    const LEFT: i32 = 270;
    const RIGHT: i32 = 120;
    const TOP: i32 = 56;
    const STEP: i32 = 26;
    let height = TOP + STEP * i32::try_from(bars.len())? + 16;
    let root = SVGBackend::new(path, (WIDTH, u32::try_from(height)?)).into_drawing_area();
    root.fill(&WHITE)?;
    let style = |size: i32, pos| ("sans-serif", size).into_text_style(&root).color(&INK).pos(pos);
    let left = Pos::new(HPos::Left, VPos::Center);
    root.draw(&Text::new(format!("{title} ({unit})"), (16, 26), style(19, left)))?;

    let most = bars.iter().map(|bar| bar.high.max(bar.value)).fold(f64::MIN_POSITIVE, f64::max);
    let room = f64::from(i32::try_from(WIDTH)? - LEFT - RIGHT);
    let at = |value: f64| LEFT + (value / most * room) as i32;
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + STEP * i32::try_from(row)? + STEP / 2;
        let color = if ours(bar.label) { OURS } else { THEIRS };
        let name = style(14, Pos::new(HPos::Right, VPos::Center));
        root.draw(&Text::new(bar.label, (LEFT - 10, y), name))?;
        root.draw(&Rectangle::new([(LEFT, y - 8), (at(bar.value).max(LEFT + 1), y + 8)], color.filled()))?;
        root.draw(&PathElement::new(vec![(at(bar.low), y), (at(bar.high), y)], INK.stroke_width(1)))?;
        let end = at(bar.high.max(bar.value)) + 8;
        root.draw(&Text::new(digits(bar.value), (end, y), style(14, left)))?;
    }
    root.present()?;
    Ok(())
}

fn draw_lines(path: &Path, title: &str, x: &str, y: &str, lines: &[Line]) -> Result<(), Box<dyn Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let span = |values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        (least, most)
    };
    let (left, right) = span(points().map(|point| point.0).collect());
    let (bottom, top) = span(points().map(|point| point.1).collect());
    if points().next().is_none() {
        return Ok(());
    }
    // Room above the lines for their names.
    let ceiling = top * (top / bottom).powf(0.4).max(2.0);
    let root = SVGBackend::new(path, (WIDTH, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 19).into_font().color(&INK))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((left..right * 1.1).log_scale(), (bottom * 0.7..ceiling).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .x_label_formatter(&|value| digits(*value))
        .y_label_formatter(&|value| digits(*value))
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .bold_line_style(FAINT.mix(0.6))
        .light_line_style(FAINT.mix(0.25))
        .axis_style(INK)
        .draw()?;
    let mut others = OTHERS.iter().cycle();
    for line in lines {
        let color = if ours(&line.label) { OURS } else { *others.next().expect("a cycle has no end") };
        let style = color.stroke_width(if ours(&line.label) { 3 } else { 2 });
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(4))?
            .label(line.label.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(FAINT)
        .label_font(("sans-serif", 13).into_font().color(&INK))
        .draw()?;
    root.present()?;
    Ok(())
}
