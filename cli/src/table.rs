//! Aligned columns for people: each as wide as its widest cell, with numbers and times right-aligned.
//!
//! If the terminal is too narrow, a long name that users copy into the next command gets a separate line and stays
//! whole, and other names are truncated. If that is not enough, each row and the header are folded onto multiple lines.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use crate::text::cut;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
    /// Left-aligned: a name of any length, which may be truncated.
    Name,
    /// Left-aligned: a name of any length that users copy into the next command.
    Whole,
}

/// A name is not truncated below this width, and a line has at least this much room for a whole name.
const MIN_NAME: usize = 12;

/// The gap between columns.
const GAP: usize = 2;

/// The indentation of the second line of a folded row.
const INDENT: usize = 2;

pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

/// The columns of one line: their indexes and widths.
type Line = Vec<(usize, usize)>;

impl Table {
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.columns.len());
        self.rows.push(cells.into());
    }

    /// The formatted table for a terminal of this width; None: as wide as needed.
    pub fn text(&self, terminal: Option<usize>) -> String {
        let natural = self.natural_widths();
        let lines = match terminal {
            Some(terminal) => self.narrowed(&natural, terminal).unwrap_or_else(|| self.folded(&natural, terminal)),
            None => vec![natural.into_iter().enumerate().collect()],
        };
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.to_string()).collect();
        let mut text = String::new();
        for cells in std::iter::once(&titles).chain(&self.rows) {
            self.write_row(&mut text, cells, &lines);
        }
        text
    }

    fn natural_widths(&self) -> Vec<usize> {
        let cells = |column: usize| self.rows.iter().map(move |row| row[column].width());
        let titles = self.columns.iter().enumerate();
        titles.map(|(column, (title, _))| cells(column).max().unwrap_or_default().max(title.width())).collect()
    }

    /// Fits a row on one line by truncating names; None: that is not enough.
    fn narrowed(&self, natural: &[usize], terminal: usize) -> Option<Vec<Line>> {
        let mut widths = natural.to_vec();
        let mut surplus = (widths.iter().sum::<usize>() + GAP * (widths.len() - 1)).saturating_sub(terminal);
        for (column, (title, align)) in self.columns.iter().enumerate() {
            if *align == Align::Whole {
                let narrower = widths[column].saturating_sub(surplus).max(title.width());
                surplus -= widths[column] - narrower;
                widths[column] = narrower;
            }
        }
        while surplus > 0 {
            let names = (0..widths.len()).filter(|column| self.columns[*column].1 == Align::Name);
            let widest = names.max_by_key(|column| widths[*column]).filter(|widest| widths[*widest] > MIN_NAME)?;
            widths[widest] -= 1;
            surplus -= 1;
        }
        Some(vec![widths.into_iter().enumerate().collect()])
    }

    /// Folds a row onto as many lines as needed.
    fn folded(&self, natural: &[usize], terminal: usize) -> Vec<Line> {
        let mut lines: Vec<Line> = vec![Line::new()];
        let mut left = terminal;
        for (column, (title, align)) in self.columns.iter().enumerate() {
            let is_first = lines.last().is_none_or(Vec::is_empty);
            let room = if is_first { left } else { left.saturating_sub(GAP) };
            let width = natural[column];
            let fits = match align {
                Align::Whole if room >= MIN_NAME.max(title.width()) => Some(width.min(room)),
                _ => (width <= room).then_some(width),
            };
            let width = fits.unwrap_or_else(|| {
                let whole_line = terminal.saturating_sub(INDENT);
                if !is_first {
                    lines.push(Line::new());
                    left = whole_line;
                }
                match align {
                    Align::Name | Align::Whole => width.min(whole_line.max(title.width())),
                    Align::Left | Align::Right => width,
                }
            });
            let line = lines.last_mut().expect("there is one from the start");
            left = left.saturating_sub(width + if line.is_empty() { 0 } else { GAP });
            line.push((column, width));
        }
        lines
    }

    fn write_row(&self, text: &mut String, cells: &[String], lines: &[Line]) {
        let widths = lines.iter().flatten();
        for (column, width) in widths {
            if self.columns[*column].1 == Align::Whole && cells[*column].width() > *width {
                text.push_str(&cells[*column]);
                text.push('\n');
            }
        }
        for (index, line) in lines.iter().enumerate() {
            let mut written = " ".repeat(if index > 0 { INDENT } else { 0 });
            for (column, width) in line {
                let (align, width) = (self.columns[*column].1, *width);
                let cell = match align {
                    Align::Whole if cells[*column].width() > width => String::new(),
                    Align::Name => cut(&cells[*column], width),
                    _ => cells[*column].clone(),
                };
                let padding = " ".repeat(width.saturating_sub(cell.width()));
                let (before, behind) = if align == Align::Right { (&*padding, "") } else { ("", &*padding) };
                // Writing into a string cannot fail.
                let _ = write!(written, "{before}{cell}{behind}{:GAP$}", "");
            }
            text.push_str(written.trim_end());
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_display_width() {
        let mut table = Table::new(&[("KEY", Align::Whole), ("N", Align::Right), ("OWNER", Align::Name)]);
        table.row(["東京".into(), "5".into(), "a".into()]);
        table.row(["longer".into(), "1234".into(), "bb".into()]);
        let text = "KEY        N  OWNER\n東京       5  a\nlonger  1234  bb\n";
        assert_eq!([table.text(None), table.text(Some(80)), table.text(Some(19))], [text; 3]);
    }

    #[test]
    fn truncation_accounts_for_variation_selectors() {
        for hearts in 0..6 {
            let mut table = Table::new(&[("N", Align::Right), ("OWNER", Align::Name)]);
            table.row(["5".into(), "o".repeat(hearts) + &"\u{2764}\u{fe0f}".repeat(10)]);
            let text = table.text(Some(15));
            assert!(text.lines().all(|line| line.width() <= 15) && text.ends_with("…\n"), "{text}");
        }
    }

    #[test]
    fn long_names_to_copy_get_a_separate_line_and_others_are_truncated() {
        let mut table = Table::new(&[("KEY", Align::Whole), ("N", Align::Right), ("OWNER", Align::Name)]);
        table.row(["k".repeat(30), "5".into(), "owner-with-a-long-name".into()]);
        table.row(["k".into(), "5".into(), "o".into()]);
        let lines = ["KEY  N  OWNER", &"k".repeat(30), "     5  owner-with-…", "k    5  o", ""];
        assert_eq!(table.text(Some(20)), lines.join("\n"));
    }

    fn of_log() -> Table {
        let mut table = Table::new(&[
            ("TIME", Align::Left),
            ("MS", Align::Right),
            ("KEY", Align::Whole),
            ("OWNER", Align::Name),
            ("CLIENT", Align::Right),
            ("ADDRESS", Align::Left),
        ]);
        let time = "2026-11-22T13:51:01.675Z".to_string();
        table.row([time.clone(), "5".into(), "k".into(), "web-1:1:9f2c".into(), "7".into(), "10.0.0.1:1".into()]);
        table.row([time, "12".into(), "k".repeat(40), "web-2:2:b00d".into(), "8".into(), "10.0.0.2:2".into()]);
        table
    }

    #[test]
    fn a_row_that_is_too_wide_is_folded_completely() {
        let expected = "\
TIME                      MS  KEY
  OWNER         CLIENT  ADDRESS
2026-11-22T13:51:01.675Z   5  k
  web-1:1:9f2c       7  10.0.0.1:1
kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk
2026-11-22T13:51:01.675Z  12
  web-2:2:b00d       8  10.0.0.2:2
";
        assert_eq!(of_log().text(Some(50)), expected);
    }

    #[test]
    fn only_a_key_may_be_wider_than_the_terminal() {
        let table = of_log();
        for terminal in 24..120 {
            let text = table.text(Some(terminal));
            let rows = text.lines().filter(|line| *line != "k".repeat(40));
            assert!(rows.clone().all(|row| row.width() <= terminal), "{terminal}:\n{text}");
            let words = |word: &str| text.split_whitespace().filter(|found| *found == word).count();
            assert_eq!([words("k"), words("10.0.0.2:2"), words("ADDRESS")], [1; 3], "{terminal}:\n{text}");
        }
    }
}
