//! (13) How long one turn holds the server, and how that grows: the worst that is known of each kind.

mod admission;
mod clients;
mod reading;
mod search;
mod sessions;
mod setup;
mod together;

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::plan::Plan;
use crate::section::{Section, Verdict};
use crate::server::{within, Server};
use crate::stats::{digits, Figure};
use crate::watch::{Held, Watch};

/// No turn is to be longer, in ms.
const LONGEST: f64 = 5.0;

/// Beyond this, in ms, a turn is read once.
const FAR: f64 = 200.0;

/// Where the server itself has something to do for each client: at most so many of BLPOP's turns.
const TO_BLPOP: f64 = 1.3;

/// What is paid for one more, or again and again, may grow by so much from the smallest size to the largest.
const GROWTH: f64 = 2.0;

/// Prepares a server, lets it happen, and returns how long it was held.
type Measure = fn(&mut Server, usize) -> io::Result<Held>;

struct Case {
    name: &'static str,
    sizes: [usize; 3],
    held: Measure,
    /// What BLPOP's clients cost the server where ours do.
    blpop: Option<Measure>,
    goal: Goal,
}

enum Goal {
    /// At the largest size.
    Longest,
    ToBlpop,
    Growth,
}

impl Case {
    const fn new(name: &'static str, sizes: [usize; 3], held: Measure) -> Case {
        Case { name, sizes, held, blpop: None, goal: Goal::Longest }
    }

    const fn beside(name: &'static str, held: Measure, blpop: Measure) -> Case {
        Case { name, sizes: [1000, 3000, 5000], held, blpop: Some(blpop), goal: Goal::ToBlpop }
    }
}

const MANY: [usize; 3] = [1000, 3000, 10_000];

const CASES: &[Case] = &[
    Case::new("SEM.ACQUIRE … BLOCK by one of n holders, n waiters", MANY, search::semaphore_search),
    Case {
        goal: Goal::Growth,
        ..Case::new(
            "one more of n owners of waited-for locks queues on one mutex, mean",
            [300, 1000, 3000],
            search::one_queue,
        )
    },
    Case::new("RWLOCK WRITE by a waited-for owner, n readers wait for a mutex each", MANY, search::upgrade_apart),
    Case::new("RWLOCK WRITE by a waited-for owner, n readers wait to read elsewhere", MANY, search::upgrade_to_read),
    Case::new("RWLOCK WRITE by a waited-for owner, n readers wait to write elsewhere", MANY, search::upgrade_to_write),
    Case::new("LOCK by an owner that n MLOCKs wait for, all of the same 128 keys", MANY, search::pass_same_keys),
    Case::new(
        "LOCK by an owner that n MLOCKs wait for, 126 keys of each its own",
        [500, 1500, 5000],
        search::pass_own_keys,
    ),
    Case::new("RELEASE that admits n readers", MANY, admission::admit_readers),
    Case::new("a larger LIMIT that admits n", MANY, admission::raise_limit),
    Case::new("FLUSHALL with n waited-for keys, NOTIFY", MANY, admission::flush_notified),
    Case::new("SWAPDB with n waited-for keys, NOTIFY", MANY, admission::swap_databases),
    Case::new("n waited-for leases end in one millisecond, NOTIFY", MANY, admission::leases_end),
    Case::new("demotion to a replica with n waiters, NOTIFY", MANY, admission::demote),
    Case::new("the end of a session with n holds", MANY, sessions::session_ends),
    Case::new("the end of a CLIENT PAUSE with n session holds to renew", MANY, sessions::pause_ends),
    Case {
        goal: Goal::Growth,
        ..Case::new("CLIENT PAUSE with n session holds to renew, each 10 ms", MANY, sessions::paused)
    },
    Case::new("all of these at once, n each", MANY, together::everything),
    Case::new("LOCK.INFO of a semaphore with n holders and n waiters", MANY, reading::info),
    Case::new("LOCK.WAITERS of the same", MANY, reading::waiters),
    Case::new("LOCK.BREAK of the same", MANY, reading::break_all),
    Case::new("LOCK.TOP COUNT 1000 with n waited-for keys", MANY, reading::top),
    Case::beside("n blocked clients close at once", clients::close, clients::close_blpop),
    Case::beside("SET on a key with n blocked clients", clients::overwrite, clients::push_one_list),
    Case::beside("FLUSHALL with n waited-for keys", clients::flush, clients::push_many_lists),
    Case::beside(
        "the end of a session with n waited-for holds",
        clients::waited_session_ends,
        clients::push_many_lists,
    ),
];

pub fn longest(plan: &Plan) -> io::Result<Section> {
    let before = if plan.base.is_some() { &["before"][..] } else { &[] };
    let columns = [
        &["what", "n", "longest, CPU ms"],
        before,
        &["to the smallest n", "by the clock", "idle", "BLPOP, CPU ms", "to BLPOP"],
    ];
    let mut section = Section::new(
        "Long turns",
        "A connection of its own sends PING without a pause, from just before the event until everything has settled. \
         The longest turn is the most CPU time that the server spent from one PING to the next; by the clock is the \
         longest wait for a reply, and idle the same in 30 ms in which nothing happened: what else the machine did is \
         in these two. A new server for each reading. Waiters wait with NOTIFY, many on one connection, where the row \
         says no more; blocked clients have a connection each, and beside them stands what as many clients of BLPOP \
         cost the server: closing at once, or served by one RPUSH or by one script. Two rows are no turns: the mean \
         CPU time of a command, and CPU time in each 10 ms of a pause. All at once: the lease ends, the session's end, \
         the flush, the readers, the larger LIMIT and the search, sent within a millisecond. Before is another build \
         of the module, measured in the same run, where one was given; it has 6 s for a reading, with all that it \
         prepares.",
        &columns.concat(),
    );
    if plan.module.is_none() {
        section.missing(&["LOCK"]);
        return Ok(section);
    }
    for case in CASES {
        case.add_to(&mut section, plan)?;
    }
    Ok(section)
}

impl Case {
    /// A row for each size, and what the largest says of the goal.
    fn add_to(&self, section: &mut Section, plan: &Plan) -> io::Result<()> {
        let [small, _, large] = self.sizes;
        let mut smallest = None;
        let mut verdict = None;
        let mut is_base_too_slow = false;
        for size in plan.scale.pick(&self.sizes[..], &[small, large]).iter().copied() {
            if size + 200 > plan.files as usize {
                continue;
            }
            let is_compared = size == large || matches!(self.goal, Goal::Growth);
            let rounds = plan.scale.pick(if is_compared { 3 } else { 1 }, 1);
            let readings = self.read(plan, size, rounds)?;
            let held = Figure::of(readings.ours.clone());
            let growth = held.median / *smallest.get_or_insert(held.median);
            let beside = (!readings.blpop.is_empty()).then(|| Figure::of_ratios(&readings.ours, &readings.blpop));
            let is_too_long = held.median >= TOO_LONG.ms();
            let longest = if is_too_long { format!("over {} s", LIMIT.as_secs()) } else { shown(held) };
            let mut cells = vec![self.name.to_owned(), size.to_string(), longest];
            if let Some(base) = &plan.base {
                cells.push(self.before(plan, base, size, &mut is_base_too_slow));
            }
            cells.extend([
                digits(growth),
                digits(Figure::of(readings.clock).median),
                digits(Figure::of(readings.idle).median),
                if readings.blpop.is_empty() { String::new() } else { shown(Figure::of(readings.blpop)) },
                beside.map_or(String::new(), shown),
            ]);
            section.cells(cells);
            verdict = Some(match self.goal {
                Goal::Longest => {
                    Verdict::at_most(&format!("{}, n = {size}", self.name), LONGEST, Some(held)).unit(" ms")
                }
                Goal::ToBlpop => Verdict::at_most(&format!("{}, n = {size}, to BLPOP's", self.name), TO_BLPOP, beside),
                Goal::Growth => {
                    let what = format!("{}, n = {size} to {small}", self.name);
                    Verdict::at_most(&what, GROWTH, Some(Figure::of(vec![growth])))
                }
            });
        }
        section.verdicts.extend(verdict);
        Ok(())
    }

    fn read(&self, plan: &Plan, size: usize, rounds: usize) -> io::Result<Readings> {
        let wrong = |error| io::Error::other(format!("{}, n = {size}: {error}", self.name));
        let mut readings = Readings::default();
        for _ in 0..rounds {
            let mut server = start(plan, plan.module.as_deref())?;
            let watch = Watch::start(&server)?;
            thread::sleep(Duration::from_millis(30));
            readings.idle.push(watch.longest()?.clock_ms());
            let held =
                within(LIMIT, &mut server, |server| (self.held)(server, size)).map_err(wrong)?.unwrap_or(TOO_LONG);
            readings.ours.push(held.ms());
            readings.clock.push(held.clock_ms());
            if let Some(blpop) = self.blpop {
                let mut server = start(plan, plan.module.as_deref())?;
                let blpop = within(LIMIT, &mut server, |server| blpop(server, size)).map_err(wrong)?;
                readings.blpop.push(blpop.unwrap_or(TOO_LONG).ms());
            }
            // So far from every goal one reading says enough.
            if held.ms() > FAR {
                break;
            }
        }
        Ok(readings)
    }

    /// What another build of the module takes. It may lack the command; and where it is too slow at one size, it is not
    /// asked for a larger one.
    fn before(&self, plan: &Plan, base: &Path, size: usize, is_too_slow: &mut bool) -> String {
        if !*is_too_slow {
            let before = |mut server| within(LIMIT_OF_BASE, &mut server, |server| (self.held)(server, size));
            match start(plan, Some(base)).and_then(before) {
                Ok(Some(held)) => return digits(held.ms()),
                Ok(None) => *is_too_slow = true,
                Err(_) => return "not there".to_owned(),
            }
        }
        format!("over {} s", LIMIT_OF_BASE.as_secs())
    }
}

/// No reading takes longer, with all that it prepares.
const LIMIT: Duration = Duration::from_secs(10);

/// Nor of the base: what it takes must not make the run long.
const LIMIT_OF_BASE: Duration = Duration::from_secs(6);

/// What stands for a reading that took longer.
const TOO_LONG: Held = Held { cpu: Some(LIMIT), clock: LIMIT };

/// In ms, one for each round.
#[derive(Default)]
struct Readings {
    ours: Vec<f64>,
    clock: Vec<f64>,
    idle: Vec<f64>,
    blpop: Vec<f64>,
}

fn shown(figure: Figure) -> String {
    if figure.low == figure.high {
        digits(figure.median)
    } else {
        figure.show()
    }
}

fn start(plan: &Plan, module: Option<&Path>) -> io::Result<Server> {
    let mut builder = plan.builder.clone().config("save \"\"");
    if let Some(module) = module {
        builder = builder.module(module);
    }
    let mut server = Server::start(&builder)?;
    server.must(&["CONFIG", "SET", "lock.max-waiters", "100000"])?;
    Ok(server)
}
