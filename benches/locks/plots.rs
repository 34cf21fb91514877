//! The data of the report's charts, one JSON file for each server, which scripts/pictures draws.

use std::io;
use std::path::Path;

use serde_json::{json, Map, Value};

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

impl Plot {
    /// The name of its chart in `results/benchmarks`.
    pub fn name(&self, version: &str) -> String {
        let (Plot::Bars { file, .. } | Plot::Lines { file, .. }) = self;
        format!("{file}-{}.svg", named(version))
    }

    fn json(&self) -> (String, Value) {
        match self {
            Plot::Bars { file, title, unit, bars } => {
                let bars: Vec<Value> =
                    bars.iter().map(|bar| json!([bar.label, bar.value, bar.low, bar.high])).collect();
                (file.to_string(), json!({ "title": title, "unit": unit, "bars": bars }))
            }
            Plot::Lines { file, title, x, y, lines } => {
                let lines: Vec<Value> = lines.iter().map(|line| json!([line.label, line.points])).collect();
                (file.to_string(), json!({ "title": title, "x": x, "y": y, "lines": lines }))
            }
        }
    }
}

/// Writes the plots of one server into `directory`.
pub fn write<'a>(directory: &Path, version: &str, plots: impl Iterator<Item = &'a Plot>) -> io::Result<()> {
    let plots: Map<String, Value> = plots.map(Plot::json).collect();
    let text = serde_json::to_string_pretty(&json!({ "server": version, "charts": plots }))?;
    std::fs::write(directory.join(format!("{}.json", named(version))), text + "\n")
}

fn named(version: &str) -> String {
    version.to_lowercase().replace(' ', "-")
}
