//! The graph as a tree for people. Below a lock are its holders and waiters; below a waiter are the locks that it holds
//! and that have waiters. So a lock must become free before the locks below it. Each lock is drawn once; a cycle leads
//! back to a lock that is already drawn, and ends there.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;
use std::io::{self, IsTerminal};

use ratatui::crossterm::style::Stylize;
use unicode_width::UnicodeWidthStr;

use super::cycle::Cycle;
use super::model::{Graph, LockId, Owner};
use super::read::Omitted;
use crate::duration::{human, left};
use crate::output::columns;
use crate::text::cut;
use crate::top::sample::Sample;
use crate::top::summary;

/// Longer chains continue at the margin, because the tree must fit 80 columns.
const MAX_DEPTH: usize = 4;

/// A name is not truncated below this width.
const MIN_NAME: usize = 12;

pub fn tree(graph: &Graph, cycles: &[Cycle], left_out: &Omitted, sample: &Sample, db: u64) -> String {
    let terminal = io::stdout();
    let width = columns();
    let paint = Paint { is_plain: !terminal.is_terminal() };
    let waiters = sample.sum(|server| server.waiters);
    let mut text = format!("{}   waiters {waiters}\n", summary::servers(sample));
    for warning in summary::warnings(sample) {
        line(&mut text, paint.as_is(warning, Look::Warning));
    }
    for cycle in cycles {
        for sentence in lines_of(cycle) {
            line(&mut text, paint.as_is(sentence, Look::Cycle));
        }
    }
    text.push('\n');
    let mut drawing = Drawing { graph, cycles, db, rows: Vec::new(), drawn: BTreeSet::new(), below: VecDeque::new() };
    drawing.draw();
    if drawing.rows.is_empty() {
        line(&mut text, paint.as_is("no waiters".to_string(), Look::Aside));
    } else {
        table(&mut text, &drawing.rows, width, paint);
    }
    let left_out = left_out.lines();
    if !left_out.is_empty() {
        text.push('\n');
    }
    for sentence in left_out {
        line(&mut text, paint.as_is(sentence, Look::Aside));
    }
    text
}

fn lines_of(cycle: &Cycle) -> Vec<String> {
    let end = match cycle.first_end() {
        Some(ms) => format!("its first lease has {} left", human(ms)),
        None => "no lease ends it".to_string(),
    };
    let mut lines = vec![format!("cycle of {}: {end}, `redis-lock break` ends it now", cycle.0.len())];
    lines.extend(
        cycle.steps().map(|(step, holder)| format!("  {} waits for {}, held by {holder}", step.owner, step.key)),
    );
    lines
}

struct Drawing<'a> {
    graph: &'a Graph,
    cycles: &'a [Cycle],
    db: u64,
    rows: Vec<Row>,
    drawn: BTreeSet<LockId>,
    /// Locks too deep in the tree; each starts another tree.
    below: VecDeque<LockId>,
}

struct Row {
    branches: String,
    lead: String,
    /// Truncated first if the line is too long.
    name: String,
    about: String,
    look: Look,
    /// How long the owner has held the lock or waited for it.
    since: String,
    left: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Lock,
    Owner,
    Aside,
    Warning,
    Cycle,
}

impl Drawing<'_> {
    fn draw(&mut self) {
        let in_cycles = self.cycles.iter().filter_map(|cycle| cycle.0.first()).map(|step| step.lock);
        let is_free_to_go = |id: &LockId| self.graph.before(*id).is_empty();
        let mut roots: Vec<LockId> = self.graph.shown_ids().filter(is_free_to_go).collect();
        roots.sort_by_cached_key(|id| {
            let behind = self.graph.all_behind(*id);
            Reverse(behind.into_iter().map(|id| self.graph.lock(id).info.waiters).sum::<u64>())
        });
        // The remaining locks are drawn below one of these, unless an owner was read in two roles at once.
        let others = self.graph.shown_ids();
        let order: Vec<LockId> = in_cycles.chain(roots).chain(others).collect();
        for root in order {
            self.below.push_back(root);
            while let Some(id) = self.below.pop_front() {
                if self.drawn.insert(id) {
                    self.lock(id, "", "", None, 0);
                }
            }
        }
    }

    /// Draws a lock and everything below it. `above` waits for the lock above, and holds this one.
    fn lock(&mut self, id: LockId, branches: &str, fork: &str, above: Option<&Owner>, depth: usize) {
        let graph = self.graph;
        let lock = graph.lock(id);
        let about = format!("  {}", lock.describe(self.db));
        self.row(branches, fork, "", lock.info.key.to_string(), about, Look::Lock);
        let branches = &format!("{branches}{}", continued(fork));
        let (holders, more_holders) = graph.main_holders(id);
        let (waiters, more_waiters) = graph.main_waiters(id);
        let is_free = lock.info.holding == 0;
        let summaries = [is_free, more_holders > 0, more_waiters > 0].into_iter().filter(|is_there| *is_there).count();
        let mut rest = holders.len() + waiters.len() + summaries;
        let mut next_fork = || {
            rest = rest.saturating_sub(1);
            if rest == 0 {
                "└─ "
            } else {
                "├─ "
            }
        };
        if is_free {
            self.row(branches, next_fork(), "", String::new(), "free".to_string(), Look::Aside);
        }
        for (holder, owner) in &holders {
            let mut about = detail(&lock.info.kind, &holder.mode, holder.holds);
            if above != Some(owner) {
                about += &self.waits_for(", waits for", owner, id);
            }
            self.row(branches, next_fork(), "held by ", holder.owner.to_string(), about, Look::Owner);
            self.times(holder.age, left(holder.ttl));
        }
        if more_holders > 0 {
            self.row(branches, next_fork(), "", String::new(), format!("held by {more_holders} more"), Look::Aside);
        }
        for (position, waiter, owner) in &waiters {
            let fork = next_fork();
            let about =
                detail(&lock.info.kind, &waiter.mode, waiter.permits) + &self.waits_for(", waits also for", owner, id);
            self.row(branches, fork, &format!("{position}. "), waiter.owner.to_string(), about, Look::Owner);
            self.times(waiter.waited, waiter.remaining());
            let held: Vec<LockId> = graph.held_by(owner, id).collect();
            let branches = format!("{branches}{}", continued(fork));
            for (index, next) in held.iter().enumerate() {
                let fork = if index + 1 == held.len() { "└─ " } else { "├─ " };
                self.nested(*next, &branches, fork, owner, depth + 1);
            }
        }
        if more_waiters > 0 {
            self.row(branches, next_fork(), "", String::new(), format!("… {more_waiters} more waiting"), Look::Aside);
        }
    }

    /// A lock that a waiter holds. It is drawn here unless it is drawn elsewhere.
    fn nested(&mut self, id: LockId, branches: &str, fork: &str, owner: &Owner, depth: usize) {
        let key = self.graph.lock(id).info.key.to_string();
        let is_in_cycle = |cycle: &Cycle| cycle.0.iter().any(|step| step.lock == id);
        if self.drawn.contains(&id) {
            let (about, look) = if self.cycles.iter().any(is_in_cycle) {
                ("  cycle: see above", Look::Cycle)
            } else {
                ("  see above", Look::Lock)
            };
            self.row(branches, fork, "", key, about.to_string(), look);
        } else if depth >= MAX_DEPTH {
            self.below.push_back(id);
            self.row(branches, fork, "", key, "  see below".to_string(), Look::Lock);
        } else {
            self.drawn.insert(id);
            self.lock(id, branches, fork, Some(owner), depth);
        }
    }

    /// The other locks that an owner waits for.
    fn waits_for(&self, words: &str, owner: &Owner, id: LockId) -> String {
        let keys: Vec<String> =
            self.graph.awaited_by(owner, id).map(|id| self.graph.lock(id).info.key.to_string()).collect();
        match keys.as_slice() {
            [] => String::new(),
            [key] => format!("{words} {key}"),
            [key, rest @ ..] => format!("{words} {key} and {} more", rest.len()),
        }
    }

    fn row(&mut self, branches: &str, fork: &str, lead: &str, name: String, about: String, look: Look) {
        let (since, left) = (String::new(), String::new());
        let branches = format!("{branches}{fork}");
        self.rows.push(Row { branches, lead: lead.to_string(), name, about, look, since, left });
    }

    fn times(&mut self, since: u64, left: String) {
        if let Some(row) = self.rows.last_mut() {
            (row.since, row.left) = (human(since), left);
        }
    }
}

/// The branch that continues below a fork.
fn continued(fork: &str) -> &'static str {
    match fork {
        "" => "",
        "└─ " => "   ",
        _ => "│  ",
    }
}

/// How the lock is held or requested, if it is not a mutex.
fn detail(kind: &str, mode: &str, count: u64) -> String {
    let times = if count == 1 { String::new() } else { format!(" {count} times") };
    match kind {
        "rw" => format!(", {mode}{times}"),
        "semaphore" if count != 1 => format!(", {count} permits"),
        "reentrant" if count != 1 => format!(",{times}"),
        _ => String::new(),
    }
}

fn table(text: &mut String, rows: &[Row], width: Option<usize>, paint: Paint) {
    let widest = |cell: fn(&Row) -> &str, title: &str| {
        rows.iter().map(|row| cell(row).width()).chain([title.width()]).max().unwrap_or_default()
    };
    let (title, since, left) = ("LOCK, HOLDERS, WAITERS", "FOR", "LEFT");
    let since_width = widest(|row| &row.since, since);
    let left_width = widest(|row| &row.left, left);
    let natural = rows.iter().map(Row::width).chain([title.width()]).max().unwrap_or_default();
    let columns = since_width + left_width + 4;
    let tree_width = width.map_or(natural, |width| natural.min(width.saturating_sub(columns)));
    line(text, format!("{title:<tree_width$}  {since:>since_width$}  {left:>left_width$}"));
    for row in rows {
        let shown = row.cut(tree_width);
        let padding = tree_width.saturating_sub(shown.width());
        let mut cells = paint.row(&shown);
        if !row.since.is_empty() {
            let _ = write!(cells, "{:padding$}  {:>since_width$}  {:>left_width$}", "", row.since, row.left);
        }
        line(text, cells);
    }
}

impl Row {
    fn width(&self) -> usize {
        self.branches.width() + self.lead.width() + self.name.width() + self.about.width()
    }

    /// Truncates the row to this width: the name first, then the details.
    fn cut(&self, width: usize) -> Row {
        let other_width = self.width() - self.name.width();
        let name = cut(&self.name, width.saturating_sub(other_width).max(MIN_NAME));
        let before = self.branches.width() + self.lead.width() + name.width();
        let about = cut(&self.about, width.saturating_sub(before));
        let (branches, lead) = (self.branches.clone(), self.lead.clone());
        Row { branches, lead, name, about, look: self.look, since: String::new(), left: String::new() }
    }
}

/// Colours as in `top`: only on a terminal, and not if NO_COLOR is set, which crossterm respects.
#[derive(Clone, Copy)]
struct Paint {
    is_plain: bool,
}

impl Paint {
    fn row(self, row: &Row) -> String {
        let Row { branches, lead, name, about, look, .. } = row;
        if self.is_plain {
            return format!("{branches}{lead}{name}{about}");
        }
        match look {
            Look::Lock => format!("{branches}{lead}{}{about}", name.as_str().bold()),
            Look::Cycle => format!("{branches}{lead}{}{}", name.as_str().bold(), about.as_str().red()),
            look => format!("{branches}{lead}{name}{}", self.as_is(about.clone(), *look)),
        }
    }

    fn as_is(self, text: String, look: Look) -> String {
        match look {
            _ if self.is_plain => text,
            Look::Lock => text.bold().to_string(),
            Look::Owner => text,
            Look::Aside => text.dim().to_string(),
            Look::Warning => text.yellow().to_string(),
            Look::Cycle => text.red().to_string(),
        }
    }
}

fn line(text: &mut String, line: String) {
    text.push_str(line.trim_end());
    text.push('\n');
}
