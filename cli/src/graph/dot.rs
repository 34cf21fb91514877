//! The graph for Graphviz: `redis-lock graph --dot | dot -Tsvg`. An arrow leads from a waiter to its lock, and from a
//! lock to its holders. The arrows of a cycle are red.

use std::collections::HashMap;
use std::fmt::Write;

use super::cycle::Cycle;
use super::model::{Graph, Owner};
use super::read::Omitted;
use crate::duration::human;

pub fn dot(graph: &Graph, cycles: &[Cycle], left_out: &Omitted, db: u64) -> String {
    let mut dot = Dot { text: String::new(), owners: HashMap::new() };
    dot.line("digraph \"redis-lock\" {");
    dot.line("rankdir=LR;");
    let left_out = left_out.lines();
    if !left_out.is_empty() {
        dot.line(&format!("label={};", quoted(&left_out)));
    }
    let steps = || cycles.iter().flat_map(Cycle::steps);
    for id in graph.shown_ids() {
        let lock = graph.lock(id);
        let node = format!("lock{id}");
        let label = quoted(&[lock.info.key.to_string(), lock.describe(db)]);
        dot.line(&format!("{node} [shape=box, style=bold, label={label}];"));
        let (holders, more) = graph.main_holders(id);
        for (holder, owner) in holders {
            let is_in_cycle = steps().any(|(step, next)| step.lock == id && *next == owner.owner);
            let owner = dot.owner(owner);
            dot.edge(&node, &owner, &format!("held {}", human(holder.age)), is_in_cycle);
        }
        if more > 0 {
            dot.line(&format!("more_holders{id} [style=dashed, label=\"{more} more\"];"));
            dot.edge(&node, &format!("more_holders{id}"), "held", false);
        }
        let (waiters, more) = graph.main_waiters(id);
        for (position, waiter, owner) in waiters {
            let is_in_cycle = steps().any(|(step, _)| step.lock == id && step.owner == owner.owner);
            let owner = dot.owner(owner);
            dot.edge(&owner, &node, &format!("{position}. waits {}", human(waiter.waited)), is_in_cycle);
        }
        if more > 0 {
            dot.line(&format!("more_waiters{id} [style=dashed, label=\"{more} more\"];"));
            dot.edge(&format!("more_waiters{id}"), &node, "wait", false);
        }
    }
    dot.line("}");
    dot.text
}

struct Dot {
    text: String,
    owners: HashMap<Owner, String>,
}

impl Dot {
    /// The node of an owner, written on first use.
    fn owner(&mut self, owner: Owner) -> String {
        if let Some(node) = self.owners.get(&owner) {
            return node.clone();
        }
        let node = format!("owner{}", self.owners.len());
        self.line(&format!("{node} [label={}];", quoted(&[owner.owner.to_string()])));
        self.owners.insert(owner, node.clone());
        node
    }

    fn edge(&mut self, from: &str, to: &str, label: &str, is_in_cycle: bool) {
        let colour = if is_in_cycle { ", color=red" } else { "" };
        self.line(&format!("{from} -> {to} [label=\"{label}\"{colour}];"));
    }

    fn line(&mut self, line: &str) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A label with multiple lines, whose text must be free of control characters.
fn quoted(lines: &[String]) -> String {
    let escaped: Vec<String> = lines.iter().map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    format!("\"{}\"", escaped.join("\\n"))
}
