//! Draws the screen from the last sample of the servers.

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
use crate::text::{cut, wrapped};

/// How long the servers may be silent before the screen says so.
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
Ctrl-Z            suspend
s                 sort by the next column
w o h k           sort by waiters, oldest wait, time held, key
+ -               refresh less often, more often
up down, pages    scroll
?                 this help

WAITERS  how many requests wait for the lock
OLDEST   how long the first of them has waited
HELD     how long the first holder has held it
HOLDER   the owner with the smallest fence

The rows are the reply of LOCK.TOP: the locks with the
most waiters, in all databases. Only these are sorted.";

pub fn draw(frame: &mut Frame, view: &mut View, known: &Known) {
    let [rest, footer] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    let problems = problems(view, known, rest);
    let heights = [1, 3, problems.len(), 1].map(|lines| Constraint::Length(lines.try_into().unwrap_or(1)));
    let [title, numbers, warned, gap] = heights;
    let [title, numbers, warned, _, table] =
        Layout::vertical([title, numbers, warned, gap, Constraint::Min(1)]).areas(rest);

    let name = format!("redis-lock top   {}", summary::servers(&known.sample));
    let pace = format!("every {}   answered in {}", view.interval_text(), milliseconds(known.sample.took));
    let (name, pace) = (one_line(&name, title).bold(), Line::from(pace).alignment(Alignment::Right));
    if name.width() + pace.width() < title.width.into() {
        frame.render_widget(pace, title);
    }
    frame.render_widget(name, title);
    let lines = summary::lines(&known.sample, known.rates);
    let lines: Vec<Line> = lines.iter().map(|line| one_line(line, numbers)).collect();
    frame.render_widget(Text::from(lines), numbers);
    frame.render_widget(Text::from(problems), warned);
    draw_table(frame, table, view, known);
    frame.render_widget(keys(view), footer);
    if view.is_help {
        draw_help(frame);
    }
}

/// The problems, on as many lines as needed: servers that do not reply, and what limits the meaning of the table.
fn problems(view: &View, known: &Known, area: Rect) -> Vec<Line<'static>> {
    let problem = problem(view, known);
    let missing = known.sample.missing.iter().map(|one| format!("{} is not shown: {}", one.server, one.error));
    let red = problem.into_iter().chain(missing);
    let yellow = summary::other_nodes(&known.sample).into_iter().chain(summary::warnings(&known.sample));
    let wrapped = |text: String| wrapped(&text, area.width.into());
    let red = red.flat_map(wrapped).map(|line| Line::from(line.red()));
    let yellow = yellow.flat_map(wrapped).map(|line| Line::from(line.yellow()));
    // Leave room for one row of the table, and at least one line for the problems.
    let most = usize::from(area.height).saturating_sub(OTHER_LINES).max(1);
    red.chain(yellow).take(most).collect()
}

/// The title, the numbers, a gap, the table's header and one row.
const OTHER_LINES: usize = 7;

/// The columns with their widths and priorities: in a narrow terminal, those with the lowest priority are omitted.
const COLUMNS: [(&str, Sort, Constraint, u8); 7] = [
    ("WAITERS", Sort::Waiters, Constraint::Length(7), 6),
    ("OLDEST", Sort::Oldest, Constraint::Length(7), 5),
    ("HELD", Sort::Held, Constraint::Length(7), 3),
    ("KIND", Sort::None, Constraint::Length(9), 2),
    ("DB", Sort::None, Constraint::Length(3), 1),
    ("KEY", Sort::Key, Constraint::Fill(3), 7),
    ("HOLDER", Sort::None, Constraint::Fill(2), 4),
];

/// A narrower column shows no useful name.
const MIN_NAME: u16 = 8;

/// The indexes of the columns that fit, and the area of each.
fn columns(area: Rect) -> Vec<(usize, Rect)> {
    let mut columns: Vec<usize> = (0..COLUMNS.len()).collect();
    loop {
        let areas = Layout::horizontal(columns.iter().map(|column| COLUMNS[*column].2)).spacing(1).split(area);
        let placed: Vec<(usize, Rect)> = columns.iter().copied().zip(areas.iter().copied()).collect();
        let has_room = |(column, area): &(usize, Rect)| match COLUMNS[*column].2 {
            Constraint::Length(length) => area.width >= length,
            _ => area.width >= MIN_NAME,
        };
        let least = (0..columns.len()).min_by_key(|index| COLUMNS[columns[*index]].3);
        match least {
            Some(least) if columns.len() > 1 && !placed.iter().all(has_room) => columns.remove(least),
            _ => return placed,
        };
    }
}

fn draw_table(frame: &mut Frame, area: Rect, view: &mut View, known: &Known) {
    if known.sample.locks.is_empty() {
        frame.render_widget(Line::from("no waiters".dim()), area);
        return;
    }
    let mut locks: Vec<&Lock> = known.sample.locks.iter().collect();
    view.sort.apply(&mut locks);
    view.limit_offset(locks.len(), area.height.saturating_sub(1).into());
    let columns = columns(area);
    let header = columns.iter().map(|(column, area)| {
        let (title, sort, ..) = COLUMNS[*column];
        let line = one_line(title, *area);
        let line = if sort == view.sort { line.underlined() } else { line };
        Cell::from(line.alignment(alignment(*column)))
    });
    let header = Row::new(header).style(Style::new().reversed());
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
        let cell =
            |(column, area): &(usize, Rect)| Cell::from(one_line(&cells[*column], *area).alignment(alignment(*column)));
        Row::new(columns.iter().map(cell))
    });
    let widths = columns.iter().map(|(_, area)| Constraint::Length(area.width));
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
}

/// Truncated with `…` if it is too long.
fn one_line(text: &str, area: Rect) -> Line<'static> {
    Line::from(cut(text, area.width.into()))
}

/// Numbers and times are right-aligned.
fn alignment(column: usize) -> Alignment {
    match column {
        0..=2 | 4 => Alignment::Right,
        _ => Alignment::Left,
    }
}

/// Why there is no newer sample.
fn problem(view: &View, known: &Known) -> Option<String> {
    let age = known.sample.taken.elapsed();
    if let Some(problem) = &known.problem {
        return Some(format!("{problem}; retrying. Data shown: {} old", seconds(age)));
    }
    let is_silent = age > view.interval.saturating_add(SILENCE);
    is_silent.then(|| format!("no response for {}", seconds(age)))
}

/// The last line, with the keys.
fn keys(view: &View) -> Line<'static> {
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
