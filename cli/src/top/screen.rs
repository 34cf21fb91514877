//! What is on the screen, drawn from the last sample of the servers.

use std::time::{Duration, SystemTime};

use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};
use ratatui::Frame;

use super::once::{held, holder};
use super::sample::{Lock, Rates, Sample};
use super::summary;
use super::view::{Sort, View};
use crate::duration::human;

/// After this time without a reply, the screen says so.
const SILENCE: Duration = Duration::from_secs(2);

/// The last sample of the servers.
pub struct Known {
    pub sample: Sample,
    pub rates: Option<Rates>,
    /// The reason why there is no newer sample.
    pub problem: Option<String>,
}

const HELP: &str = "\
q, Esc, Ctrl-C    quit
Ctrl-Z            back to the shell, until fg
s                 sort by the next column
w o h k           sort by waiters, oldest wait, time held, key
+ -               ask less often, more often
up down, pages    scroll
?                 this help

WAITERS  how many requests wait for the lock
OLDEST   how long the first of them has waited
HELD     how long the first holder has had it
HOLDER   the owner with the smallest fence

The rows are what LOCK.TOP answers: the most waited-for
locks of all databases. Other columns sort those only.";

pub fn draw(frame: &mut Frame, view: &mut View, known: &Known) {
    let warnings = summary::warnings(&known.sample);
    let status = status(view, known);
    let heights = [1, 3, warnings.len(), 1].map(|lines| Constraint::Length(lines.try_into().unwrap_or(1)));
    let [title, numbers, warned, gap] = heights;
    let parts = [title, numbers, warned, gap, Constraint::Min(1), Constraint::Length(1)];
    let [title, numbers, warned, _, table, footer] = Layout::vertical(parts).areas(frame.area());

    let name = format!("redis-lock top   {}", summary::servers(&known.sample));
    let pace = format!("every {}   answered in {}", view.interval_text(), milliseconds(known.sample.took));
    let (name, pace) = (Line::from(name.bold()), Line::from(pace).alignment(Alignment::Right));
    if name.width() + pace.width() < title.width.into() {
        frame.render_widget(pace, title);
    }
    frame.render_widget(name, title);
    let lines: Vec<Line> = summary::lines(&known.sample, known.rates).into_iter().map(Line::from).collect();
    frame.render_widget(Text::from(lines), numbers);
    let warnings: Vec<Line> = warnings.into_iter().map(|warning| Line::from(warning.yellow())).collect();
    frame.render_widget(Text::from(warnings), warned);
    draw_table(frame, table, view, known);
    frame.render_widget(status, footer);
    if view.is_help {
        draw_help(frame);
    }
}

fn draw_table(frame: &mut Frame, area: Rect, view: &mut View, known: &Known) {
    if known.sample.locks.is_empty() {
        frame.render_widget(Line::from("nobody waits".dim()), area);
        return;
    }
    let mut locks: Vec<&Lock> = known.sample.locks.iter().collect();
    view.sort.apply(&mut locks);
    view.limit_offset(locks.len(), area.height.saturating_sub(1).into());
    let titles = [
        ("WAITERS", Sort::Waiters),
        ("OLDEST", Sort::Oldest),
        ("HELD", Sort::Held),
        ("KIND", Sort::None),
        ("DB", Sort::None),
        ("KEY", Sort::Key),
        ("HOLDER", Sort::None),
    ];
    let cells = titles.iter().enumerate().map(|(column, (title, sort))| {
        let line = if *sort == view.sort { Line::from(title.underlined()) } else { Line::from(*title) };
        Cell::from(line.alignment(alignment(column)))
    });
    let header = Row::new(cells).style(Style::new().reversed());
    let rows = locks.iter().skip(view.offset).map(|lock| {
        let cells = [
            lock.waiters.to_string(),
            human(lock.longest),
            held(lock),
            lock.kind.clone(),
            lock.db.to_string(),
            lock.key.to_string(),
            holder(lock),
        ];
        let aligned = |(column, cell)| Cell::from(Line::from(cell).alignment(alignment(column)));
        Row::new(cells.into_iter().enumerate().map(aligned))
    });
    let widths = [
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(9),
        Constraint::Length(3),
        Constraint::Fill(3),
        Constraint::Fill(2),
    ];
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
}

/// Numbers and times on the right.
fn alignment(column: usize) -> Alignment {
    match column {
        0..=2 | 4 => Alignment::Right,
        _ => Alignment::Left,
    }
}

/// The last line: the current problem, or the keys.
fn status(view: &View, known: &Known) -> Line<'static> {
    let age = known.sample.taken.elapsed();
    if let Some(problem) = &known.problem {
        return Line::from(format!("{problem}; trying again. What you see is {} old", seconds(age)).red());
    }
    if age > view.interval + SILENCE {
        return Line::from(format!("no answer for {}", seconds(age)).red());
    }
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    Line::from(format!("q quit   s sort: {}   + - interval   ? help   {time}", view.sort.name()).dim())
}

fn draw_help(frame: &mut Frame) {
    let lines = HELP.lines();
    let width = lines.clone().map(str::len).max().unwrap_or_default() + 4;
    let height = lines.count() + 2;
    let area = frame.area();
    let [area] = Layout::horizontal([Constraint::Length(width.try_into().unwrap_or(u16::MAX))])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [area] = Layout::vertical([Constraint::Length(height.try_into().unwrap_or(u16::MAX))])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys ").padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}

fn seconds(time: Duration) -> String {
    human(time.as_secs() * 1000).replace(".0s", "s")
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}ms", time.as_secs_f64() * 1000.0)
}
