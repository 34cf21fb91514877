//! Generates the page and README's rows from the data alone. scripts/pictures draws its charts.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::peers::languages::Language;
use crate::settings::{OF_LANGUAGES, SETTINGS};
use crate::stats::{digits, percentile};
use crate::task::Outcome;

/// `report DATA DIRECTORY`: writes `DIRECTORY/peers.md` and prints README's rows.
pub fn main(words: &[String]) -> Outcome<()> {
    let [data, docs] = words else { return Err("report DATA DIRECTORY".into()) };
    let data = Data(serde_json::from_str(&fs::read_to_string(data)?)?);
    let docs = Path::new(docs);
    fs::write(docs.join("peers.md"), data.page()?)?;
    print!("{}", data.readme()?);
    Ok(())
}

struct Data(Value);

/// The costs of redis-lock, in microseconds of server CPU and in bytes.
struct Costs {
    pair: f64,
    hand_off: f64,
    lock: f64,
    waiter: f64,
}

/// Of the rounds.
#[derive(Clone, Copy)]
struct Figure {
    least: f64,
    median: f64,
    most: f64,
}

/// A column: its title, the figure, the factor.
type Column<'a> = (&'a str, &'a str, f64);

/// The figures from which the capacity is computed.
const CAPACITY: &str = "redis-lock, AOF everysec";
const CLUSTERS: &[&str] = &["redis-lock, cluster of 1", "redis-lock, cluster of 3", "redis-lock, cluster of 6"];

const TABLES: &[(&str, &[Column])] = &[
    (
        "pair",
        &[
            ("pairs per second", "pair.per_second", 1.0),
            ("p50, ms", "pair.p50_ms", 1.0),
            ("p99, ms", "pair.p99_ms", 1.0),
            ("server CPU, µs", "pair.server_us", 1.0),
            ("client CPU, µs", "pair.client_us", 1.0),
            ("commands", "pair.commands", 1.0),
            ("bytes on the wire", "pair.bytes", 1.0),
        ],
    ),
    (
        "contended",
        &[
            ("hand-offs per second", "contended.per_second", 1.0),
            ("wait p50, ms", "contended.wait_p50_ms", 1.0),
            ("p99, ms", "contended.wait_p99_ms", 1.0),
            ("longest, ms", "contended.wait_max_ms", 1.0),
            ("overtaken, %", "contended.overtaken_percent", 1.0),
            ("server CPU, µs", "contended.server_us", 1.0),
            ("client CPU, µs", "contended.client_us", 1.0),
            ("commands", "contended.commands", 1.0),
            ("bytes on the wire", "contended.bytes", 1.0),
        ],
    ),
    (
        "spread",
        &[
            ("pairs per second", "spread.per_second", 1.0),
            ("p50, ms", "spread.p50_ms", 1.0),
            ("p99, ms", "spread.p99_ms", 1.0),
            ("server CPU, µs", "spread.server_us", 1.0),
            ("client CPU, µs", "spread.client_us", 1.0),
        ],
    ),
    (
        "waiters",
        &[
            ("waiters", "waiters.count", 1.0),
            ("hand-offs per second", "waiters.per_second", 1.0),
            ("longest wait, s", "waiters.wait_max_ms", 0.001),
            ("server CPU, µs per hand-off", "waiters.server_us", 1.0),
            ("memory, KB per waiter", "waiters.memory_bytes", 0.001),
        ],
    ),
    (
        "dead",
        &[
            ("granted after a kill, of 8", "dead.killed_had", 1.0),
            ("killed: next grant, s", "dead.killed_s", 1.0),
            ("granted, machine gone, of 8", "dead.gone_had", 1.0),
            ("gone: next grant, s", "dead.gone_s", 1.0),
        ],
    ),
    (
        "hold",
        &[
            ("locks", "hold.locks", 1.0),
            ("memory, bytes per lock", "hold.memory_bytes", 1.0),
            ("disk, bytes written per lock", "hold.disk_bytes", 1.0),
        ],
    ),
    (
        "kill",
        &[
            ("locks requested", "kill.probed", 1.0),
            ("granted to another owner", "kill.lost", 1.0),
            ("loss reported", "kill.told", 1.0),
            ("no reply", "kill.unknown", 1.0),
            ("overlaps", "kill.overlaps", 1.0),
            ("wrong fencing tokens", "kill.fences_wrong", 1.0),
            ("gap, s", "kill.gap_s", 1.0),
        ],
    ),
];

const CLUSTER: &[Column] = &[
    ("pairs per second", "pair.per_second", 1.0),
    ("server CPU, µs per pair", "pair.server_us", 1.0),
    ("hand-offs per second", "contended.per_second", 1.0),
    ("server CPU, µs per hand-off", "contended.server_us", 1.0),
];

/// What remains of a language's locks, and of a killed holder.
const AFTERWARDS: &[Column] = &[
    ("keys left of 20 locks", "left.keys", 1.0),
    ("granted after a kill, of 8", "dead.killed_had", 1.0),
    ("killed: next grant, s", "dead.killed_s", 1.0),
];

fn columns(name: &str) -> &'static [Column<'static>] {
    TABLES.iter().find(|(table, _)| *table == name).map_or(&[], |(_, columns)| columns)
}

fn survives() -> Outcome<String> {
    let mut table = String::from(
        "| | a crash of the server's process | of its machine | the loss of one node |\n| --- | --- | --- | --- |",
    );
    for setting in SETTINGS.iter().filter(|setting| setting.parts.contains(&"pair")) {
        write!(table, "\n| {} | {} |", setting.name, setting.survives.join(" | "))?;
    }
    Ok(table)
}

impl Data {
    fn figure(&self, peer: &str, name: &str) -> Option<Figure> {
        let languages = self.0["languages"].as_object().into_iter().flat_map(|languages| languages.values());
        let mut peers = languages.chain([&self.0["figures"]]);
        let rounds = peers.find_map(|peers| peers[peer][name].as_array())?;
        let mut values: Vec<f64> = rounds.iter().filter_map(Value::as_f64).collect();
        if values.is_empty() {
            return None;
        }
        let median = percentile(&mut values, 0.5);
        Some(Figure { least: values[0], median, most: values[values.len() - 1] })
    }

    fn median(&self, peer: &str, name: &str) -> f64 {
        self.figure(peer, name).map_or(f64::NAN, |figure| figure.median)
    }

    fn text(&self, path: &[&str]) -> String {
        let value = path.iter().fold(&self.0, |value, name| &value[*name]);
        value.as_str().map_or_else(|| value.to_string(), String::from)
    }

    fn cell(&self, peer: &str, name: &str, unit: f64) -> String {
        let Some(Figure { least, median, most }) = self.figure(peer, name) else { return "–".into() };
        let [least, median, most] = [least, median, most].map(|value| digits(value * unit));
        if least == most {
            median
        } else {
            format!("{median} ({least} to {most})")
        }
    }

    /// One row for each peer that has one of these figures.
    fn table(&self, peers: &[&str], columns: &[Column]) -> Outcome<String> {
        let mut table = String::from("| |");
        columns.iter().try_for_each(|(title, ..)| write!(table, " {title} |"))?;
        table += "\n| --- |";
        table += &" --- |".repeat(columns.len());
        let is_there = |peer: &str| columns.iter().any(|(_, name, _)| self.figure(peer, name).is_some());
        for peer in peers.iter().filter(|peer| is_there(peer)) {
            write!(table, "\n| {peer} |")?;
            columns.iter().try_for_each(|(_, name, unit)| write!(table, " {} |", self.cell(peer, name, *unit)))?;
        }
        Ok(table)
    }

    /// `page.md` with its figures and tables.
    fn page(&self) -> Outcome<String> {
        let mut page = include_str!("page.md").to_string();
        let mut put = |name: &str, value: &str| page = page.replace(&format!("{{{name}}}"), value);
        let peers: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        for (name, columns) in TABLES {
            put(&format!("table {name}"), &self.table(&peers, columns)?);
        }
        put("table cluster", &self.table(CLUSTERS, CLUSTER)?);
        put("languages", &self.languages()?);
        put("table ahead", &self.ahead()?);
        put("table survives", &survives()?);
        put("table capacity", &self.capacity()?);
        let costs = self.costs();
        for (name, value) in [
            ("pair", costs.pair),
            ("hand-off", costs.hand_off),
            ("lock", costs.lock),
            ("waiter", costs.waiter / 1e3),
            ("pairs", 1e6 / costs.pair),
            ("hand-offs", 1e6 / costs.hand_off),
            ("waiters", costs.waiter * 1e4 / 1e6),
            ("sync", self.0["machine"]["fdatasync_ms"].as_f64().unwrap_or(0.0)),
        ] {
            put(name, &digits(value));
        }
        put("capacity peer", CAPACITY);
        put("loads", &self.list("load_average_after_rounds").join(", "));
        for (name, path) in [
            ("rounds", &["rounds"][..]),
            ("minutes", &["minutes"]),
            ("limit", &["patience_s"]),
            ("window", &["window_s"]),
            ("before", &["load_average_before"]),
            ("cores", &["machine", "cores"]),
            ("model", &["machine", "model"]),
            ("kernel", &["machine", "kernel"]),
            ("disk", &["machine", "file_system"]),
        ] {
            put(name, &self.text(path));
        }
        for name in self.0["versions"].as_object().into_iter().flat_map(|versions| versions.keys()) {
            put(name, self.text(&["versions", name]).split(" sha").next().unwrap_or(""));
        }
        let once = self.list("parts_of_the_first_round");
        let once = match once.len() {
            0 => String::new(),
            _ => format!("Measured in the first round only: {}.\n", once.join(", ")),
        };
        let failures = self.list("failures");
        let lines: String = failures.iter().map(|failure| format!("- {}\n", failure.trim())).collect();
        let about = if lines.is_empty() { lines } else { format!("Not measured in one of the rounds:\n\n{lines}\n") };
        Ok(page.replace("{failures}\n", &about).replace("{once}\n", &once))
    }

    /// A section for each language: the tables for a free lock and for a contended one, and what remains afterwards.
    fn languages(&self) -> Outcome<String> {
        let mut sections = Vec::new();
        let skipped = self.list("skipped");
        for language in Language::ALL {
            let of_it = OF_LANGUAGES.iter().filter(|setting| setting.language == Some(language));
            let peers: Vec<&str> = of_it.map(|setting| setting.name).collect();
            let name = language.name();
            if !self.0["languages"][name].is_object() {
                let is_skipped = skipped.iter().any(|skipped| skipped == name);
                let why = if is_skipped { ": the machine has no tools for it" } else { "" };
                sections.push(format!("### {name}\n\nNot measured in this run{why}."));
                continue;
            }
            let [pair, contended] = [columns("pair"), columns("contended")].map(|columns| self.table(&peers, columns));
            sections.push(format!(
                "### {name}\n\n![Hand-offs per second, {name}](peers/contended-{}.svg)\n\nA free lock:\n\n{}\n\n\
                 48 owners, one lock:\n\n{}\n\nAfterwards:\n\n{}",
                name.to_lowercase(),
                pair?,
                contended?,
                self.table(&peers, AFTERWARDS)?
            ));
        }
        Ok(sections.join("\n\n"))
    }

    /// One row for each peer without consensus, compared with the redis-lock row of the same durability.
    fn ahead(&self) -> Outcome<String> {
        let mut table = String::from(
            "| | compared with | pairs per second, ratio | hand-offs, ratio | µs of a hand-off | server CPU \
             | client CPU |\n\
             | --- | --- | --- | --- | --- | --- | --- |",
        );
        for setting in SETTINGS.iter().chain(OF_LANGUAGES) {
            let (Some(ours), theirs) = (setting.compared_with, setting.name) else { continue };
            let both = |name: &str| Some((self.figure(ours, name)?.median, self.figure(theirs, name)?.median));
            if both("pair.per_second").is_none() {
                continue;
            }
            let ratio = |name| both(name).map_or("–".into(), |(ours, theirs)| digits(ours / theirs));
            let side_by_side = |name, of: fn(f64) -> f64| {
                both(name)
                    .map_or("–".into(), |(ours, theirs)| format!("{} · {}", digits(of(ours)), digits(of(theirs))))
            };
            let cells = [
                theirs.into(),
                ours.into(),
                ratio("pair.per_second"),
                ratio("contended.per_second"),
                side_by_side("contended.per_second", |rate| 1e6 / rate),
                side_by_side("contended.server_us", |us| us),
                side_by_side("contended.client_us", |us| us),
            ];
            write!(table, "\n| {} |", cells.join(" | "))?;
        }
        Ok(table)
    }

    fn list(&self, name: &str) -> Vec<String> {
        let values = self.0[name].as_array().into_iter().flatten();
        values.map(|value| value.as_str().map_or_else(|| value.to_string(), String::from)).collect()
    }

    fn costs(&self) -> Costs {
        Costs {
            pair: self.median(CAPACITY, "spread.server_us"),
            hand_off: self.median(CAPACITY, "contended.server_us"),
            lock: self.median(CAPACITY, "hold.memory_bytes"),
            waiter: self.median(CAPACITY, "waiters.memory_bytes"),
        }
    }

    /// The capacity that follows from the measured costs.
    fn capacity(&self) -> Outcome<String> {
        let Costs { pair, lock, .. } = self.costs();
        const NODE_BYTES: f64 = 8e9;
        let mut table = String::from(
            "| locks held at once | memory, MB | renewals per second, leases of 30 s | cores | primaries | first to \
             run out | leases of 10 min: cores | primaries |\n| --- | --- | --- | --- | --- | --- | --- | --- |",
        );
        for count in [1e4, 1e6, 1e8] {
            let memory = count * lock;
            let cores = |interval: f64| count / interval * pair / 2.0 / 1e6;
            let primaries = |cores: f64| (cores / 0.5).ceil().max((memory / NODE_BYTES).ceil()).max(1.0);
            let first = if cores(10.0) / 0.5 > memory / NODE_BYTES { "CPU for renewals" } else { "memory" };
            let cells = [
                digits(count),
                digits(memory / 1e6),
                digits(count / 10.0),
                digits(cores(10.0)),
                format!("{:.0}", primaries(cores(10.0))),
                first.into(),
                digits(cores(200.0)),
                format!("{:.0}", primaries(cores(200.0))),
            ];
            write!(table, "\n| {} |", cells.join(" | "))?;
        }
        Ok(table)
    }

    /// Five rows: comparisons with the closest service of the same durability, one with consensus, and the usual in
    /// Java.
    fn readme(&self) -> Outcome<String> {
        let peers = [
            "redis-lock, no persistence",
            "Postgres, advisory lock",
            "etcd, three nodes",
            "redis-lock for Java, Lettuce",
            "Redisson RLock",
        ];
        let columns = [
            ("free lock: pairs per second", "pair.per_second", 1.0),
            ("48 owners: hand-offs per second", "contended.per_second", 1.0),
            ("longest wait, ms", "contended.wait_max_ms", 1.0),
            ("server CPU per hand-off, µs", "contended.server_us", 1.0),
        ];
        let mut table = String::from("| | called from |");
        columns.iter().try_for_each(|(title, ..)| write!(table, " {title} |"))?;
        table += " a grant survives a crash of the server, of its machine, the loss of one node |\n| --- |";
        table += &" --- |".repeat(columns.len() + 2);
        let find = |peer: &&str| SETTINGS.iter().chain(OF_LANGUAGES).find(|setting| setting.name == *peer);
        for setting in peers.iter().filter_map(find) {
            write!(table, "\n| {} | {} |", setting.name, setting.language.map_or("Rust", Language::name))?;
            let median = |name| self.figure(setting.name, name).map_or("–".into(), |figure| digits(figure.median));
            columns.iter().try_for_each(|(_, name, _)| write!(table, " {} |", median(name)))?;
            write!(table, " {} |", setting.survives.join(" · "))?;
        }
        Ok(table + "\n")
    }
}
