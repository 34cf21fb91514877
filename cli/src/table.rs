//! Aligned columns for people: each as wide as its widest cell, numbers and times to the right.

use std::fmt;

use unicode_width::UnicodeWidthStr;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

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
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.to_string()).collect();
        let lines = || std::iter::once(&titles).chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| lines().map(|cells| cells[column].width()).max().unwrap_or_default())
            .collect();
        for cells in lines() {
            let mut line = String::new();
            for ((cell, (_, align)), width) in cells.iter().zip(&self.columns).zip(&widths) {
                let padding = " ".repeat(width - cell.width());
                let (before, behind) = if *align == Align::Right { (&*padding, "") } else { ("", &*padding) };
                line = line + before + cell + behind + "  ";
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_the_terminal_shows() {
        let mut table = Table::new(&[("KEY", Align::Left), ("N", Align::Right), ("OWNER", Align::Left)]);
        table.row(["東京".into(), "5".into(), "a".into()]);
        table.row(["longer".into(), "1234".into(), "bb".into()]);
        assert_eq!(table.to_string(), "KEY        N  OWNER\n東京       5  a\nlonger  1234  bb\n");
    }
}
