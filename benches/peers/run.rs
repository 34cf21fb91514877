//! The measurements: one function for each part, the same for all peers. Each round measures all peers one after the
//! other, so that other load on the machine affects all of them. The figures of all rounds go into one JSON file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use faults::network::Network;
use serde_json::{json, Map, Value};
use tempfile::TempDir;

use crate::judged::{self, Event};
use crate::peers::languages::{self, Language};
use crate::peers::{redis_lock, zookeeper};
use crate::servers::{run, Cost, Location, Memory, Processes, Servers};
use crate::settings::{After, Setting, OF_LANGUAGES, SETTINGS};
use crate::stats::percentile;
use crate::task::{now, Outcome, Task, Work};

/// Hosts of each peer's network.
const SERVERS: usize = 0;
const CLIENTS: usize = 1;
const VICTIMS: usize = 2;

/// A contender overtook another if it requested the lock this much later and was granted it first.
const MARGIN: Duration = Duration::from_millis(5);
const CONTENDERS: u64 = 48;
const PRIMARIES: [u16; 3] = [1, 3, 6];
/// Clients of one process whose owners are threads.
const CLIENTS_OF_A_PROCESS: u64 = 4;

const LONGEST_WARM_UP_S: u32 = 15;

/// How many peers are measured in parallel after a holder died: each of them may be a JVM.
const SIDE_BY_SIDE: usize = 8;
/// What a short run measures in its first round only.
const SLOW_PARTS: &[&str] = &["hold", "waiters", "kill", "left", "dead", "scale"];

struct Plan {
    rounds: usize,
    /// Of the rounds, the one that is measured.
    round: usize,
    is_short: bool,
    only: Vec<String>,
    parts: Vec<String>,
    data: PathBuf,
    window: Duration,
    waiters: u64,
    locks: u64,
    /// The warm-up time of a JVM's compiler.
    warm_up: Duration,
    /// How long to wait for the next grant after a machine was lost.
    limit: Duration,
}

/// Of one round of one part.
type Figures = Vec<(&'static str, f64)>;

/// Peer, figure (`part.name`), a value for each round.
type Rounds = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

#[derive(Default)]
struct Data {
    figures: Rounds,
    /// The same, for the locks of each language.
    languages: BTreeMap<&'static str, Rounds>,
    skipped: Vec<&'static str>,
    failures: Vec<String>,
}

fn all_settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(OF_LANGUAGES)
}

pub fn main(words: &[String]) -> Outcome<()> {
    let find = |name: &str| words.iter().position(|word| word == name).and_then(|index| words.get(index + 1)).cloned();
    let list = |name: &str| find(name).map(|it| it.split(',').map(String::from).collect()).unwrap_or_default();
    let is_quick = words.iter().any(|word| word == "--quick");
    let is_short = std::env::var("PEERS_SHORT").is_ok_and(|value| !value.is_empty());
    let mut plan = Plan {
        rounds: find("--rounds").map_or(Ok(if is_quick { 1 } else { 3 }), |it| it.parse())?,
        round: 1,
        is_short,
        only: list("--only"),
        parts: list("--parts"),
        data: find("--data").unwrap_or_else(|| "peers.json".into()).into(),
        window: Duration::from_millis(if is_quick || is_short { 1000 } else { 2000 }),
        warm_up: Duration::from_millis(if is_quick || is_short { 2000 } else { 3000 }),
        waiters: if is_quick {
            500
        } else if is_short {
            1_000
        } else {
            u64::MAX
        },
        locks: if is_quick { 1000 } else { 10_000 },
        limit: Duration::from_secs(if is_quick || is_short { 20 } else { 40 }),
    };
    support::raise_file_limit()?;
    let dir = open_dir()?;
    let began = Instant::now();
    let before = load_average();
    let mut data = Data::default();
    let mut loads = Vec::new();
    for language in Language::ALL.into_iter().filter(|language| language.load().is_none()) {
        eprintln!("peers: skipped: the locks of {}, whose load was not built", language.name());
        data.skipped.push(language.name());
    }
    for round in 1..=plan.rounds {
        plan.round = round;
        for setting in all_settings().filter(|setting| plan.wants(setting)) {
            eprintln!("round {round} of {}, {:.0} s: {}", plan.rounds, began.elapsed().as_secs_f64(), setting.name);
            measure(setting, &plan, dir.path(), &mut data);
        }
        dead_holders(&plan, dir.path(), &mut data);
        scale(&plan, dir.path(), &mut data);
        loads.push(load_average());
        // After each, so that an interrupted run keeps its figures.
        let written = json!({
            "machine": machine(dir.path()),
            "versions": versions(),
            "rounds": round,
            "window_s": plan.window.as_secs_f64(),
            "parts_of_the_first_round": if is_short { SLOW_PARTS } else { &[] },
            "skipped": data.skipped,
            "patience_s": plan.limit.as_secs_f64(),
            "minutes": (began.elapsed().as_secs_f64() / 6.0).round() / 10.0,
            "load_average_before": before,
            "load_average_after_rounds": loads,
            "figures": data.figures,
            "languages": data.languages,
            "failures": data.failures,
        });
        fs::write(&plan.data, serde_json::to_string_pretty(&written)? + "\n")?;
    }
    data.failures.iter().for_each(|failure| eprintln!("failed: {failure}"));
    Ok(())
}

impl Plan {
    fn wants(&self, setting: &Setting) -> bool {
        let is_built = setting.language.is_none_or(|language| language.load().is_some());
        is_built && (self.only.is_empty() || self.only.iter().any(|word| setting.name.contains(word.as_str())))
    }

    fn has(&self, setting: &Setting, part: &str) -> bool {
        setting.parts.contains(&part) && self.has_part(part)
    }

    fn has_part(&self, part: &str) -> bool {
        let is_of_this_round = !self.is_short || self.round == 1 || !SLOW_PARTS.contains(&part);
        is_of_this_round && (self.parts.is_empty() || self.parts.iter().any(|word| word == part))
    }
}

impl Data {
    fn add(&mut self, language: Option<Language>, peer: &str, part: &str, figures: Outcome<Figures>) {
        eprintln!("  {part}");
        match figures {
            Ok(figures) => {
                for (name, value) in figures {
                    let peers = match language {
                        Some(language) => self.languages.entry(language.name()).or_default(),
                        None => &mut self.figures,
                    };
                    let rounds = peers.entry(peer.into()).or_default();
                    rounds.entry(format!("{part}.{name}")).or_default().push(value);
                }
            }
            Err(error) => {
                eprintln!("  {part}: {error}");
                self.failures.push(format!("{peer}, {part}: {error}"));
            }
        }
    }
}

/// A peer with its servers in a separate network.
struct Bench<'a> {
    setting: &'a Setting,
    plan: &'a Plan,
    network: Network,
    servers: Servers,
    dir: TempDir,
    /// What the run keeps for all.
    shared: &'a Path,
    /// If it is another than the setting's.
    kind: &'a str,
}

impl<'a> Bench<'a> {
    fn start(setting: &'a Setting, plan: &'a Plan, shared: &'a Path) -> Outcome<Bench<'a>> {
        Bench::started(setting, plan, shared, setting.kind, setting.start)
    }

    fn started(
        setting: &'a Setting,
        plan: &'a Plan,
        shared: &'a Path,
        kind: &'a str,
        start: impl FnOnce(&Location) -> io::Result<Servers>,
    ) -> Outcome<Bench<'a>> {
        let network = Network::of(3)?;
        let dir = open_dir()?;
        let servers = start(&Location { host: network.host(SERVERS), dir: dir.path() })?;
        let bench = Bench { setting, plan, network, servers, dir, shared, kind };
        bench.servers.nodes.iter().try_for_each(|node| bench.location().wait_for(&node.endpoint))?;
        Ok(bench)
    }

    fn location(&self) -> Location<'_> {
        Location { host: self.network.host(SERVERS), dir: self.dir.path() }
    }

    fn load(&self, task: Task) -> Outcome<Load> {
        self.load_on(CLIENTS, self.kind, task)
    }

    fn load_on(&self, host: usize, kind: &str, task: Task) -> Outcome<Load> {
        let mut command = match (self.setting.language, kind) {
            (Some(language), _) => language.command(kind)?,
            (None, "curator") => {
                let mut command = Command::new("java");
                command.args(zookeeper::client(self.shared)?);
                command
            }
            _ => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["load", kind]);
                command
            }
        };
        command.args(task.words()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        support::die_with_parent(&mut command);
        let child = self.network.host(host).run(|| command.spawn())?;
        Load::of(child)
    }

    fn task(&self, work: Work, owners: u64, first: u64, locks: u64) -> Task {
        Task {
            work,
            endpoints: self.servers.endpoints(None),
            owners,
            links: if self.setting.language.is_some() { owners.min(CLIENTS_OF_A_PROCESS) } else { owners },
            first,
            locks,
            lease: Duration::from_secs(30),
            pace: Duration::ZERO,
        }
    }

    fn memory(&self) -> io::Result<f64> {
        self.servers.memory(&self.location())
    }

    fn is_java(&self) -> bool {
        self.setting.language == Some(Language::Java) || self.setting.kind == "curator"
    }

    /// How many commands Redis has run, including those that scripts called. `None` if the peer is not Redis.
    fn commands(&self) -> Option<f64> {
        let table = self.ask_redis(&["INFO", "commandstats"])?;
        let calls = table.lines().filter(|line| line.starts_with("cmdstat_") && !line.starts_with("cmdstat_info"));
        Some(calls.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<f64>().ok()).sum())
    }

    fn ask_redis(&self, words: &[&str]) -> Option<String> {
        let node = self.servers.nodes.first().filter(|node| matches!(node.memory, Memory::Redis))?;
        let (host, port) = node.endpoint.split_once(':')?;
        self.location().run("redis-cli", &[&["-h", host, "-p", port], words].concat()).ok()
    }

    fn keys(&self) -> Outcome<f64> {
        Ok(self.ask_redis(&["DBSIZE"]).ok_or("no Redis")?.trim().parse()?)
    }

    /// A JVM compiles code after it has run for a while: it is warm when two consecutive seconds were no faster than an
    /// earlier one. On two shared cores, Lettuce had 60 hand-offs in its first second and 3,600 in its twelfth.
    fn warm_up(&self) {
        if !self.is_java() {
            return thread::sleep(Duration::from_millis(700));
        }
        thread::sleep(self.plan.warm_up);
        let (mut fastest, mut slower) = (0.0, 0);
        let Some(mut before) = self.commands() else { return };
        for _ in 0..LONGEST_WARM_UP_S {
            thread::sleep(Duration::from_secs(1));
            let Some(now) = self.commands() else { return };
            let rate = now - before;
            slower = if rate < 1.05 * fastest { slower + 1 } else { 0 };
            if slower == 2 {
                return;
            }
            fastest = rate.max(fastest);
            before = now;
        }
    }

    /// What a load does in the window of the plan, after it has warmed up.
    fn window(&self, load: &mut Load) -> Outcome<Window> {
        self.warm_up();
        // Counted over more than the window, because the query itself takes server time.
        let (counted, commands) = (Instant::now(), self.commands());
        let reading = |load: &Load| (now(), self.servers.cost(), load.cost(), load.bytes());
        let before = reading(load);
        thread::sleep(self.plan.window);
        let after = reading(load);
        let commands = commands.zip(self.commands());
        let commands = commands.map(|(before, after)| (after - before) / counted.elapsed().as_secs_f64());
        load.stop()?;
        let mut cycles = Vec::new();
        for event in load.events() {
            match event {
                Event::Cycle { lock, owner, asked, granted, released, .. }
                    if (before.0..after.0).contains(&released) =>
                {
                    cycles.push(Cycle { lock, owner, asked, granted, released });
                }
                Event::Failed { text } => return Err(text.into()),
                _ => {}
            }
        }
        Ok(Window {
            seconds: (after.0 - before.0) as f64 / 1e9,
            cycles,
            servers: after.1.since(before.1),
            clients: after.2.since(before.2),
            bytes: after.3 - before.3,
            commands_per_second: commands,
        })
    }
}

struct Cycle {
    lock: u64,
    owner: String,
    asked: u64,
    granted: u64,
    released: u64,
}

struct Window {
    seconds: f64,
    cycles: Vec<Cycle>,
    servers: Cost,
    clients: Cost,
    bytes: f64,
    commands_per_second: Option<f64>,
}

impl Window {
    /// The cost of each of this many.
    fn costs(&self, count: usize) -> Figures {
        let each = count.max(1) as f64;
        let commands = self.commands_per_second.map(|commands| ("commands", commands * self.seconds / each));
        let costs = [
            ("per_second", count as f64 / self.seconds),
            ("server_us", self.servers.cpu * 1e6 / each),
            ("client_us", self.clients.cpu * 1e6 / each),
            ("bytes", self.bytes / each),
        ];
        costs.into_iter().chain(commands).collect()
    }

    fn pairs(&self) -> Figures {
        let mut times: Vec<f64> = self.cycles.iter().map(|cycle| (cycle.released - cycle.asked) as f64 / 1e6).collect();
        let mut figures = self.costs(times.len());
        figures.extend([("p50_ms", percentile(&mut times, 0.5)), ("p99_ms", percentile(&mut times, 0.99))]);
        figures
    }

    /// A lock that an owner re-acquires before any other is neither a hand-off nor a wait.
    fn hand_offs(mut self) -> Figures {
        self.cycles.sort_by_key(|cycle| (cycle.lock, cycle.granted));
        let mut waits = Vec::new();
        let mut overtaken = 0;
        for cycles in self.cycles.chunk_by(|one, next| one.lock == next.lock) {
            let came_from_another = cycles.windows(2).filter(|cycles| cycles[0].owner != cycles[1].owner);
            waits.extend(came_from_another.map(|cycles| (cycles[1].granted - cycles[1].asked) as f64 / 1e6));
            let asked: Vec<u64> = cycles.iter().map(|cycle| cycle.asked).collect();
            overtaken += judged::overtaken(&asked, MARGIN);
        }
        let overtaken = 100.0 * overtaken as f64 / self.cycles.len().max(1) as f64;
        let mut figures = self.costs(waits.len());
        figures.extend([
            ("wait_p50_ms", percentile(&mut waits, 0.5)),
            ("wait_p99_ms", percentile(&mut waits, 0.99)),
            ("wait_max_ms", percentile(&mut waits, 1.0)),
            ("overtaken_percent", overtaken),
        ]);
        figures
    }
}

fn measure(setting: &Setting, plan: &Plan, shared: &Path, data: &mut Data) {
    type Part = fn(&Bench) -> Outcome<Figures>;
    let parts: [(&str, Part); 5] =
        [("pair", pair), ("contended", contended), ("spread", spread), ("left", left), ("hold", hold)];
    let wanted: Vec<_> = parts.into_iter().filter(|(part, _)| plan.has(setting, part)).collect();
    if !wanted.is_empty() {
        match Bench::start(setting, plan, shared) {
            Ok(bench) => wanted
                .into_iter()
                .for_each(|(part, measure)| data.add(setting.language, setting.name, part, measure(&bench))),
            Err(error) => data.add(setting.language, setting.name, "start", Err(error)),
        }
    }
    // On fresh servers, because leftovers of other parts would expire meanwhile, and the state after a kill is checked.
    if plan.has(setting, "waiters") {
        let figures = Bench::start(setting, plan, shared).and_then(|bench| waiters(&bench));
        data.add(setting.language, setting.name, "waiters", figures);
    }
    if plan.has(setting, "kill") {
        data.add(setting.language, setting.name, "kill", Bench::start(setting, plan, shared).and_then(kill));
    }
}

/// One owner acquires and releases a free lock.
fn pair(bench: &Bench) -> Outcome<Figures> {
    let mut load = bench.load(bench.task(Work::Cycle, 1, 0, 1))?;
    load.go()?;
    Ok(bench.window(&mut load)?.pairs())
}

/// Forty-eight owners contend for one lock.
fn contended(bench: &Bench) -> Outcome<Figures> {
    let mut load = bench.load(bench.task(Work::Cycle, CONTENDERS, 1, 1))?;
    load.go()?;
    Ok(bench.window(&mut load)?.hand_offs())
}

/// A hundred owners acquire any of a thousand locks.
fn spread(bench: &Bench) -> Outcome<Figures> {
    let mut load = bench.load(bench.task(Work::Cycle, 100, 1_000, 1_000))?;
    load.go()?;
    Ok(bench.window(&mut load)?.pairs())
}

/// Two owners acquire and release the same twenty locks, so that one of them waits; one owner if the peer has no
/// contended part. Returns how many of their keys remain a second later.
fn left(bench: &Bench) -> Outcome<Figures> {
    let locks = 20;
    let owners = if bench.setting.parts.contains(&"contended") { 2 } else { 1 };
    let mut load = bench.load(bench.task(Work::Sweep, owners, 5_000, locks))?;
    load.ready()?;
    let before = bench.keys()?;
    load.go()?;
    if !load.wait(Duration::from_secs(60), |lines| lines.took as u64 >= owners) {
        return Err("the locks were not taken".into());
    }
    // Keys that expire soon do not count.
    thread::sleep(Duration::from_secs(1));
    let keys = bench.keys()? - before;
    load.stop()?;
    match load.events().into_iter().find_map(|event| match event {
        Event::Failed { text } => Some(text),
        _ => None,
    }) {
        Some(text) => Err(text.into()),
        None => Ok(vec![("locks", locks as f64), ("keys", keys)]),
    }
}

/// Locks that are held, by fifty clients: what each costs the servers.
fn hold(bench: &Bench) -> Outcome<Figures> {
    let clients = 50;
    let lease = Duration::from_secs(60);
    let task = Task { lease, ..bench.task(Work::Hold, clients, 10_000, bench.plan.locks) };
    let mut load = bench.load(task)?;
    load.ready()?;
    // Redis frees the query buffers of idle connections with a delay.
    let idle = Duration::from_secs(3);
    thread::sleep(idle);
    let (memory, cost) = (bench.memory()?, bench.servers.cost());
    load.go()?;
    load.wait(Duration::from_secs(15), |lines| lines.took as u64 >= clients);
    thread::sleep(idle);
    let locks = load.held().len().max(1) as f64;
    let grown = bench.memory()? - memory;
    let written = bench.servers.cost().since(cost).written;
    load.stop()?;
    Ok(vec![("locks", locks), ("memory_bytes", grown / locks), ("disk_bytes", written / locks)])
}

/// Thousands wait for one lock: what each costs the servers, and the rate of hand-offs.
fn waiters(bench: &Bench) -> Outcome<Figures> {
    let count = bench.setting.waiters.min(bench.plan.waiters);
    let links = bench.setting.waiters_share.min(count);
    let before = bench.memory()?;
    let began = Instant::now();
    let task = bench.task(Work::Queue, count, 2, 1);
    let mut load = bench.load(Task { links, lease: Duration::from_secs(120), ..task })?;
    load.ready()?;
    // Wait until the servers are nearly idle: then all requests are queued. Polling clients never let them become idle.
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let cpu = bench.servers.cost().cpu;
        thread::sleep(Duration::from_millis(500));
        if bench.servers.cost().cpu - cpu < 0.05 || Instant::now() > limit {
            break;
        }
    }
    let queued = began.elapsed().as_secs_f64();
    let memory = (bench.memory()? - before) / count as f64;
    load.go()?;
    let window = bench.window(&mut load)?;
    let mut figures = window.hand_offs();
    figures.extend([("count", count as f64), ("memory_bytes", memory), ("queued_s", queued)]);
    Ok(figures)
}

/// SIGKILL to the server, or to the leader, under load; then another owner requests the locks that are held.
fn kill(mut bench: Bench) -> Outcome<Figures> {
    let lease = Duration::from_secs(60);
    let mut cycles = bench.load(Task { lease, ..bench.task(Work::Cycle, 4, 80_000, 100) })?;
    let task = bench.task(Work::Hold, 8, 0, 60_000);
    let mut holders = bench.load(Task { lease, pace: Duration::from_millis(2), ..task })?;
    cycles.go()?;
    holders.go()?;
    thread::sleep(Duration::from_secs(3));
    let victim = (bench.setting.leader)(&bench.location(), &bench.servers)?;
    let killed = now();
    bench.servers.nodes[victim].kill();
    let dead = now();
    let location = Location { host: bench.network.host(SERVERS), dir: bench.dir.path() };
    let (kind, endpoints) = match bench.setting.after {
        After::Restart => {
            bench.servers.nodes[victim].start(&location)?;
            (bench.kind, bench.servers.endpoints(None))
        }
        After::Promote => {
            redis_lock::promote(&location)?;
            // The promoted server has no replica to wait for.
            ("redis-lock", bench.servers.endpoints(Some(victim)))
        }
        After::Nothing => (bench.kind, bench.servers.endpoints(Some(victim))),
    };
    let held: Vec<u64> = holders
        .held()
        .into_iter()
        .filter_map(|event| match event {
            Event::Held { lock, granted, .. } if granted < killed => Some(lock),
            _ => None,
        })
        .collect();
    let last = held.iter().max().copied().unwrap_or(0);
    let first = last.saturating_sub(149);
    let probed = held.iter().filter(|lock| **lock >= first).count();
    let task = bench.task(Work::Try, 50, first, last + 1 - first);
    let mut prober = bench.load_on(CLIENTS, kind, Task { endpoints, lease, ..task })?;
    prober.go()?;
    if !prober.wait(Duration::from_secs(30), |lines| lines.took >= 50) {
        return Err(format!("the servers did not serve: {:?}", prober.events().last()).into());
    }
    cycles.stop()?;
    let mut events = cycles.events();
    events.extend(holders.events());
    events.extend(prober.events());
    let had = prober.held().iter().filter(|it| matches!(it, Event::Held { lock, .. } if held.contains(lock))).count();
    let failed = prober.events().iter().filter(|event| matches!(event, Event::Failed { .. })).count();
    let lost = holders.events().iter().filter(|it| matches!(it, Event::Lost { lock, .. } if *lock >= first)).count();
    let verdict = judged::judge(&events, lease, bench.setting.fences);
    let mut figures = vec![
        ("probed", probed as f64),
        ("lost", had as f64),
        ("unknown", failed as f64),
        ("told", lost as f64),
        ("overlaps", verdict.overlaps as f64),
        ("fences_wrong", verdict.fences as f64),
    ];
    let mut ends: Vec<u64> = cycles.events().iter().filter_map(Event::end_of_cycle).collect();
    ends.sort_unstable();
    if let Some(served) = ends.iter().find(|end| **end > dead) {
        figures.push(("gap_s", (served - killed) as f64 / 1e9));
    }
    Ok(figures)
}

/// How long after a holder's end the next owner has the lock. The peers run in parallel, because they only wait.
fn dead_holders(plan: &Plan, shared: &Path, data: &mut Data) {
    let wanted: Vec<&Setting> =
        all_settings().filter(|setting| plan.wants(setting) && plan.has(setting, "dead")).collect();
    // Before the threads, because the first call compiles.
    if wanted.iter().any(|setting| setting.kind == "curator") {
        data.add(None, "ZooKeeper", "start", zookeeper::client(shared).map(|_| Vec::new()).map_err(Into::into));
    }
    let (servers, languages): (Vec<&Setting>, _) = wanted.into_iter().partition(|setting| setting.language.is_none());
    for settings in servers.chunks(servers.len().max(1)).chain(languages.chunks(SIDE_BY_SIDE)) {
        dead_holders_of(settings, plan, shared, data);
    }
}

fn dead_holders_of(settings: &[&Setting], plan: &Plan, shared: &Path, data: &mut Data) {
    thread::scope(|scope| {
        let runs: Vec<_> = settings
            .iter()
            .map(|setting| {
                let measure = move || {
                    let figures = Bench::start(setting, plan, shared).and_then(|bench| dead_holder(&bench));
                    figures.map_err(|error| error.to_string())
                };
                (setting, scope.spawn(measure))
            })
            .collect();
        for (setting, run) in runs {
            let figures = run.join().unwrap_or_else(|_| Err("panicked".into()));
            data.add(setting.language, setting.name, "dead", figures.map_err(Into::into));
        }
    });
}

fn dead_holder(bench: &Bench) -> Outcome<Figures> {
    let mut figures = Vec::new();
    let count = 8;
    let mut ends = vec![(0, false)];
    if bench.setting.language.is_none() {
        ends.push((100, true));
    }
    for (first, is_machine) in ends {
        let task = Task { lease: Duration::from_secs(10), ..bench.task(Work::Hold, count, first, count) };
        let mut victim = bench.load_on(VICTIMS, bench.kind, task.clone())?;
        let mut next = bench.load(task)?;
        victim.go()?;
        if !victim.wait(Duration::from_secs(20), |lines| lines.took as u64 >= count) {
            return Err("the holder was not granted its locks".into());
        }
        next.go()?;
        thread::sleep(Duration::from_secs(2));
        let ended = now();
        match is_machine {
            true => bench.network.split(&[&[SERVERS, CLIENTS]]),
            false => victim.kill(),
        }
        next.wait(bench.plan.limit, |lines| lines.took as u64 >= count);
        let times = next.held().into_iter().filter_map(|event| match event {
            Event::Held { granted, .. } => Some((granted.saturating_sub(ended)) as f64 / 1e9),
            _ => None,
        });
        let mut times: Vec<f64> = times.collect();
        // Skip one that had to wait: its time is not a figure of this round.
        let [had, median, longest] = match is_machine {
            true => ["gone_had", "gone_s", "gone_max_s"],
            false => ["killed_had", "killed_s", "killed_max_s"],
        };
        figures.push((had, times.len() as f64));
        if !times.is_empty() {
            figures.extend([(median, percentile(&mut times, 0.5)), (longest, percentile(&mut times, 1.0))]);
        }
        next.stop()?;
    }
    Ok(figures)
}

/// The same load over one, three and six primaries of a Redis Cluster, as far as the cores allow.
fn scale(plan: &Plan, shared: &Path, data: &mut Data) {
    if !plan.has_part("scale") || !plan.only.is_empty() && !plan.only.iter().any(|word| word == "scale") {
        return;
    }
    for primaries in PRIMARIES {
        let name = format!("redis-lock, cluster of {primaries}");
        eprintln!("  {name}");
        let measured = (|| {
            let start = |location: &Location| redis_lock::cluster(location, primaries);
            let bench = Bench::started(&SETTINGS[0], plan, shared, "redis-lock:cluster", start)?;
            let mut load = bench.load(Task { links: 6, ..bench.task(Work::Cycle, 60, 0, 6_000) })?;
            load.go()?;
            let pairs = bench.window(&mut load)?.pairs();
            let mut load = bench.load(Task { links: 6, ..bench.task(Work::Cycle, CONTENDERS, 10_000, 6) })?;
            load.go()?;
            Outcome::Ok((pairs, bench.window(&mut load)?.hand_offs()))
        })();
        match measured {
            Ok((pairs, hand_offs)) => {
                data.add(None, &name, "pair", Ok(pairs));
                data.add(None, &name, "contended", Ok(hand_offs));
            }
            Err(error) => data.add(None, &name, "scale", Err(error)),
        }
    }
}

/// A running load and its output.
struct Load {
    child: Child,
    input: ChildStdin,
    said: Arc<Mutex<Lines>>,
}

#[derive(Default)]
struct Lines {
    is_ready: bool,
    is_over: bool,
    took: usize,
    events: Vec<Event>,
}

impl Load {
    fn of(mut child: Child) -> Outcome<Load> {
        let (input, output) = (child.stdin.take().ok_or("no input")?, child.stdout.take().ok_or("no output")?);
        let said: Arc<Mutex<Lines>> = Arc::default();
        let (lines, name) = (said.clone(), child.id().to_string());
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut lines = lines.lock().expect("no thread panics with it");
                match line.split(' ').next() {
                    Some("ready") => lines.is_ready = true,
                    Some("took") => lines.took += 1,
                    _ => lines.events.extend(Event::parse(&name, &line)),
                }
            }
            lines.lock().expect("no thread panics with it").is_over = true;
        });
        Ok(Load { child, input, said })
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.said.lock().expect("no thread panics with it")
    }

    fn wait(&self, limit: Duration, is_so: impl Fn(&Lines) -> bool) -> bool {
        let started = Instant::now();
        loop {
            let lines = self.lines();
            if is_so(&lines) {
                return true;
            }
            if lines.is_over || started.elapsed() > limit {
                return false;
            }
            drop(lines);
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn ready(&self) -> Outcome<()> {
        match self.wait(Duration::from_secs(120), |lines| lines.is_ready) {
            true => Ok(()),
            false => Err("the load did not get ready".into()),
        }
    }

    fn go(&mut self) -> Outcome<()> {
        self.ready()?;
        Ok(self.input.write_all(b"go\n")?)
    }

    fn stop(&mut self) -> Outcome<()> {
        self.input.write_all(b"stop\n")?;
        match self.wait(Duration::from_secs(30), |lines| lines.is_over) {
            true => Ok(()),
            false => Err("the load did not stop".into()),
        }
    }

    fn events(&self) -> Vec<Event> {
        self.lines().events.clone()
    }

    fn held(&self) -> Vec<Event> {
        self.lines().events.iter().filter(|event| matches!(event, Event::Held { .. })).cloned().collect()
    }

    fn cost(&self) -> Cost {
        Processes::read().cost(self.child.id())
    }

    /// Bytes on its host's network, in both directions, including headers.
    fn bytes(&self) -> f64 {
        let table = fs::read_to_string(format!("/proc/{}/net/dev", self.child.id())).unwrap_or_default();
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"));
        let fields: Vec<f64> = line.unwrap_or("").split_whitespace().filter_map(|field| field.parse().ok()).collect();
        fields.first().unwrap_or(&0.0) + fields.get(8).unwrap_or(&0.0)
    }

    fn kill(&mut self) {
        // An error means that it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A temporary directory that other users can access, because Postgres runs as another user. `TMPDIR` selects the disk.
fn open_dir() -> io::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("redis-lock-peers-").tempdir()?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    Ok(dir)
}

fn load_average() -> f64 {
    let line = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    line.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn machine(dir: &Path) -> Value {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(0, |count| count.get());
    let kernel = run("uname", &["-sr"]).unwrap_or_default();
    let disk = run("stat", &["-f", "-c", "%T", &dir.display().to_string()]).unwrap_or_default();
    json!({
        "cores": cores,
        "model": model.map_or("", |(_, model)| model),
        "kernel": kernel.trim(),
        "file_system": disk.trim(),
        "fdatasync_ms": fdatasync_ms(dir).unwrap_or(0.0),
    })
}

/// The median time to sync a line, which every grant waits for if each is synced.
fn fdatasync_ms(dir: &Path) -> io::Result<f64> {
    let mut file = fs::File::create(dir.join("sync"))?;
    let mut times = Vec::new();
    for _ in 0..100 {
        file.write_all(&[0; 200])?;
        let began = Instant::now();
        // SAFETY: a bare system call on an open descriptor.
        unsafe { libc::fdatasync(file.as_raw_fd()) };
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(percentile(&mut times, 0.5))
}

fn versions() -> Value {
    let mut versions = Map::new();
    let mut add = |name: &str, program: &str, args: &[&str]| {
        let line = run(program, args).unwrap_or_else(|error| error.to_string());
        versions.insert(name.into(), line.lines().next().unwrap_or("").trim().into());
    };
    let redis = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    add("Redis", &redis, &["--version"]);
    add("etcd", "etcd", &["--version"]);
    for (name, package) in [
        ("ZooKeeper", "zookeeper"),
        ("Curator", "libcurator-recipes-java"),
        ("Java", "openjdk-17-jdk-headless"),
        ("Postgres", "postgresql-15"),
    ] {
        add(name, "dpkg-query", &["-W", "-f", "${Version}", package]);
    }
    let locked = include_str!("Cargo.lock");
    for name in ["etcd-client", "tokio-postgres", "redis"] {
        let found =
            locked.split_once(&format!("name = \"{name}\"\nversion = \"")).and_then(|(_, it)| it.split('"').next());
        versions.insert(format!("crate {name}"), found.unwrap_or("").into());
    }
    for (name, version) in languages::versions() {
        versions.insert(name, version.into());
    }
    let own = include_str!("../../Cargo.toml").split_once("version = \"").and_then(|(_, it)| it.split('"').next());
    versions.insert("redis-lock".into(), own.unwrap_or("").into());
    Value::Object(versions)
}
