//! Instructions of the server's main thread for a pair, for commands next to a waiter, and for a hand-off.

use std::io;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use support::{Builder, Connection, Pipeline, Reply};

use super::callgrind::{Counter, COUNTS};
use super::consumer::Consumer;
use super::plan::Plan;
use super::while_waiting::{hold, push_pair, Task, Waiter, TASKS};
use crate::rivals::{self, prepare, Rival};
use crate::section::{Section, Verdict};
use crate::stats::Figure;

/// Pairs in one count.
pub const PAIRS: usize = 500;

/// Pairs in one pipeline, which the server reads at once.
pub const SLICE: usize = 50;

/// Hand-offs in one count; with many clients, each gets the lock once.
const HAND_OFFS: usize = 48;

/// Enough for the server to read a request, so that it wakes up equally often for each.
const PAUSE: Duration = Duration::from_millis(2);

const WAYS: &[&Rival] = &[
    &rivals::LOCK,
    &rivals::FLOOR,
    &rivals::SET_DEL,
    &rivals::LOCK_SESSION,
    &rivals::RLOCK,
    &rivals::RWLOCK_READ,
    &rivals::RWLOCK_WRITE,
    &rivals::SEM,
    &rivals::LUA_MUTEX,
    &rivals::SET_LUA,
];

const WAYS_WITH_EFFECTS: &[&Rival] = &[&rivals::LOCK, &rivals::RFLOOR, &rivals::SET_DEL, &rivals::SET_LUA];

/// Two ways and the limit for the ratio of their instructions.
const TARGETS: &[(&Rival, &Rival, f64)] = &[
    (&rivals::LOCK, &rivals::FLOOR, TO_FLOOR),
    (&rivals::RLOCK, &rivals::LOCK, 1.02),
    (&rivals::LOCK_SESSION, &rivals::LOCK, 1.20),
    (&rivals::RWLOCK_READ, &rivals::LOCK, 1.3),
    (&rivals::RWLOCK_WRITE, &rivals::LOCK, 1.3),
    (&rivals::SEM, &rivals::LOCK, 1.3),
];

/// A pair of LOCK to one of the floor, or of the replicating floor where there is a consumer of effects.
const TO_FLOOR: f64 = 1.06;

/// Commands of other clients during and after a wait, relative to before it.
const BESIDE_WAITER: f64 = 1.02;

/// Instructions per hand-off: 1.6 times what the floor needs to block a client and to wake it.
const HAND_OFF: f64 = 32_000.0;

/// Number of clients, and the name of the row.
const HAND_OFFS_AMONG: [(usize, &str); 2] = [(2, "two clients"), (48, "48 clients")];

pub fn per_pair(plan: &Plan) -> io::Result<Section> {
    let servers = plan.scale.pick(3, 1);
    let mut section = Section::new(
        "Instructions of the main thread",
        &format!(
            "valgrind --tool=callgrind counts the instructions of the server's main thread, including everything \
             that the server itself does for a command: reading, parsing, replying. A system call counts as one \
             instruction. A pair is an acquire followed by its release, {SLICE} pairs per pipeline and one key at a \
             time, so that the server's hash tables do not change. Each figure is the least of {COUNTS} counts of \
             {PAIRS} pairs on each of {servers} servers, because every server has its own hash seed, on which the \
             cost of a command lookup depends by a few thousandths of a pair. The rows of a waiting request, and \
             those after it has left, compare the server with itself before that request. A waiter that has left \
             leaves nothing behind, so the difference of such a row from 1 is noise, for which the target allows \
             0.02. A hand-off is between two clients, or among 48 of which all but the holder wait; it is also the \
             least of {servers} servers. It includes how often the server wakes up for it, which differs by a few \
             percent from run to run. Under valgrind the 48 clients wait so long that each grant checks its user's \
             permissions again. The floor's hand-off only blocks a client and wakes it, with the same arguments: it \
             has no keys and a single queue. The module's timer is not counted, because valgrind slows the server \
             down fifty times; the table of long iterations has its CPU time."
        ),
        &["what", "to LOCK", "to the floor", "to SET NX PX + DEL", "to before", "instructions", "before"],
    );
    if plan.module.is_none() {
        section.missing(&["LOCK"]);
        return Ok(section);
    }
    let quiet = plan.with_floor().config("save \"\"");

    let pairs = least_of(servers, || count_pairs(&mut Counter::start(&quiet)?, WAYS))?;
    pairs.add_rows(&mut section, "", &rivals::FLOOR);
    for (ours, theirs, limit) in TARGETS {
        let what = format!("{} to {}", ours.name, theirs.name);
        section.verdicts.push(Verdict::at_most(&what, *limit, pairs.ratio(ours, theirs)));
    }
    for consumer in [Consumer::AppendOnlyFile, Consumer::Replica] {
        let pairs = least_of(servers, || {
            let mut counter = Counter::start(&consumer.config(quiet.clone()))?;
            let _replica = consumer.attach(plan, &mut counter.server)?;
            count_pairs(&mut counter, WAYS_WITH_EFFECTS)
        })?;
        pairs.add_rows(&mut section, &format!(", effects to {}", consumer.name()), &rivals::RFLOOR);
        let what = format!("LOCK to replicating floor, effects to {}", consumer.name());
        section.verdicts.push(Verdict::at_most(&what, TO_FLOOR, pairs.ratio(&rivals::LOCK, &rivals::RFLOOR)));
    }
    add_tasks(&quiet, &mut section)?;
    for (clients, among) in HAND_OFFS_AMONG {
        add_hand_offs(plan, servers, &quiet, &mut section, clients, among)?;
    }
    Ok(section)
}

/// Counts on multiple servers in parallel, because instruction counts do not depend on other load.
fn on_servers<T: Send>(servers: usize, count: impl Fn() -> io::Result<T> + Sync) -> io::Result<Vec<T>> {
    thread::scope(|scope| {
        let counts: Vec<_> = (0..servers).map(|_| scope.spawn(&count)).collect();
        counts.into_iter().map(|count| count.join().expect("a count returns its errors")).collect()
    })
}

fn least_of(servers: usize, count: impl Fn() -> io::Result<Pairs> + Sync) -> io::Result<Pairs> {
    let mut least = Pairs(Vec::new());
    for pairs in on_servers(servers, count)? {
        least.take_less(pairs);
    }
    Ok(least)
}

/// What one waiter costs all other clients, while it waits and afterwards.
fn add_tasks(quiet: &Builder, section: &mut Section) -> io::Result<()> {
    let mut counter = Counter::start(quiet)?;
    let count_all = |counter: &mut Counter| -> io::Result<Vec<f64>> {
        TASKS.iter().map(|task| count_task(counter, task)).collect()
    };
    hold(&mut counter.server)?;
    let without = count_all(&mut counter)?;
    let waiter = Waiter::start(&mut counter.server)?;
    let during = count_all(&mut counter)?;
    waiter.leave(&mut counter.server)?;
    let after = count_all(&mut counter)?;
    for (index, task) in TASKS.iter().enumerate() {
        for (when, counts) in [("while one request waits", &during), ("after the waiter has left", &after)] {
            let name = format!("{} {when}", task.name);
            let (count, before) = (counts[index], without[index]);
            add_row(section, &name, count, Some(before));
            let what = format!("{name}, compared with before");
            section.verdicts.push(Verdict::at_most(&what, BESIDE_WAITER, Some(Figure::of(vec![count / before]))));
        }
    }
    Ok(())
}

/// A row without a comparison.
fn add_row(section: &mut Section, name: &str, count: f64, before: Option<f64>) {
    let nothing = String::new;
    let before_shown = before.map_or(String::new(), thousands);
    let ratio = quotient(Some(count), before);
    section.row([name.to_owned(), nothing(), nothing(), nothing(), ratio, thousands(count), before_shown]);
}

/// Instructions for one pair of each way; `None` if the server cannot run it.
struct Pairs(Vec<(&'static Rival, Option<f64>)>);

impl Pairs {
    /// Keeps the lower count of each way.
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

pub fn quotient(count: Option<f64>, to: Option<f64>) -> String {
    count.zip(to).map_or(String::new(), |(count, to)| format!("{:.3}", count / to))
}

pub fn thousands(count: f64) -> String {
    let count = count.round() as u64;
    match count / 1000 {
        0 => count.to_string(),
        above => format!("{above},{:03}", count % 1000),
    }
}

fn count_pairs(counter: &mut Counter, rivals: &[&'static Rival]) -> io::Result<Pairs> {
    let (here, _) = prepare(&mut counter.server, rivals)?;
    let mut pairs = Vec::new();
    for rival in rivals {
        let count = match here.iter().find(|(other, _)| other.name == rival.name) {
            Some((_, scripts)) => Some(count_pair(counter, rival, scripts)?),
            None => None,
        };
        pairs.push((*rival, count));
    }
    Ok(Pairs(pairs))
}

fn count_pair(counter: &mut Counter, rival: &Rival, scripts: &Rc<[String]>) -> io::Result<f64> {
    let mut pipeline = Pipeline::default();
    (0..SLICE).for_each(|index| push_pair(&mut pipeline, rival, index, scripts));
    let replies = pipeline.commands / SLICE;
    counter.count(PAIRS, |client| {
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

fn count_task(counter: &mut Counter, task: &Task) -> io::Result<f64> {
    let (mut prepare, mut pipeline) = (Pipeline::default(), Pipeline::default());
    for index in 0..SLICE {
        (task.prepare)(&mut prepare, index);
        (task.push)(&mut pipeline, index);
    }
    counter.client.run(&prepare)?;
    count_pipeline(counter, &pipeline)
}

/// Instructions for each of the pairs or commands in a pipeline of [`SLICE`] of them.
pub fn count_pipeline(counter: &mut Counter, pipeline: &Pipeline) -> io::Result<f64> {
    counter.count(PAIRS, |client| (0..PAIRS / SLICE).try_for_each(|_| client.run(pipeline)))
}

/// The commands of a hand-off: one waits for the lock, the other releases it.
#[derive(Clone, Copy)]
struct HandOff {
    wait: &'static str,
    end: &'static str,
    /// Whether the first client is granted the lock at once; on the floor, each client waits to be woken.
    is_lock: bool,
}

const LOCK_HAND_OFF: HandOff = HandOff { wait: "LOCK.ACQUIRE", end: "LOCK.RELEASE", is_lock: true };

/// The minimum that blocks a client and wakes it (benches/floor).
const FLOOR_HAND_OFF: HandOff = HandOff { wait: "BARE.PARKING", end: "BARE.WAKE_UP", is_lock: false };

fn add_hand_offs(
    plan: &Plan,
    servers: usize,
    quiet: &Builder,
    section: &mut Section,
    clients: usize,
    among: &str,
) -> io::Result<()> {
    let count = |commands| {
        let counts = on_servers(servers, || count_hand_offs(&mut Counter::start(quiet)?, commands, clients))?;
        Ok::<_, io::Error>(counts.into_iter().fold(f64::INFINITY, f64::min))
    };
    let floor = plan.floor.as_ref().map(|_| count(FLOOR_HAND_OFF)).transpose()?;
    let lock = count(LOCK_HAND_OFF)?;
    for (name, count) in [("LOCK", Some(lock)), ("floor", floor)] {
        let Some(count) = count else { continue };
        let nothing = String::new;
        let name = format!("{name} hand-off, {among}");
        let to_floor = quotient(Some(count), floor);
        section.row([name, nothing(), to_floor, nothing(), nothing(), thousands(count), nothing()]);
    }
    let what = format!("LOCK hand-off, {among}");
    section.verdicts.push(Verdict::at_most(&what, HAND_OFF, Some(Figure::of(vec![lock]))));
    Ok(())
}

/// Two clients hand off a lock to each other: the next one requests it shortly before the release. Or more clients pass
/// it around, and the former holder requests it again at once, so that all others wait.
fn count_hand_offs(counter: &mut Counter, commands: HandOff, number: usize) -> io::Result<f64> {
    const KEY: &str = "handed-over";
    let owners: Vec<_> = (0..number).map(|owner| format!("{owner:036}")).collect();
    let wait = |owner: usize| [commands.wait, KEY, &owners[owner], "PX", "30000", "BLOCK", "0"];
    let port = counter.server.port();
    let mut clients = (0..number).map(|_| Connection::connect(port)).collect::<io::Result<Vec<_>>>()?;
    if commands.is_lock {
        granted(clients[0].command(&wait(0))?)?;
    }
    let asks_again = number > 2;
    if asks_again {
        for (next, client) in clients.iter_mut().enumerate().skip(1) {
            block_on(client.send(&wait(next)))?;
            thread::sleep(PAUSE);
        }
    }
    let mut holder = 0;
    counter.count(HAND_OFFS, |_| {
        for _ in 0..HAND_OFFS {
            let next = (holder + 1) % number;
            if !asks_again {
                block_on(clients[next].send(&wait(next)))?;
                thread::sleep(PAUSE);
            }
            // Repeated, because the server may read it before the request of the waiting client.
            while clients[holder].command(&[commands.end, KEY, &owners[holder]])? == Reply::Int(0) {}
            granted(block_on(clients[next].receive())?)?;
            if asks_again {
                block_on(clients[holder].send(&wait(holder)))?;
            }
            thread::sleep(PAUSE);
            holder = next;
        }
        Ok(())
    })
}

fn granted(reply: Reply) -> io::Result<()> {
    match reply {
        Reply::Array(_) => Ok(()),
        other => Err(io::Error::other(format!("no grant but {other:?}"))),
    }
}
