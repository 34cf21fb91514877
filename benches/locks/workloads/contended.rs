//! 48 connections that contend for one lock, with and without a hold time.

use std::io;
use std::time::Duration;

use super::plan::Plan;
use crate::clients::{contend, Contention, Outcome};
use crate::plots::{Bar, Plot};
use crate::rivals::{self, prepare, Ready, Rival};
use crate::section::Section;
use crate::server::Server;
use crate::stats::{digits, Figure};

const CLIENTS: usize = 48;

const COLUMNS: &[&str] = &[
    "implementation",
    "LOCK to it, hand-offs/s",
    "LOCK to it, CPU per hand-off",
    "hand-offs/s",
    "grants/s",
    "commands per hand-off",
    "server CPU µs per hand-off",
    "per grant",
    "wait p50 ms",
    "p99 ms",
    "p99.9 ms",
    "grants of a client, fewest to most",
];

const METHOD: &str =
    "48 connections take and release one lock repeatedly, and wait for each reply. A hand-off is a grant to a \
     different client than the previous one: a poller that releases the lock and takes it again immediately, while all \
     other clients sleep, has a grant but no hand-off. Commands are counted as clients send them, including polls. The \
     implementations run in turn on one server; the figures are medians of the rounds.";

/// All rounds of one implementation.
struct Rounds {
    rival: &'static Rival,
    outcomes: Vec<Outcome>,
}

impl Rounds {
    fn each(&self, value: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.outcomes.iter().map(value).collect()
    }

    fn figure(&self, value: impl Fn(&Outcome) -> f64) -> Figure {
        Figure::of(self.each(value))
    }
}

pub fn no_hold(plan: &Plan) -> io::Result<Section> {
    let contention = Contention::new(CLIENTS, Duration::ZERO, plan.time(1000, 300));
    run(plan, contention, "Contended, 48 clients, no hold", "contended-0")
}

pub fn short_hold(plan: &Plan) -> io::Result<Section> {
    let contention = Contention::new(CLIENTS, Duration::from_millis(10), plan.time(1000, 500));
    run(plan, contention, "Contended, 48 clients, held for 10 ms", "contended-10")
}

/// How evenly grants are distributed over some seconds.
pub fn fairness(plan: &Plan) -> io::Result<Section> {
    let contention = Contention::new(CLIENTS, Duration::ZERO, plan.time(3000, 1000));
    let mut section = Section::new(
        "Fairness: 48 clients, no hold",
        &format!(
            "As above, for {} s: the grants of the client that got the fewest and of the one that got the most.",
            contention.time.as_secs()
        ),
        &["implementation", "most over fewest", "fewest", "most"],
    );
    let mut server = Server::start(&plan.builder)?;
    let ways: &[&Rival] = &[&rivals::LOCK, &rivals::PYTHON_REDIS_LOCK, &rivals::REDISSON_FAIR, &rivals::SET_LUA];
    let (here, missing) = prepare(&mut server, ways)?;
    for (rival, scripts) in &here {
        let outcome = contend(&mut server, rival, scripts, contention)?;
        let spread = outcome.spread() * 100.0;
        let shown = if outcome.fewest == 0 { "somebody got none".to_owned() } else { format!("+{} %", digits(spread)) };
        section.row([rival.name.to_owned(), shown, outcome.fewest.to_string(), outcome.most.to_string()]);
    }
    section.missing(&missing);
    Ok(section)
}

fn run(plan: &Plan, contention: Contention, title: &str, file: &'static str) -> io::Result<Section> {
    let mut server = Server::start(&plan.builder)?;
    let (here, missing) = prepare(&mut server, rivals::LOCKS)?;
    let all = alternate(&mut server, &here, contention, plan.scale.pick(2, 1))?;

    let mut section = Section::new(title, METHOD, COLUMNS);
    let ours = all.iter().find(|way| way.rival.name == rivals::LOCK.name);
    let mut bars = Vec::new();
    for way in &all {
        let rate = way.figure(Outcome::per_second);
        let ours_to_it = |value: fn(&Outcome) -> f64| {
            ours.map_or(String::new(), |ours| Figure::of_ratios(&ours.each(value), &way.each(value)).show())
        };
        let wait =
            |quantile| digits(way.figure(|outcome| outcome.waits.value_at_quantile(quantile) as f64 / 1e6).median);
        let grants = way.figure(|outcome| outcome.grants as f64 / outcome.seconds);
        let fewest = way.outcomes.iter().map(|outcome| outcome.fewest).min().unwrap_or(0);
        let most = way.outcomes.iter().map(|outcome| outcome.most).max().unwrap_or(0);
        section.row([
            way.rival.name.to_owned(),
            ours_to_it(Outcome::per_second),
            ours_to_it(Outcome::cpu_us_per_handoff),
            digits(rate.median),
            digits(grants.median),
            digits(way.figure(Outcome::commands_per_handoff).median),
            digits(way.figure(Outcome::cpu_us_per_handoff).median),
            digits(way.figure(Outcome::cpu_us_per_grant).median),
            wait(0.5),
            wait(0.99),
            wait(0.999),
            format!("{fewest} to {most}"),
        ]);
        let overlaps: u64 = way.outcomes.iter().map(|outcome| outcome.overlaps).sum();
        if overlaps > 0 {
            section.notes.push(format!("{}: two clients held it at once, {overlaps} times.", way.rival.name));
        }
        bars.push(Bar { label: way.rival.name, value: rate.median, low: rate.low, high: rate.high });
    }
    section.missing(&missing);
    section.plot = Some(Plot::Bars { file, title: "Hand-offs per second, 48 clients", unit: "per second", bars });
    Ok(section)
}

fn alternate(server: &mut Server, ways: &[Ready], contention: Contention, rounds: usize) -> io::Result<Vec<Rounds>> {
    let mut all: Vec<Rounds> = ways.iter().map(|(rival, _)| Rounds { rival, outcomes: Vec::new() }).collect();
    for _ in 0..rounds {
        for ((rival, scripts), way) in ways.iter().zip(&mut all) {
            way.outcomes.push(contend(server, rival, scripts, contention)?);
        }
    }
    Ok(all)
}
