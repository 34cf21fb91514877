//! What the benchmark says: a table on the terminal as soon as a workload is done, and at the end docs/benchmarks.md
//! with its plots. Ratios first; what was not reached is said as plainly as what was.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::plots::{self, Plot};
use crate::rivals;
use crate::stats::{digits, Figure, Scale};

/// One workload on one server.
pub struct Section {
    pub title: String,
    /// What was done and how it was measured.
    pub method: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
    pub verdicts: Vec<Verdict>,
    pub plot: Option<Plot>,
}

impl Section {
    pub fn new(title: &str, method: &str, columns: &[&str]) -> Section {
        Section {
            title: title.to_owned(),
            method: method.to_owned(),
            columns: columns.iter().map(|column| column.to_string()).collect(),
            rows: Vec::new(),
            notes: Vec::new(),
            verdicts: Vec::new(),
            plot: None,
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.cells(cells.to_vec());
    }

    /// A row of as many cells as there are columns.
    pub fn cells(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "{}: a cell for each column", self.title);
        self.rows.push(cells);
    }

    /// Ways that this server cannot run.
    pub fn missing(&mut self, names: &[&str]) {
        for name in names {
            let mut cells = vec![name.to_string(), "not there".to_owned()];
            cells.resize(self.columns.len(), String::new());
            self.rows.push(cells);
        }
    }

    fn terminal(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = format!("\n{}\n", self.title);
        for cells in std::iter::once(&self.columns).chain(&self.rows) {
            text.push_str("  ");
            for (cell, width) in cells.iter().zip(&widths) {
                let _ = write!(text, "{cell:<width$}  ");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        for verdict in &self.verdicts {
            let _ = writeln!(text, "  {:<8} {}: {}", verdict.word(), verdict.what, verdict.terms());
        }
        text
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&self.columns);
        text.push_str(&line(&vec!["---".to_owned(); self.columns.len()]));
        for row in &self.rows {
            text.push_str(&line(row));
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }
}

/// A target and whether it was met. Nothing fails here: a timing is a measurement, not a test.
pub struct Verdict {
    pub what: String,
    limit: f64,
    bound: Bound,
    /// None where a side of the comparison is not there.
    measured: Option<Figure>,
    unit: &'static str,
}

enum Bound {
    AtMost,
    AtLeast,
}

impl Verdict {
    pub fn at_most(what: &str, limit: f64, measured: Option<Figure>) -> Verdict {
        Verdict { what: what.to_owned(), limit, bound: Bound::AtMost, measured, unit: "" }
    }

    pub fn at_least(what: &str, limit: f64, measured: Option<Figure>) -> Verdict {
        Verdict { what: what.to_owned(), limit, bound: Bound::AtLeast, measured, unit: "" }
    }

    pub fn unit(mut self, unit: &'static str) -> Verdict {
        self.unit = unit;
        self
    }

    fn word(&self) -> &'static str {
        match self.measured {
            None => "absent",
            Some(figure) => match self.bound {
                Bound::AtMost if figure.median <= self.limit => "reached",
                Bound::AtLeast if figure.median >= self.limit => "reached",
                _ => "MISSED",
            },
        }
    }

    fn target(&self) -> String {
        let sign = match self.bound {
            Bound::AtMost => '≤',
            Bound::AtLeast => '≥',
        };
        format!("{sign} {}{}", self.limit, self.unit)
    }

    fn result(&self) -> String {
        match &self.measured {
            None => "not there".to_owned(),
            Some(figure) if figure.low == figure.high => format!("{}{}", digits(figure.median), self.unit),
            Some(figure) => format!("{}{}", figure.show(), self.unit),
        }
    }

    fn cell(&self) -> String {
        match self.word() {
            "MISSED" => format!("**missed:** {}", self.result()),
            _ => self.result(),
        }
    }

    fn terms(&self) -> String {
        format!("{}, target {}", self.result(), self.target())
    }
}

/// All that was measured on one server.
pub struct Chapter {
    pub version: String,
    pub sections: Vec<Section>,
}

impl Chapter {
    fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.sections.iter().flat_map(|section| &section.verdicts)
    }
}

pub fn print(section: &Section) {
    print!("{}", section.terminal());
}

/// Writes benchmarks.md and its plots into `directory`. What stands in benchmarks/why.md there becomes part of it.
pub fn write(directory: &Path, chapters: &[Chapter], machine: &str, scale: Scale, command: &str) -> io::Result<()> {
    let plots_directory = directory.join("benchmarks");
    std::fs::create_dir_all(&plots_directory)?;
    let mut text = String::from("# Benchmarks\n\n");
    let versions: Vec<&str> = chapters.iter().map(|chapter| chapter.version.as_str()).collect();
    let size = scale.pick("the full run", "a quick run, in small: read the figures with that in mind");
    let _ = write!(
        text,
        "Written by `{command}` ({size}), not by hand. Ratios come first, because they travel between machines; times do not.\n\
         A comparison in which the module loses is shown like any other.\n\n\
         Machine: {machine}. Servers: {}, each private to the run, on the loopback interface, with the stock configuration\n\
         (stock save points, no AOF) where a section names nothing else.\n\
         \"12 (11 to 13)\" is a median between its quartiles.\n\n",
        versions.join(", ")
    );
    targets(&mut text, chapters);
    // Figures come from the run; reasons are written by hand, and outlive it.
    if let Ok(reasons) = std::fs::read_to_string(plots_directory.join("why.md")) {
        let _ = write!(text, "\n{}\n", reasons.trim_end());
    }

    text.push_str("\n## The ways\n\n| way | what its users send |\n| --- | --- |\n");
    for rival in rivals::ALL {
        let _ = writeln!(text, "| {} | {} |", rival.name, rival.how);
    }
    text.push_str(
        "\nLeases are 30 s, scripts are called by EVALSHA, and what polls sleeps as long as its name says.\n",
    );

    let Some(first) = chapters.first() else {
        return std::fs::write(directory.join("benchmarks.md"), text);
    };
    for (number, section) in first.sections.iter().enumerate() {
        let _ = write!(text, "\n## {}\n\n{}\n", section.title, section.method);
        for chapter in chapters {
            let Some(section) = chapter.sections.get(number) else { continue };
            let _ = write!(text, "\n### {}\n\n{}", chapter.version, section.markdown());
            if let Some(plot) = &section.plot {
                let name = plots::draw(&plots_directory, plot, &chapter.version)?;
                let _ = write!(text, "\n![{} on {}](benchmarks/{name})\n", section.title, chapter.version);
            }
        }
    }
    std::fs::write(directory.join("benchmarks.md"), text)
}

/// Every target with what was measured, one column for each server.
fn targets(text: &mut String, chapters: &[Chapter]) {
    text.push_str("## Targets\n\n| what | target |");
    for chapter in chapters {
        let _ = write!(text, " {} |", chapter.version);
    }
    text.push_str("\n| --- | --- |");
    text.push_str(&" --- |".repeat(chapters.len()));
    text.push('\n');
    let mut seen = Vec::new();
    for verdict in chapters.iter().flat_map(Chapter::verdicts) {
        if seen.contains(&&verdict.what) {
            continue;
        }
        seen.push(&verdict.what);
        let _ = write!(text, "| {} | {} |", verdict.what, verdict.target());
        for chapter in chapters {
            let cell = chapter.verdicts().find(|other| other.what == verdict.what).map(Verdict::cell);
            let _ = write!(text, " {} |", cell.unwrap_or_default());
        }
        text.push('\n');
    }
}
