//! The state of the view, changed by key presses.

use std::cmp::Reverse;
use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::sample::Lock;

pub struct View {
    pub interval: Duration,
    pub sort: Sort,
    pub is_help: bool,
    /// The number of rows above the window.
    pub offset: usize,
    /// The number of rows that fit.
    rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Waiters,
    Oldest,
    Held,
    Key,
    /// For columns that the rows cannot be sorted by.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Stay,
    Quit,
    /// Return to the shell until `fg`.
    Suspend,
}

/// The intervals that + and - step through, in milliseconds.
const INTERVALS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

impl View {
    pub fn new(interval: Duration) -> View {
        View { interval, sort: Sort::Waiters, is_help: false, offset: 0, rows: 0 }
    }

    pub fn handle(&mut self, event: Event) -> Wish {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(key),
            _ => Wish::Stay,
        }
    }

    fn press(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Wish::Quit,
                KeyCode::Char('z') => Wish::Suspend,
                _ => Wish::Stay,
            };
        }
        match key.code {
            KeyCode::Esc if self.is_help => self.is_help = false,
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
            KeyCode::Char('?') => self.is_help = !self.is_help,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('w') => self.sort = Sort::Waiters,
            KeyCode::Char('o') => self.sort = Sort::Oldest,
            KeyCode::Char('h') => self.sort = Sort::Held,
            KeyCode::Char('k') => self.sort = Sort::Key,
            KeyCode::Char('+') => self.interval = slower(self.interval),
            KeyCode::Char('-') => self.interval = faster(self.interval),
            KeyCode::Down => self.offset += 1,
            KeyCode::Up => self.offset = self.offset.saturating_sub(1),
            KeyCode::PageDown => self.offset += self.rows,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(self.rows),
            KeyCode::Home => self.offset = 0,
            KeyCode::End => self.offset = usize::MAX,
            _ => {}
        }
        Wish::Stay
    }

    /// Limits the offset, so that the window does not extend past the last row.
    pub fn limit_offset(&mut self, locks: usize, rows: usize) {
        self.rows = rows;
        self.offset = self.offset.min(locks.saturating_sub(rows));
    }

    pub fn interval_text(&self) -> String {
        humantime::format_duration(self.interval).to_string()
    }
}

fn slower(interval: Duration) -> Duration {
    INTERVALS.into_iter().map(Duration::from_millis).find(|longer| *longer > interval).unwrap_or(interval)
}

fn faster(interval: Duration) -> Duration {
    INTERVALS.into_iter().rev().map(Duration::from_millis).find(|shorter| *shorter < interval).unwrap_or(interval)
}

impl Sort {
    fn next(self) -> Sort {
        match self {
            Sort::Waiters => Sort::Oldest,
            Sort::Oldest => Sort::Held,
            Sort::Held => Sort::Key,
            Sort::Key | Sort::None => Sort::Waiters,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Sort::Waiters => "waiters",
            Sort::Oldest => "oldest wait",
            Sort::Held => "time held",
            Sort::Key => "key",
            Sort::None => "none",
        }
    }

    /// Sorts the locks. The input is sorted by waiters, most first.
    pub fn apply(self, locks: &mut [&Lock]) {
        match self {
            Sort::Waiters | Sort::None => {}
            Sort::Oldest => locks.sort_by_key(|lock| Reverse(lock.longest)),
            Sort::Held => locks.sort_by_key(|lock| Reverse(lock.held)),
            Sort::Key => locks.sort_by(|a, b| (&a.key, a.db).cmp(&(&b.key, b.db))),
        }
    }
}
