//! (12) Instructions of the server's main thread for one pair, counted by valgrind: differences of a few hundredths are
//! below the noise of CPU time.

use std::io;
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use support::{Builder, Connection, Pipeline, Reply};

use super::consumer::Consumer;
use super::plan::Plan;
use super::taxes::{hold, push_pair, Task, Waiter, GOAL, TASKS};
use crate::rivals::{self, prepare, Rival};
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::Figure;

/// Pairs of one count.
const PAIRS: usize = 500;

/// Counts of the same, after one that warms up. The least of them is taken: what the server does on its own, once a
/// second, only adds.
const COUNTS: usize = 3;

/// Pairs of one pipeline: the server reads it at once.
const SLICE: usize = 50;

/// Hand-offs of one count.
const HAND_OFFS: usize = 50;

/// Long enough for the server to read a request, and so that it wakes up equally often for each.
const PAUSE: Duration = Duration::from_millis(2);

/// The server's function that runs the timers of modules. Their work in a second is not part of a pair, and under
/// valgrind a second is some fifty times as long.
const TIMERS: &str = "moduleTimerHandler";

const WAYS: &[&Rival] = &[
    &rivals::LOCK,
    &rivals::FLOOR,
    &rivals::SET_DEL,
    &rivals::LOCK_BLOCK,
    &rivals::FLOOR_BLOCK,
    &rivals::LOCK_SESSION,
    &rivals::FLOOR_SESSION,
    &rivals::RLOCK,
    &rivals::RWLOCK_READ,
    &rivals::RWLOCK_WRITE,
    &rivals::SEM,
    &rivals::MLOCK,
    &rivals::DELIFEQ,
    &rivals::LUA_MUTEX,
];

const WAYS_WITH_EFFECTS: &[&Rival] = &[&rivals::LOCK, &rivals::RFLOOR, &rivals::SET_DEL, &rivals::SET_LUA];

/// Two ways and a bound on the ratio of their instructions.
const TARGETS: &[(&Rival, &Rival, f64)] = &[
    (&rivals::LOCK, &rivals::FLOOR, 1.04),
    (&rivals::LOCK, &rivals::DELIFEQ, 1.04),
    (&rivals::RLOCK, &rivals::LOCK, 1.02),
    (&rivals::LOCK_BLOCK, &rivals::LOCK, 1.01),
    (&rivals::LOCK_SESSION, &rivals::LOCK, 1.15),
];

/// Locks that two clients hand to each other: the prefix, and the rest of its acquire and of its release.
const HAND_OFF_WAYS: &[(&str, &[&str], &[&str])] =
    &[("LOCK", &[], &[]), ("RLOCK", &[], &[]), ("RWLOCK", &["WRITE"], &["WRITE"]), ("SEM", &["LIMIT", "1"], &[])];

pub fn per_pair(plan: &Plan) -> io::Result<Section> {
    let servers = plan.scale.pick(3, 1);
    let mut section = Section::new(
        "Instructions of the main thread",
        &format!(
            "valgrind --tool=callgrind counts the instructions of the server's main thread, with all that the server \
             does for a command: reading, parsing, replying. System calls count as the instruction that makes them. \
             An acquire and its release, one after the other, {SLICE} pairs in a pipeline: with one key at a time the \
             server's hash tables are always the same. The least of {COUNTS} counts of {PAIRS} pairs each and of \
             {servers} servers: each has a hash seed of its own, by which a command is found in one step or in two, \
             which is some thousandths of a pair. A hand-off is one between two clients; how often the server wakes \
             up for it is in it, so that it moves by some hundredths. What the module's timer does is left out, \
             because under valgrind a second is fifty times as long: it is in the CPU time of the other tables. \
             Before is, where one waits or has waited, the same server before it came; \
             at a hand-off, another build of the module, where one was given."
        ),
        &["what", "to LOCK", "to the floor", "to SET NX PX + DEL", "to before", "instructions", "before"],
    );
    if plan.module.is_none() {
        section.missing(&["LOCK"]);
        return Ok(section);
    }
    let quiet = plan.with_floor().config("save \"\"");

    let pairs = least_of(servers, || Counter::start(&quiet)?.pairs(WAYS))?;
    pairs.add_rows(&mut section, "", &rivals::FLOOR);
    for (ours, theirs, limit) in TARGETS {
        let what = format!("{} to {}, instructions", ours.name, theirs.name);
        section.verdicts.push(Verdict::at_most(&what, *limit, pairs.ratio(ours, theirs)));
    }
    for consumer in [Consumer::AppendOnlyFile, Consumer::Replica] {
        let pairs = least_of(servers, || {
            let mut counter = Counter::start(&consumer.config(quiet.clone()))?;
            let _replica = consumer.attach(plan, &mut counter.server)?;
            counter.pairs(WAYS_WITH_EFFECTS)
        })?;
        pairs.add_rows(&mut section, &format!(", effects to {}", consumer.name()), &rivals::RFLOOR);
        let what = format!("LOCK to replicating floor, effects to {}, instructions", consumer.name());
        section.verdicts.push(Verdict::at_most(&what, 1.05, pairs.ratio(&rivals::LOCK, &rivals::RFLOOR)));
    }
    taxes(&quiet, &mut section)?;
    hand_offs(plan, &quiet, &mut section)?;
    Ok(section)
}

/// The least counts of several servers, at once: instructions do not depend on what else the machine does.
fn least_of(servers: usize, count: impl Fn() -> io::Result<Pairs> + Sync) -> io::Result<Pairs> {
    thread::scope(|scope| {
        let counts: Vec<_> = (0..servers).map(|_| scope.spawn(&count)).collect();
        let mut least = Pairs(Vec::new());
        for count in counts {
            least.take_less(count.join().expect("a count returns its errors")?);
        }
        Ok(least)
    })
}

/// The cost of one waiter to all other clients, while it is there and after that.
fn taxes(quiet: &Builder, section: &mut Section) -> io::Result<()> {
    let mut counter = Counter::start(quiet)?;
    hold(&mut counter.server)?;
    let without = counter.tasks()?;
    let waiter = Waiter::start(&mut counter.server)?;
    let beside = counter.tasks()?;
    waiter.leave(&mut counter.server)?;
    let after = counter.tasks()?;
    for (place, task) in TASKS.iter().enumerate() {
        for (when, counts) in [("beside one waiter", &beside), ("after the waiter has left", &after)] {
            let name = format!("{} {when}", task.name);
            let (count, before) = (counts[place], without[place]);
            add_row_beside(section, &name, count, Some(before));
            if task.has_goal {
                let what = format!("{name}, instructions, to before it came");
                section.verdicts.push(Verdict::at_most(&what, GOAL, Some(Figure::of(vec![count / before]))));
            }
        }
    }
    Ok(())
}

/// Hand-offs of each family, and where there is a base the same with that: a hand-off is to cost no more than before.
fn hand_offs(plan: &Plan, quiet: &Builder, section: &mut Section) -> io::Result<()> {
    let mut counter = Counter::start(quiet)?;
    let base = plan.base.as_ref().map(|base| Counter::start(&quiet.clone().module(base)));
    let mut base = base.transpose()?;
    for way in HAND_OFF_WAYS {
        let name = format!("{} hand-off", way.0);
        let count = counter.hand_offs(way)?;
        let before = base.as_mut().map(|base| base.hand_offs(way)).transpose()?;
        add_row_beside(section, &name, count, before);
        if let Some(before) = before {
            // Differences below hundredths are noise.
            let ratio = Figure::of(vec![(count / before * 100.0).round() / 100.0]);
            section.verdicts.push(Verdict::at_most(&format!("{name}, instructions, to before"), 1.0, Some(ratio)));
        }
    }
    Ok(())
}

/// A row without a comparison.
fn add_row_beside(section: &mut Section, name: &str, count: f64, before: Option<f64>) {
    let nothing = String::new;
    let before_shown = before.map_or(String::new(), thousands);
    let ratio = quotient(Some(count), before);
    section.row([name.to_owned(), nothing(), nothing(), nothing(), ratio, thousands(count), before_shown]);
}

/// Instructions for one pair of each way; `None` where the server cannot run it.
struct Pairs(Vec<(&'static Rival, Option<f64>)>);

impl Pairs {
    /// Takes the lesser count of each way.
    fn take_less(&mut self, other: Pairs) {
        if self.0.is_empty() {
            self.0 = other.0;
            return;
        }
        for ((_, least), (_, count)) in self.0.iter_mut().zip(other.0) {
            *least = least.zip(count).map(|(least, count)| least.min(count));
        }
    }

    fn of(&self, rival: &Rival) -> Option<f64> {
        self.0.iter().find(|(other, _)| other.name == rival.name).and_then(|(_, count)| *count)
    }

    fn ratio(&self, ours: &Rival, theirs: &Rival) -> Option<Figure> {
        Some(Figure::of(vec![self.of(ours)? / self.of(theirs)?]))
    }

    fn add_rows(&self, section: &mut Section, setting: &str, floor: &Rival) {
        for (rival, count) in &self.0 {
            let shown = count.map_or("not there".to_owned(), thousands);
            let [lock, floor, bare] = [&rivals::LOCK, floor, &rivals::SET_DEL].map(|to| quotient(*count, self.of(to)));
            let nothing = String::new;
            section.row([format!("{}{setting}", rival.name), lock, floor, bare, nothing(), shown, nothing()]);
        }
    }
}

fn quotient(count: Option<f64>, to: Option<f64>) -> String {
    count.zip(to).map_or(String::new(), |(count, to)| format!("{:.3}", count / to))
}

pub fn thousands(count: f64) -> String {
    let count = count.round() as u64;
    match count / 1000 {
        0 => count.to_string(),
        above => format!("{above},{:03}", count % 1000),
    }
}

/// Whether callgrind can count here.
pub fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A server that runs under callgrind.
pub struct Counter {
    pub server: Server,
    pub client: Connection,
    dumps: usize,
}

impl Counter {
    pub fn start(builder: &Builder) -> io::Result<Counter> {
        // Threads apart, because the main thread's alone count. Counting begins when it is asked for: a start is long.
        let callgrind = [
            "valgrind",
            "--tool=callgrind",
            "--separate-threads=yes",
            "--instr-atstart=no",
            "--callgrind-out-file=callgrind",
        ];
        // The server's own clockwork is no part of a pair: once a second is as rare as it gets.
        let builder = builder.clone().config("hz 1").config("dynamic-hz no").run_by(&callgrind);
        let server = Server::start(&builder)
            .map_err(|error| io::Error::other(format!("{error}; is valgrind there? (apt install valgrind)")))?;
        let client = Connection::connect(server.port())?;
        let counter = Counter { server, client, dumps: 0 };
        counter.tell(&["instrumentation", "on"])?;
        Ok(counter)
    }

    fn pairs(&mut self, rivals: &[&'static Rival]) -> io::Result<Pairs> {
        let (here, _) = prepare(&mut self.server, rivals)?;
        let mut pairs = Vec::new();
        for rival in rivals {
            let count = match here.iter().find(|(other, _)| other.name == rival.name) {
                Some((_, scripts)) => Some(self.pair(rival, scripts)?),
                None => None,
            };
            pairs.push((*rival, count));
        }
        Ok(Pairs(pairs))
    }

    fn pair(&mut self, rival: &Rival, scripts: &Rc<[String]>) -> io::Result<f64> {
        let mut pipeline = Pipeline::default();
        (0..SLICE).for_each(|index| push_pair(&mut pipeline, rival, index, scripts));
        let replies = pipeline.commands / SLICE;
        self.count(PAIRS, |client| {
            for _ in 0..PAIRS / SLICE {
                let mut wrong = None;
                client.pipeline(&pipeline, |index, reply| {
                    let is_last = (index + 1) % replies == 0;
                    if reply.is_error() || (is_last && !(rival.freed)(&reply)) {
                        wrong.get_or_insert(reply);
                    }
                })?;
                if let Some(reply) = wrong {
                    return Err(io::Error::other(format!("{}: {reply:?}", rival.name)));
                }
            }
            Ok(())
        })
    }

    /// Of each task.
    fn tasks(&mut self) -> io::Result<Vec<f64>> {
        TASKS.iter().map(|task| self.task(task)).collect()
    }

    fn task(&mut self, task: &Task) -> io::Result<f64> {
        let (mut prepare, mut pipeline) = (Pipeline::default(), Pipeline::default());
        for index in 0..SLICE {
            (task.prepare)(&mut prepare, index);
            (task.push)(&mut pipeline, index);
        }
        self.client.run(&prepare)?;
        self.count(PAIRS, |client| (0..PAIRS / SLICE).try_for_each(|_| client.run(&pipeline)))
    }

    /// Two clients hand a lock to each other.
    fn hand_offs(&mut self, (family, acquire, release): &(&str, &[&str], &[&str])) -> io::Result<f64> {
        let key = format!("handed-over:{family}");
        let command = |action: &str, owner: usize, rest: &[&str]| {
            let mut words = vec![format!("{family}.{action}"), key.clone(), format!("{owner:036}")];
            words.extend(rest.iter().map(|word| word.to_string()));
            words
        };
        let mut clients = [Connection::connect(self.server.port())?, Connection::connect(self.server.port())?];
        let waiting = [acquire, &["PX", "30000", "BLOCK", "0"][..]].concat();
        let first = command("ACQUIRE", 0, &waiting);
        granted(block_on(clients[0].call(&words(&first)))?)?;
        let mut holder = 0;
        self.count(HAND_OFFS, |_| {
            for _ in 0..HAND_OFFS {
                let next = 1 - holder;
                block_on(clients[next].send(&words(&command("ACQUIRE", next, &waiting))))?;
                std::thread::sleep(PAUSE);
                block_on(clients[holder].call(&words(&command("RELEASE", holder, release))))?;
                granted(block_on(clients[next].receive())?)?;
                std::thread::sleep(PAUSE);
                holder = next;
            }
            Ok(())
        })
    }

    /// Instructions of the main thread for each of `units`.
    pub fn count(&mut self, units: usize, mut work: impl FnMut(&mut Connection) -> io::Result<()>) -> io::Result<f64> {
        work(&mut self.client)?;
        self.tell(&["zero"])?;
        let mut least = f64::INFINITY;
        for _ in 0..COUNTS {
            work(&mut self.client)?;
            least = least.min(self.counted()? / units as f64);
        }
        Ok(least)
    }

    /// The count since the last call, without the timers of modules. It begins at zero again.
    fn counted(&mut self) -> io::Result<f64> {
        self.tell(&["dump"])?;
        self.dumps += 1;
        let file = self.server.dir().join(format!("callgrind.{}-01", self.dumps));
        let text = std::fs::read_to_string(&file)?;
        std::fs::remove_file(&file)?;
        let total = total(&text).ok_or_else(|| io::Error::other(format!("{} has no total", file.display())))?;
        Ok(total - inclusive(&text, TIMERS))
    }

    /// Sends callgrind a command, and waits until it has run.
    fn tell(&self, command: &[&str]) -> io::Result<()> {
        let output = Command::new("vgdb").arg(format!("--pid={}", self.server.pid())).args(command).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("vgdb: {}", String::from_utf8_lossy(&output.stderr)))),
        }
    }
}

/// The count of callgrind in all.
fn total(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// The count of calls of this function, with all that they call. A name is written out where it occurs first, and a
/// number stands for it after that.
fn inclusive(text: &str, function: &str) -> f64 {
    let mut number = None;
    let mut is_called = false;
    let mut counted = 0.0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((which, name)) = line.split_once("fn=").and_then(|(_, rest)| rest.split_once(')')) {
            if name.trim() == function {
                number = Some(which);
            }
            if line.starts_with("cfn=") {
                is_called = number == Some(which);
            }
        } else if line.starts_with("calls=") {
            // The next line has the cost of the calls, behind where they are.
            let cost = lines.next().and_then(|line| line.split(' ').nth(1)?.parse::<f64>().ok());
            counted += cost.filter(|_| is_called).unwrap_or_default();
        }
    }
    counted
}

fn granted(reply: Reply) -> io::Result<()> {
    match reply {
        Reply::Array(_) => Ok(()),
        other => Err(io::Error::other(format!("no grant but {other:?}"))),
    }
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
