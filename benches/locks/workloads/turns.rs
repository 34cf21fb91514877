//! (13) How long one turn holds the server, and how that grows: the worst that is known of each kind.

use std::io;
use std::time::{Duration, Instant};

use async_io::block_on;
use support::{Connection, Pipeline, Reply};

use super::plan::Plan;
use crate::section::{Section, Verdict};
use crate::server::Server;
use crate::stats::{digits, Figure};
use crate::watch::{Held, Watch};

/// No turn is to be longer, in ms.
const LONGEST: f64 = 5.0;

/// Where the server itself has something to do for each client: at most so many of BLPOP's turns.
const TO_BLPOP: f64 = 1.3;

/// What is paid for one more, or again and again, may grow by so much from the smallest size to the largest.
const GROWTH: f64 = 2.0;

/// Long enough for thousands of clients to go away meanwhile.
const SLEEP: Duration = Duration::from_millis(400);

const GRACE: Duration = Duration::from_secs(60);

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
    Case::new("SEM.ACQUIRE … BLOCK by one of n holders, n waiters", [500, 1000, 2000], semaphore_search),
    Case {
        goal: Goal::Growth,
        ..Case::new("one more of n owners of waited-for locks queues on one mutex, mean", [300, 1000, 3000], one_queue)
    },
    Case::new("RWLOCK WRITE by a waited-for owner, n readers wait for a mutex each", [1000, 2500, 5000], upgrade_apart),
    Case::new(
        "RWLOCK WRITE by a waited-for owner, n readers wait to read elsewhere",
        [1000, 2500, 5000],
        upgrade_to_read,
    ),
    Case::new(
        "RWLOCK WRITE by a waited-for owner, n readers wait to write elsewhere",
        [500, 1000, 2000],
        upgrade_to_write,
    ),
    Case::new("LOCK by an owner that n MLOCKs wait for, all of the same 128 keys", [500, 1500, 5000], pass_same_keys),
    Case::new("LOCK by an owner that n MLOCKs wait for, 126 keys of each its own", [500, 1500, 5000], pass_own_keys),
    Case::new("RELEASE that admits n readers", MANY, admit_readers),
    Case::new("a larger LIMIT that admits n", MANY, raise_limit),
    Case::new("FLUSHALL with n waited-for keys, NOTIFY", MANY, flush_notified),
    Case::new("n waited-for leases end in one millisecond, NOTIFY", MANY, leases_end),
    Case::new("the end of a session with n holds", MANY, session_ends),
    Case { goal: Goal::Growth, ..Case::new("CLIENT PAUSE with n session holds to renew, each 10 ms", MANY, paused) },
    Case::beside("n blocked clients close at once", close, close_blpop),
    Case::beside("SET on a key with n blocked clients", overwrite, push_one_list),
    Case::beside("FLUSHALL with n waited-for keys", flush, push_many_lists),
    Case::beside("the end of a session with n waited-for holds", waited_session_ends, push_many_lists),
];

pub fn longest(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Long turns",
        "A connection of its own sends PING without a pause, from just before the event until everything has settled. \
         The longest turn is the most CPU time that the server spent from one PING to the next; by the clock is the \
         longest wait for a reply, and idle the same in 30 ms in which nothing happened: what else the machine did is \
         in these two. A new server for each reading. Waiters wait with NOTIFY, many on one connection, where the row \
         says no more; blocked clients have a connection each, and beside them stands what as many clients of BLPOP \
         cost the server: closing at once, or served by one RPUSH or by one script. Two rows are no turns: the mean \
         CPU time of a command, and CPU time in each 10 ms of a pause.",
        &["what", "n", "longest, CPU ms", "to the smallest n", "by the clock", "idle", "BLPOP, CPU ms", "to BLPOP"],
    );
    if plan.module.is_none() {
        section.missing(&["LOCK"]);
        return Ok(section);
    }
    for case in CASES {
        let mut smallest = None;
        let mut verdict = None;
        let [small, _, large] = case.sizes;
        for size in plan.scale.pick(&case.sizes[..], &[small, large]).iter().copied() {
            if size + 200 > plan.files as usize {
                continue;
            }
            let mut ours = Vec::new();
            let mut theirs = Vec::new();
            let mut clock = Vec::new();
            let mut idle = Vec::new();
            for _ in 0..plan.scale.pick(3, 1) {
                let wrong = |error| io::Error::other(format!("{}, n = {size}: {error}", case.name));
                let mut server = start(plan)?;
                let watch = Watch::start(&server)?;
                std::thread::sleep(Duration::from_millis(30));
                idle.push(watch.longest()?.clock_ms());
                let held = (case.held)(&mut server, size).map_err(wrong)?;
                ours.push(held.ms());
                clock.push(held.clock_ms());
                if let Some(blpop) = case.blpop {
                    theirs.push(blpop(&mut start(plan)?, size).map_err(wrong)?.ms());
                }
            }
            let held = Figure::of(ours.clone());
            let growth = held.median / *smallest.get_or_insert(held.median);
            let beside = (!theirs.is_empty()).then(|| Figure::of_ratios(&ours, &theirs));
            section.row([
                case.name.to_owned(),
                size.to_string(),
                shown(held),
                digits(growth),
                digits(Figure::of(clock).median),
                digits(Figure::of(idle).median),
                if theirs.is_empty() { String::new() } else { shown(Figure::of(theirs)) },
                beside.map_or(String::new(), shown),
            ]);
            verdict = Some(match case.goal {
                Goal::Longest => {
                    Verdict::at_most(&format!("{}, n = {size}", case.name), LONGEST, Some(held)).unit(" ms")
                }
                Goal::ToBlpop => Verdict::at_most(&format!("{}, n = {size}, to BLPOP's", case.name), TO_BLPOP, beside),
                Goal::Growth => {
                    let what = format!("{}, n = {size} to {}", case.name, case.sizes[0]);
                    Verdict::at_most(&what, GROWTH, Some(Figure::of(vec![growth])))
                }
            });
        }
        section.verdicts.extend(verdict);
    }
    Ok(section)
}

fn shown(figure: Figure) -> String {
    if figure.low == figure.high {
        digits(figure.median)
    } else {
        figure.show()
    }
}

fn start(plan: &Plan) -> io::Result<Server> {
    let mut server = Server::start(&plan.builder.clone().config("save \"\""))?;
    server.must(&["CONFIG", "SET", "lock.max-waiters", "100000"])?;
    Ok(server)
}

// What the cases are made of ------------------------------------------------------------------------------------

/// Commands for each index, in pipelines on a connection of their own, which is returned: sessions and requests with
/// NOTIFY live as long as it does.
fn each(server: &Server, count: usize, push: impl Fn(&mut Pipeline, usize)) -> io::Result<Connection> {
    const SLICE: usize = 500;
    let mut client = Connection::connect(server.port())?;
    for from in (0..count).step_by(SLICE) {
        let mut pipeline = Pipeline::default();
        (from..count.min(from + SLICE)).for_each(|index| push(&mut pipeline, index));
        client.run(&pipeline)?;
    }
    Ok(client)
}

fn hold(pipeline: &mut Pipeline, key: &str, owner: &str) {
    pipeline.push(&["LOCK.ACQUIRE", key, owner, "PX", "600000"]);
}

/// What makes a request wait without blocking its connection.
const NOTIFIED: [&str; 6] = ["PX", "600000", "BLOCK", "600000", "NOTIFY", "outcomes"];

fn queue(pipeline: &mut Pipeline, request: &[&str]) {
    pipeline.push(&[request, &NOTIFIED].concat());
}

/// A connection for each index, blocked by its command.
fn block(server: &mut Server, count: usize, command: impl Fn(usize) -> Vec<String>) -> io::Result<Vec<Connection>> {
    let mut blocked = Vec::new();
    block_on(async {
        for index in 0..count {
            let mut client = Connection::connect_shared(server.port()).await?;
            let words = command(index);
            client.send(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
            blocked.push(client);
        }
        io::Result::Ok(())
    })?;
    let all = count as f64;
    settle(server, |server| Ok(server.info_number("clients", "blocked_clients")? == all))?;
    Ok(blocked)
}

fn block_on_lock(server: &mut Server, count: usize, key: impl Fn(usize) -> String) -> io::Result<Vec<Connection>> {
    block(server, count, |index| {
        let owner = format!("waiter:{index}");
        ["LOCK.ACQUIRE", &key(index), &owner, "PX", "600000", "BLOCK", "0"].map(str::to_owned).to_vec()
    })
}

fn block_on_list(server: &mut Server, count: usize, key: impl Fn(usize) -> String) -> io::Result<Vec<Connection>> {
    block(server, count, |index| ["BLPOP", &key(index), "0"].map(str::to_owned).to_vec())
}

/// The longest turn from just before `event` until `is_over`.
fn watch(
    server: &mut Server,
    event: impl FnOnce(&mut Server) -> io::Result<()>,
    is_over: impl FnMut(&mut Server) -> io::Result<bool>,
) -> io::Result<Held> {
    let watch = Watch::start(server)?;
    event(server)?;
    settle(server, is_over)?;
    watch.longest()
}

/// [`watch`] of one command, which does all in its own turn.
fn watch_command(server: &mut Server, command: &[&str]) -> io::Result<Held> {
    watch(server, |server| server.must(command).map(drop), |_| Ok(true))
}

/// Waits until it is over, and the turns that follow from it are too.
fn settle(server: &mut Server, mut is_over: impl FnMut(&mut Server) -> io::Result<bool>) -> io::Result<()> {
    let start = Instant::now();
    while !is_over(server)? {
        if start.elapsed() > GRACE {
            return Err(io::Error::other("it is not over after a minute"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(5));
    Ok(())
}

fn holds(server: &mut Server, key: &str, owner: &str) -> io::Result<bool> {
    Ok(matches!(server.must(&["LOCK.HELD", key, owner])?, Reply::Array(_)))
}

fn nobody_is_blocked(server: &mut Server) -> io::Result<bool> {
    Ok(server.info_number("clients", "blocked_clients")? == 0.0)
}

// Searches for a deadlock ---------------------------------------------------------------------------------------

fn semaphore_search(server: &mut Server, n: usize) -> io::Result<Held> {
    let limit = n.to_string();
    let _holders = each(server, n, |pipeline, index| {
        pipeline.push(&["SEM.ACQUIRE", "sem", &format!("holder:{index}"), "LIMIT", &limit, "PX", "600000"]);
    })?;
    let _waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["SEM.ACQUIRE", "sem", &format!("waiter:{index}"), "LIMIT", &limit]);
    })?;
    watch_command(server, &[&["SEM.ACQUIRE", "sem", "holder:0", "LIMIT", &limit], &NOTIFIED[..]].concat())
}

/// The mean of the last hundred.
fn one_queue(server: &mut Server, n: usize) -> io::Result<Held> {
    const LAST: usize = 100;
    server.must(&["LOCK.ACQUIRE", "one", "holder", "PX", "600000"])?;
    let _holders = each(server, n, |pipeline, index| hold(pipeline, &index.to_string(), &format!("owner:{index}")))?;
    let _waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["LOCK.ACQUIRE", &index.to_string(), &format!("waiter:{index}")]);
    })?;
    let join = |pipeline: &mut Pipeline, index: usize| {
        queue(pipeline, &["LOCK.ACQUIRE", "one", &format!("owner:{index}")]);
    };
    let _queue = each(server, n - LAST, join)?;
    spent(server, |server| {
        let _last = each(server, LAST, |pipeline, index| join(pipeline, n - LAST + index))?;
        Ok(LAST as f64)
    })
}

/// CPU time of the server and time of the clock, of each unit: `work` returns how many it did.
fn spent(server: &mut Server, work: impl FnOnce(&mut Server) -> io::Result<f64>) -> io::Result<Held> {
    let (before, start) = (server.cpu_us()?, Instant::now());
    let units = work(server)?;
    let us = server.cpu_us()? - before;
    Ok(Held { cpu: Some(Duration::from_secs_f64(us / 1e6 / units)), clock: start.elapsed().div_f64(units) })
}

fn upgrade_apart(server: &mut Server, n: usize) -> io::Result<Held> {
    let _others = each(server, n, |pipeline, index| hold(pipeline, &format!("own:{index}"), "other"))?;
    upgrade(server, n, |pipeline, index, reader| queue(pipeline, &["LOCK.ACQUIRE", &format!("own:{index}"), reader]))
}

fn upgrade_to_read(server: &mut Server, n: usize) -> io::Result<Held> {
    server.must(&["RWLOCK.ACQUIRE", "elsewhere", "other", "WRITE", "PX", "600000"])?;
    upgrade(server, n, |pipeline, _, reader| queue(pipeline, &["RWLOCK.ACQUIRE", "elsewhere", reader, "READ"]))
}

fn upgrade_to_write(server: &mut Server, n: usize) -> io::Result<Held> {
    let _others = each(server, n, |pipeline, index| {
        pipeline.push(&["RWLOCK.ACQUIRE", "elsewhere", &format!("other:{index}"), "READ", "PX", "600000"]);
    })?;
    upgrade(server, n, |pipeline, _, reader| queue(pipeline, &["RWLOCK.ACQUIRE", "elsewhere", reader, "WRITE"]))
}

/// An owner that is waited for asks to write what n readers hold, who wait for something else.
fn upgrade(server: &mut Server, n: usize, wait: impl Fn(&mut Pipeline, usize, &str)) -> io::Result<Held> {
    server.must(&["LOCK.ACQUIRE", "mine", "writer", "PX", "600000"])?;
    server.must(&[&["LOCK.ACQUIRE", "mine", "somebody"], &NOTIFIED[..]].concat())?;
    let _readers = each(server, n, |pipeline, index| {
        pipeline.push(&["RWLOCK.ACQUIRE", "rw", &format!("reader:{index}"), "READ", "PX", "600000"]);
    })?;
    let _waiters = each(server, n, |pipeline, index| wait(pipeline, index, &format!("reader:{index}")))?;
    watch_command(server, &[&["RWLOCK.ACQUIRE", "rw", "writer", "WRITE"], &NOTIFIED[..]].concat())
}

fn pass_same_keys(server: &mut Server, n: usize) -> io::Result<Held> {
    pass(server, n, |key, _| format!("shared:{key}"))
}

fn pass_own_keys(server: &mut Server, n: usize) -> io::Result<Held> {
    pass(server, n, |key, index| format!("own:{index}:{key}"))
}

/// An owner takes a free key out of many requests that wait for it: it passes them.
fn pass(server: &mut Server, n: usize, name: impl Fn(usize, usize) -> String) -> io::Result<Held> {
    server.must(&["LOCK.ACQUIRE", "held", "owner", "PX", "600000"])?;
    let _waiters = each(server, n, |pipeline, index| {
        let others: Vec<String> = (0..126).map(|key| name(key, index)).collect();
        let waiter = format!("waiter:{index}");
        let mut request = vec!["MLOCK.ACQUIRE", "128"];
        request.extend(others.iter().map(String::as_str));
        request.extend(["free", "held", &waiter]);
        queue(pipeline, &request);
    })?;
    watch_command(server, &["LOCK.ACQUIRE", "free", "owner", "PX", "600000"])
}

// Large admissions ----------------------------------------------------------------------------------------------

fn admit_readers(server: &mut Server, n: usize) -> io::Result<Held> {
    server.must(&["RWLOCK.ACQUIRE", "rw", "writer", "WRITE", "PX", "600000"])?;
    let _waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["RWLOCK.ACQUIRE", "rw", &format!("reader:{index}"), "READ"]);
    })?;
    let last = format!("reader:{}", n - 1);
    let release = ["RWLOCK.RELEASE", "rw", "writer", "WRITE"];
    watch(server, |server| server.must(&release).map(drop), |server| holds(server, "rw", &last))
}

fn raise_limit(server: &mut Server, n: usize) -> io::Result<Held> {
    let limit = (n + 2).to_string();
    server.must(&["SEM.ACQUIRE", "sem", "holder", "LIMIT", "1", "PX", "600000"])?;
    let _waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["SEM.ACQUIRE", "sem", &format!("waiter:{index}"), "LIMIT", "1"]);
    })?;
    let raise = [&["SEM.ACQUIRE", "sem", "newest", "LIMIT", &limit], &NOTIFIED[..]].concat();
    watch(server, |server| server.must(&raise).map(drop), |server| holds(server, "sem", "newest"))
}

fn flush_notified(server: &mut Server, n: usize) -> io::Result<Held> {
    let (_holders, _waiters) = waited_for(server, n)?;
    watch(server, |server| server.must(&["FLUSHALL"]).map(drop), |server| all_handed_over(server, n))
}

fn leases_end(server: &mut Server, n: usize) -> io::Result<Held> {
    let (_holders, _waiters) = waited_for(server, n)?;
    let Reply::Array(time) = server.must(&["TIME"])? else { return Err(io::Error::other("TIME is no array")) };
    let seconds: u64 = time.first().and_then(|seconds| seconds.text().parse().ok()).unwrap_or_default();
    // Whole seconds; those that it takes to set the deadlines must have passed by then.
    let until = ((seconds + 2) * 1000).to_string();
    let _deadlines = each(server, n, |pipeline, index| pipeline.push(&["PEXPIREAT", &index.to_string(), &until]))?;
    watch(server, |_| Ok(()), |server| all_handed_over(server, n))
}

/// As many locks, each held and waited for.
fn waited_for(server: &Server, n: usize) -> io::Result<(Connection, Connection)> {
    let holders = each(server, n, |pipeline, index| hold(pipeline, &index.to_string(), "holder"))?;
    let waiters = each(server, n, |pipeline, index| {
        queue(pipeline, &["LOCK.ACQUIRE", &index.to_string(), &format!("waiter:{index}")]);
    })?;
    Ok((holders, waiters))
}

/// Whether the first and the last of these locks are with their waiters.
fn all_handed_over(server: &mut Server, n: usize) -> io::Result<bool> {
    let last = n - 1;
    Ok(holds(server, &last.to_string(), &format!("waiter:{last}"))? && holds(server, "0", "waiter:0")?)
}

// Sessions ------------------------------------------------------------------------------------------------------

fn session(server: &Server, n: usize, lease_ms: &str) -> io::Result<Connection> {
    each(server, n, |pipeline, index| {
        pipeline.push(&["LOCK.ACQUIRE", &index.to_string(), "holder", "PX", lease_ms, "SESSION"]);
    })
}

/// [`watch`] of a connection that ends.
fn watch_end(
    server: &mut Server,
    session: Connection,
    is_over: impl FnMut(&mut Server) -> io::Result<bool>,
) -> io::Result<Held> {
    let end = |_: &mut Server| {
        drop(session);
        Ok(())
    };
    watch(server, end, is_over)
}

fn session_ends(server: &mut Server, n: usize) -> io::Result<Held> {
    let session = session(server, n, "600000")?;
    let is_over = |server: &mut Server| Ok(server.must(&["DBSIZE"])? == Reply::Int(0));
    watch_end(server, session, is_over)
}

/// CPU time in each 10 ms of a pause in which the holds should be renewed.
fn paused(server: &mut Server, n: usize) -> io::Result<Held> {
    const TIME: Duration = Duration::from_millis(300);
    let _session = session(server, n, "2100")?;
    server.must(&["CLIENT", "PAUSE", "2000", "WRITE"])?;
    // A third of the lease.
    std::thread::sleep(Duration::from_millis(900));
    spent(server, |_| {
        std::thread::sleep(TIME);
        Ok(TIME.as_secs_f64() * 100.0)
    })
}

// Clients that are blocked, and those of BLPOP ------------------------------------------------------------------

fn close(server: &mut Server, n: usize) -> io::Result<Held> {
    server.must(&["LOCK.ACQUIRE", "lock", "holder", "PX", "600000"])?;
    let clients = block_on_lock(server, n, |_| "lock".to_owned())?;
    close_all(server, clients)
}

fn close_blpop(server: &mut Server, n: usize) -> io::Result<Held> {
    let clients = block_on_list(server, n, |_| "list".to_owned())?;
    close_all(server, clients)
}

/// All of them while the server sleeps, so that it learns of all of them in one turn.
fn close_all(server: &mut Server, clients: Vec<Connection>) -> io::Result<Held> {
    let mut sleeper = Connection::connect(server.port())?;
    let watch = Watch::start(server)?;
    let start = Instant::now();
    block_on(sleeper.send(&["DEBUG", "SLEEP", &SLEEP.as_secs_f64().to_string()]))?;
    std::thread::sleep(Duration::from_millis(20));
    drop(clients);
    if start.elapsed() > SLEEP {
        return Err(io::Error::other("the clients took longer to close than the server slept"));
    }
    settle(server, nobody_is_blocked)?;
    let mut held = watch.longest()?;
    held.clock = held.clock.saturating_sub(SLEEP);
    Ok(held)
}

fn overwrite(server: &mut Server, n: usize) -> io::Result<Held> {
    server.must(&["LOCK.ACQUIRE", "lock", "holder", "PX", "600000"])?;
    let _clients = block_on_lock(server, n, |_| "lock".to_owned())?;
    watch(server, |server| server.must(&["SET", "lock", "value"]).map(drop), nobody_is_blocked)
}

/// One RPUSH that serves all of them.
fn push_one_list(server: &mut Server, n: usize) -> io::Result<Held> {
    let _clients = block_on_list(server, n, |_| "list".to_owned())?;
    let values = vec!["value"; n];
    let push = [&["RPUSH", "list"], &values[..]].concat();
    watch(server, |server| server.must(&push).map(drop), nobody_is_blocked)
}

fn flush(server: &mut Server, n: usize) -> io::Result<Held> {
    let _holders = each(server, n, |pipeline, index| hold(pipeline, &index.to_string(), "holder"))?;
    let _clients = block_on_lock(server, n, |index| index.to_string())?;
    watch(server, |server| server.must(&["FLUSHALL"]).map(drop), nobody_is_blocked)
}

fn waited_session_ends(server: &mut Server, n: usize) -> io::Result<Held> {
    let session = session(server, n, "600000")?;
    let _clients = block_on_lock(server, n, |index| index.to_string())?;
    watch_end(server, session, nobody_is_blocked)
}

/// One script that serves each at a list of its own.
fn push_many_lists(server: &mut Server, n: usize) -> io::Result<Held> {
    const PUSH: &str = "for i = 0, ARGV[1] - 1 do redis.call('RPUSH', 'list:' .. i, 'value') end";
    let _clients = block_on_list(server, n, |index| format!("list:{index}"))?;
    watch(server, |server| server.must(&["EVAL", PUSH, "0", &n.to_string()]).map(drop), nobody_is_blocked)
}
