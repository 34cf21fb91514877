//! How long one event occupies the server, and how much it delays hand-offs of other locks: the worst known case of
//! each kind.

mod admission;
mod ends;
mod search;
mod setup;
mod several;

use std::io;
use std::thread;
use std::time::Duration;

use super::plan::Plan;
use crate::section::{Section, Verdict};
use crate::server::{within, Server};
use crate::stats::{digits, Figure};
use crate::watch::{Longest, Watch};
use ends::{each_its_own, one_for_all};
use several::{own, shared};

/// The limit for the longest event-loop iteration, in ms.
const ITERATION: f64 = 5.0;

/// The limit for a hand-off of another lock meanwhile, in ms.
const HAND_OFF: f64 = 10.0;

/// The time limit of a reading, including its preparation.
const LIMIT: Duration = Duration::from_secs(20);

/// The value of a reading that took longer.
const TOO_LONG: Longest = Longest { iteration: LIMIT, hand_off: LIMIT };

/// Prepares a server, triggers the event, and returns what it cost other clients.
type Measure = fn(&mut Server, usize) -> io::Result<Longest>;

/// The name, the sizes (the targets apply to the last), and the measurement.
type Case = (&'static str, &'static [usize], Measure);

const MANY: &[usize] = &[1000, 10_000];

/// Numbers of requests for 128 keys each.
const SEVERAL: &[usize] = &[1000];

const CASES: &[Case] = &[
    ("SEM.ACQUIRE … BLOCK by one of n holders, n waiters", MANY, search::semaphore),
    ("LOCK by the last of n owners that wait for each other", MANY, search::cycle),
    ("SEM by an owner that all n holders of the semaphore wait for", MANY, search::all_permits),
    ("RWLOCK WRITE by a waited-for owner, n readers wait for a mutex each", MANY, search::upgrade_apart),
    ("RWLOCK WRITE by a waited-for owner, n readers wait to read elsewhere", MANY, search::upgrade_to_read),
    ("RWLOCK WRITE by a waited-for owner, n readers wait to write elsewhere", MANY, search::upgrade_to_write),
    ("LOCK by a waited-for owner that waits for n others", MANY, search::one_owner),
    ("LOCK by an owner that n MLOCKs wait for, all of the same 128 keys", MANY, |s, n| several::pass(s, n, shared)),
    ("LOCK by an owner that n MLOCKs wait for, 126 keys of each its own", SEVERAL, |s, n| several::pass(s, n, own)),
    ("RELEASE of a lock with n waiters", MANY, admission::release_one_key),
    ("RELEASE of one of n locks that one owner waits for", MANY, admission::release_one_owner),
    ("RELEASE that admits n readers", MANY, admission::admit_readers),
    ("a larger LIMIT that admits n", MANY, admission::raise_limit),
    ("for comparison: FLUSHDB of n strings", MANY, ends::flush_strings),
    ("FLUSHDB with n waited-for locks", MANY, |s, n| ends::flush(s, n, each_its_own)),
    ("FLUSHDB with n locks that one owner waits for", MANY, |s, n| ends::flush(s, n, one_for_all)),
    ("for comparison: n strings expire", MANY, ends::strings_end),
    ("n waited-for leases expire", MANY, |s, n| ends::leases_end(s, n, each_its_own)),
    ("n leases expire, and one owner waits for all", MANY, |s, n| ends::leases_end(s, n, one_for_all)),
    ("n waits time out", MANY, |s, n| ends::waits_end(s, n, each_its_own)),
    ("n waits of one owner time out", MANY, |s, n| ends::waits_end(s, n, one_for_all)),
    ("a connection with n waits closes", MANY, |s, n| ends::waiters_end(s, n, each_its_own)),
    ("a connection with n waits of one owner closes", MANY, |s, n| ends::waiters_end(s, n, one_for_all)),
    ("a session with n holds ends", MANY, ends::session_ends),
    ("a session with n waited-for holds ends", MANY, |s, n| ends::waited_session_ends(s, n, each_its_own)),
    ("a session with n holds ends, and one owner waits for all", MANY, |s, n| {
        ends::waited_session_ends(s, n, one_for_all)
    }),
    ("n MLOCKs of the same 128 keys: RELEASE of the held one", SEVERAL, |s, n| several::release(s, n, shared)),
    ("n MLOCKs of the same 128 keys: FLUSHDB", SEVERAL, |s, n| several::flush(s, n, shared)),
    ("n MLOCKs of the same 128 keys: LOCK.CANCEL of the first", SEVERAL, |s, n| several::cancel(s, n, shared)),
    ("n MLOCKs of the same 128 keys: one more is queued", SEVERAL, |s, n| several::queue_one_more(s, n, shared)),
    ("n MLOCKs of the same 128 keys: their connection closes", SEVERAL, |s, n| several::end(s, n, shared)),
    ("n MLOCKs of 126 own keys: RELEASE of the held one", SEVERAL, |s, n| several::release(s, n, own)),
    ("n MLOCKs of 126 own keys: FLUSHDB", SEVERAL, |s, n| several::flush(s, n, own)),
    ("n MLOCKs of 126 own keys: LOCK.CANCEL of the first", SEVERAL, |s, n| several::cancel(s, n, own)),
    ("n MLOCKs of 126 own keys: one more is queued", SEVERAL, |s, n| several::queue_one_more(s, n, own)),
    ("n MLOCKs of 126 own keys: their connection closes", SEVERAL, |s, n| several::end(s, n, own)),
];

pub fn longest(plan: &Plan) -> io::Result<Section> {
    let mut section = Section::new(
        "Long event-loop iterations",
        "From just before the event until everything has settled, one connection sends PING continuously, and two \
         clients hand another lock to each other: the holder sends RELEASE and its next request, the other one reads \
         the grant. The longest iteration is the most CPU time that the server spent between two PINGs. The longest \
         hand-off is the time from the RELEASE to the grant by the clock, so it includes other work of the machine. \
         Each reading uses a new server; at the largest n there are three. Requests wait with NOTIFY on one \
         connection, each with its own owner unless the row says that one owner waits. All leases and waits expire \
         within a millisecond or two. After waits time out, the measurement continues until the reserved positions \
         have expired.",
        &["what", "n", "longest iteration, CPU ms", "longest hand-off, ms"],
    );
    if plan.module.is_none() {
        section.missing(&["LOCK"]);
        return Ok(section);
    }
    let idle = idle(plan)?;
    section.notes.push(format!(
        "In a second without an event, the longest iteration took {} ms and the longest hand-off {} ms.",
        digits(ms(idle.iteration)),
        digits(ms(idle.hand_off))
    ));
    let mut worst: Option<Figure> = None;
    for case in CASES {
        let hand_off = add_rows(&mut section, plan, case)?;
        worst = worst.filter(|worst| worst.median >= hand_off.median).or(Some(hand_off));
    }
    let what = "the longest hand-off of another lock during any of these";
    section.verdicts.push(Verdict::at_most(what, HAND_OFF, worst).unit(" ms"));
    Ok(section)
}

fn idle(plan: &Plan) -> io::Result<Longest> {
    let server = start(plan)?;
    let watch = Watch::start(&server)?;
    thread::sleep(Duration::from_secs(1));
    watch.longest()
}

/// Adds a row for each size, with the longest hand-off for the largest.
fn add_rows(section: &mut Section, plan: &Plan, (name, sizes, measure): &Case) -> io::Result<Figure> {
    let mut hand_off = None;
    // A quick run measures only the size that has a target.
    let first = plan.scale.pick(0, sizes.len() - 1);
    for (index, size) in sizes.iter().enumerate().skip(first) {
        let is_largest = index + 1 == sizes.len();
        let rounds = if is_largest { plan.scale.pick(3, 1) } else { 1 };
        let (mut iterations, mut hand_offs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let longest = within(LIMIT, &mut start(plan)?, |server| measure(server, *size))
                .map_err(|error| io::Error::other(format!("{name}, n = {size}: {error}")))?
                .unwrap_or(TOO_LONG);
            iterations.push(ms(longest.iteration));
            hand_offs.push(ms(longest.hand_off));
        }
        let (iteration, longest) = (Figure::of(iterations), Figure::of(hand_offs));
        section.row([name.to_string(), size.to_string(), shown(iteration), shown(longest)]);
        if is_largest {
            if !name.starts_with("for comparison") {
                section
                    .verdicts
                    .push(Verdict::at_most(&format!("{name}, n = {size}"), ITERATION, Some(iteration)).unit(" ms"));
            }
            hand_off = Some(longest);
        }
    }
    Ok(hand_off.expect("every case has a size"))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
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
