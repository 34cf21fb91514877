//! The results of one workload on one server: a table, notes, targets and a plot.

use std::fmt::Write as _;

use crate::plots::Plot;
use crate::stats::{digits, Figure};

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

    /// Adds a row, with a cell for each column.
    pub fn cells(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "{}: a cell for each column", self.title);
        self.rows.push(cells);
    }

    /// Rows for ways that this server cannot run.
    pub fn missing(&mut self, names: &[&str]) {
        for name in names {
            let mut cells = vec![name.to_string(), "not there".to_owned()];
            cells.resize(self.columns.len(), String::new());
            self.rows.push(cells);
        }
    }

    pub fn terminal(&self) -> String {
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

    pub fn markdown(&self) -> String {
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
    /// At most this.
    limit: f64,
    /// None if a side of the comparison is missing.
    measured: Option<Figure>,
    unit: &'static str,
}

impl Verdict {
    pub fn at_most(what: &str, limit: f64, measured: Option<Figure>) -> Verdict {
        Verdict { what: what.to_owned(), limit, measured, unit: "" }
    }

    pub fn unit(mut self, unit: &'static str) -> Verdict {
        self.unit = unit;
        self
    }

    /// Whether both sides of the comparison were measured.
    pub fn is_there(&self) -> bool {
        self.measured.is_some()
    }

    pub fn is_missed(&self) -> bool {
        self.word() == "MISSED"
    }

    fn word(&self) -> &'static str {
        match self.measured {
            None => "absent",
            Some(figure) if figure.median <= self.limit => "reached",
            Some(_) => "MISSED",
        }
    }

    pub fn target(&self) -> String {
        format!("≤ {}{}", self.limit, self.unit)
    }

    fn result(&self) -> String {
        match &self.measured {
            None => "not there".to_owned(),
            Some(figure) if figure.low == figure.high => format!("{}{}", self.digits(figure.median), self.unit),
            Some(figure) => format!("{}{}", figure.show(), self.unit),
        }
    }

    /// The number of digits needed to distinguish it from the limit.
    fn digits(&self, value: f64) -> String {
        match digits(value) {
            short if value != self.limit && short == digits(self.limit) => format!("{value:.3}"),
            short => short,
        }
    }

    pub fn cell(&self) -> String {
        if self.is_missed() {
            format!("**missed:** {}", self.result())
        } else {
            self.result()
        }
    }

    fn terms(&self) -> String {
        format!("{}, target {}", self.result(), self.target())
    }
}
