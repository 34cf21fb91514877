//! Aligned columns for people: each as wide as its widest cell, numbers and times to the right.
//!
//! In a terminal that is too narrow for that, names give way, so that a row stays one line. A long name in the first
//! column has a line of its own, whole, because it is what is copied into the next command; names in other columns are
//! cut.

use std::fmt::{self, Write};

use unicode_width::UnicodeWidthStr;

use crate::text::cut;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
    /// To the left: keys and owners, which may be of any length.
    Name,
}

/// A name is not cut below this width.
const MIN_NAME: usize = 12;

/// Between columns.
const GAP: usize = 2;

pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// One cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.columns.len());
        self.rows.push(cells.into());
    }

    /// Its lines, in a terminal of this width; None: as wide as its cells.
    pub fn text(&self, terminal: Option<usize>) -> String {
        let widths = match terminal {
            Some(terminal) => self.narrowed(self.natural_widths(), terminal),
            None => self.natural_widths(),
        };
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.to_string()).collect();
        let mut text = String::new();
        for cells in std::iter::once(&titles).chain(&self.rows) {
            // Writing into a string cannot fail.
            let _ = self.write_row(&mut text, cells, &widths);
        }
        text
    }

    fn natural_widths(&self) -> Vec<usize> {
        let cells = |column: usize| self.rows.iter().map(move |row| row[column].width());
        let titles = self.columns.iter().enumerate();
        titles.map(|(column, (title, _))| cells(column).max().unwrap_or_default().max(title.width())).collect()
    }

    fn narrowed(&self, mut widths: Vec<usize>, terminal: usize) -> Vec<usize> {
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
        let surplus = total(&widths).saturating_sub(terminal);
        let (title, align) = self.columns[0];
        if surplus > 0 && align == Align::Name {
            widths[0] = widths[0].saturating_sub(surplus).max(title.width());
        }
        let mut surplus = total(&widths).saturating_sub(terminal);
        while surplus > 0 {
            let names = (1..widths.len()).filter(|column| self.columns[*column].1 == Align::Name);
            match names.max_by_key(|column| widths[*column]) {
                Some(widest) if widths[widest] > MIN_NAME => widths[widest] -= 1,
                _ => break,
            }
            surplus -= 1;
        }
        widths
    }

    fn write_row(&self, text: &mut String, cells: &[String], widths: &[usize]) -> fmt::Result {
        let mut line = String::new();
        for (column, (cell, (_, align))) in cells.iter().zip(&self.columns).enumerate() {
            let width = widths[column];
            let cell = match (align, column) {
                (Align::Name, 0) if cell.width() > width => {
                    writeln!(text, "{cell}")?;
                    String::new()
                }
                (Align::Name, _) => cut(cell, width),
                (Align::Left | Align::Right, _) => cell.clone(),
            };
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            let (before, behind) = if *align == Align::Right { (&*padding, "") } else { ("", &*padding) };
            line = line + before + &cell + behind + &" ".repeat(GAP);
        }
        writeln!(text, "{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_the_terminal_shows() {
        let mut table = Table::new(&[("KEY", Align::Name), ("N", Align::Right), ("OWNER", Align::Name)]);
        table.row(["東京".into(), "5".into(), "a".into()]);
        table.row(["longer".into(), "1234".into(), "bb".into()]);
        let text = "KEY        N  OWNER\n東京       5  a\nlonger  1234  bb\n";
        assert_eq!([table.text(None), table.text(Some(80)), table.text(Some(19))], [text; 3]);
    }

    #[test]
    fn a_name_is_cut_where_a_variation_selector_widens_a_character() {
        for hearts in 0..6 {
            let mut table = Table::new(&[("N", Align::Right), ("OWNER", Align::Name)]);
            table.row(["5".into(), "o".repeat(hearts) + &"\u{2764}\u{fe0f}".repeat(10)]);
            let text = table.text(Some(15));
            assert!(text.lines().all(|line| line.width() <= 15) && text.ends_with("…\n"), "{text}");
        }
    }

    #[test]
    fn a_long_name_of_the_first_column_has_a_line_of_its_own_and_another_one_is_cut() {
        let mut table = Table::new(&[("KEY", Align::Name), ("N", Align::Right), ("OWNER", Align::Name)]);
        table.row(["k".repeat(30), "5".into(), "owner-with-a-long-name".into()]);
        table.row(["k".into(), "5".into(), "o".into()]);
        let lines = ["KEY  N  OWNER", &"k".repeat(30), "     5  owner-with-…", "k    5  o", ""];
        assert_eq!(table.text(Some(20)), lines.join("\n"));
    }
}
