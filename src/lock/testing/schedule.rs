//! Random schedules over a few owners, keys and connections, from a seed.

use std::collections::VecDeque;

use super::contract::*;

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client sends a command. A request to acquire gets its number when it is sent.
    Send(Command),
    /// The last command is resent, as by a client that missed the reply.
    SendAgain,
    /// Time passes.
    Pass(Ms),
    /// The server's wall clock is set forward or back by this many milliseconds.
    SetClock(i64),
    /// An event that is not caused by a command of the module. For `Unblocked` the number selects a waiter.
    Happen(Event),
    /// One event-loop iteration (MULTI, EXEC): first the commands, none of which waits, then the events. A command that
    /// causes a hand-off or the reevaluation of an MLOCK is the last, because its further consequences may follow only
    /// at the end of the iteration.
    Together(Vec<Command>, Vec<Event>),
    /// A waiter disconnects in the same iteration in which this command is played.
    Deafen(usize, Command),
    /// Saves the state that the next crash restores.
    Save,
    /// The server restarts with the last saved state, and this grace period.
    Crash(Ms),
    /// From now on the replica lags.
    Lag,
    /// The replica has caught up.
    CatchUp,
    /// The replica is promoted, with this grace period.
    Failover(Ms),
}

/// The keys of a schedule with their lock types, and its owners.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    /// The names of keys.
    pub keys: &'static [(Name, Kind)],
    /// The names of owners.
    pub owners: &'static [Name],
}

/// The casts of random schedules. With fewer keys, more steps concern the same key.
pub const CASTS: [Cast; 6] = [
    Cast { keys: &[("a", Kind::Mutex), ("b", Kind::Mutex), ("c", Kind::Mutex)], owners: &["o", "p", "q", "r"] },
    Cast { keys: &[("s", Kind::Semaphore), ("t", Kind::Semaphore)], owners: &["o", "p", "q", "r"] },
    Cast { keys: &[("w", Kind::ReadWrite), ("v", Kind::ReadWrite)], owners: &["o", "p", "q", "r"] },
    Cast { keys: &[("e", Kind::Reentrant), ("a", Kind::Mutex)], owners: &["o", "p", "q"] },
    Cast {
        keys: &[("a", Kind::Mutex), ("b", Kind::Mutex), ("w", Kind::ReadWrite), ("s", Kind::Semaphore)],
        owners: &["o", "p", "q", "r"],
    },
    Cast {
        keys: &[
            ("a", Kind::Mutex),
            ("b", Kind::Mutex),
            ("c", Kind::Mutex),
            ("e", Kind::Reentrant),
            ("w", Kind::ReadWrite),
            ("s", Kind::Semaphore),
        ],
        owners: &["o", "p", "q", "r", "u"],
    },
];

/// The source of choices.
#[derive(Clone, Debug)]
pub enum Rng {
    /// SplitMix64.
    Seeded(u64),
    /// A byte for each choice, then zeros.
    Chosen(VecDeque<u8>),
}

impl Rng {
    /// A generator with the same numbers for the same seed.
    pub fn new(seed: u64) -> Rng {
        Rng::Seeded(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        let state = match self {
            Rng::Seeded(state) => state,
            Rng::Chosen(choices) => return choices.pop_front().map_or(0, u64::from),
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// One time in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }
}

/// A random schedule of `length` steps.
pub fn schedule(seed: u64, length: usize) -> (Cast, Vec<Step>) {
    let mut rng = Rng::new(seed);
    let cast = rng.pick(&CASTS);
    (cast, (0..length).map(|_| step(&mut rng, &cast)).collect())
}

/// The schedule that a fuzzer's bytes select, with at most `longest` steps.
pub fn chosen_schedule(choices: &[u8], longest: usize) -> (Cast, Vec<Step>) {
    let mut rng = Rng::Chosen(choices.to_vec().into());
    let cast = rng.pick(&CASTS);
    let mut steps = Vec::new();
    while matches!(&rng, Rng::Chosen(choices) if !choices.is_empty()) && steps.len() < longest {
        steps.push(step(&mut rng, &cast));
    }
    (cast, steps)
}

fn step(rng: &mut Rng, cast: &Cast) -> Step {
    let key = |rng: &mut Rng| rng.pick(cast.keys).0;
    match rng.below(100) {
        0..=35 => Step::Send(acquire(rng, cast)),
        36..=39 => Step::Send(adopted(rng, cast)),
        40..=53 => Step::Send(release(rng, cast)),
        54..=55 => Step::Send(break_holds(rng, cast)),
        56..=58 => together(rng, cast),
        59..=61 => Step::Send(renew(rng, cast)),
        62..=63 => Step::Send(Command::Cancel { key: key(rng), owner: rng.pick(cast.owners) }),
        64..=65 => Step::SendAgain,
        66..=73 => Step::Pass(rng.pick(&[1, 5, 20, 21, 60, 200])),
        74..=75 => Step::SetClock(rng.pick(&[-500, -90, -20, 20, 90, 500])),
        76..=77 => Step::Happen(Event::Deleted(key(rng))),
        78 => Step::Happen(Event::Overwritten(key(rng))),
        79..=81 => Step::Happen(Event::Renamed(key(rng), key(rng))),
        82..=83 => Step::Happen(Event::Restored(key(rng), key(rng))),
        84..=86 if rng.once_in(2) => {
            let key = key(rng);
            let mut expires = || Event::Expire(key, rng.pick(&[None, Some(5), Some(40), Some(500)]));
            Step::Together(Vec::new(), vec![expires(), expires()])
        }
        84..=86 => Step::Happen(Event::Expire(key(rng), rng.pick(&[None, Some(5), Some(40), Some(500)]))),
        87 => Step::Happen(Event::Unblocked(rng.number() % 16)),
        88..=90 => Step::Happen(Event::ClientGone(client(rng, cast))),
        91..=92 => Step::Happen(Event::Writes(rng.pick(&[Writes::Accepted, Writes::Accepted, Writes::Refused]))),
        93 => Step::Happen(rng.pick(&[
            Event::SlotMoved,
            Event::Flushed,
            Event::GraceSet(0),
            Event::GraceSet(90),
            Event::KeepPlaceSet(0),
            Event::KeepPlaceSet(60),
            Event::MaxWaitersPerKeySet(None),
            Event::MaxWaitersPerKeySet(Some(1)),
            Event::MaxWaitersPerKeySet(Some(2)),
        ])),
        94..=95 if rng.once_in(4) => Step::Deafen(rng.below(16), break_holds(rng, cast)),
        94..=95 => Step::Deafen(rng.below(16), release(rng, cast)),
        96 => Step::Save,
        97 if rng.once_in(2) => Step::Crash(rng.pick(&[0, 50])),
        98 => rng.pick(&[&Step::Lag, &Step::CatchUp]).clone(),
        99 if rng.once_in(2) => Step::Failover(rng.pick(&[0, 50])),
        _ => Step::Pass(2),
    }
}

/// Each owner has two connections.
fn client(rng: &mut Rng, cast: &Cast) -> u64 {
    rng.below(2 * cast.owners.len()) as u64
}

/// Mostly keys of the key's own lock type, and sometimes multiple mutexes.
fn keys(rng: &mut Rng, cast: &Cast) -> (Vec<Name>, Kind) {
    let (key, kind) = rng.pick(cast.keys);
    let kind = if rng.once_in(40) { rng.pick(cast.keys).1 } else { kind };
    let mut keys = vec![key];
    if kind == Kind::Mutex && rng.once_in(3) {
        let others = cast.keys.iter().filter(|(other, kind)| *other != key && *kind == Kind::Mutex);
        keys.extend(others.map(|(other, _)| *other).filter(|_| !rng.once_in(3)));
    }
    (keys, kind)
}

fn holds(rng: &mut Rng) -> Holds {
    match rng.below(6) {
        0 => Holds::Exactly(1),
        1 => Holds::Exactly(2),
        2 => Holds::By(2),
        _ => Holds::By(1),
    }
}

fn claim(rng: &mut Rng, kind: Kind) -> Claim {
    match kind {
        Kind::Mutex => Claim::Mutex,
        Kind::Reentrant => Claim::Reentrant(holds(rng)),
        Kind::ReadWrite if rng.once_in(2) => Claim::Write(holds(rng)),
        Kind::ReadWrite => Claim::Read(holds(rng)),
        Kind::Semaphore if rng.once_in(3) => Claim::Slot(rng.pick(&[1, 2, 3, 3])),
        Kind::Semaphore => Claim::Permits(rng.pick(&[1, 2, 3, 3]), holds(rng)),
    }
}

fn acquire(rng: &mut Rng, cast: &Cast) -> Command {
    let (keys, kind) = keys(rng, cast);
    let who = rng.below(cast.owners.len());
    let session = rng.once_in(6);
    let lease = if !session && rng.once_in(8) { None } else { Some(rng.pick(&[3, 30, 100, 400])) };
    let claim = claim(rng, kind);
    if claim == Claim::Mutex && keys.len() == 1 && rng.once_in(3) {
        let client = (2 * who + rng.below(2)) as u64;
        return set_nx(rng, keys, cast.owners[who], client);
    }
    let block = (!rng.once_in(5)).then(|| rng.pick(&[0, 0, 10, 50, 300]));
    let coalesce = block.is_some() && keys.len() == 1 && claim == Claim::Mutex && rng.once_in(2);
    Command::Acquire(Acquire {
        number: 0,
        client: (2 * who + rng.below(2)) as u64,
        keys,
        owner: cast.owners[who],
        claim,
        lease,
        block,
        session,
        coalesce,
        notify: rng.once_in(3),
    })
}

/// `SET key owner NX` with some `lock.adopt-wait`. It waits only if it has a lease, and at most until the end of it.
fn set_nx(rng: &mut Rng, keys: Vec<Name>, owner: Name, client: u64) -> Command {
    let lease = (!rng.once_in(6)).then(|| rng.pick(&[3, 30, 100, 400]));
    let wait = lease.filter(|_| !rng.once_in(4)).map(|lease| (lease, rng.pick(&[10, 50, 300])));
    let is_absolute = lease.is_some() && rng.once_in(3);
    let claim = Claim::Adopted { is_absolute };
    let block = wait.map(|(lease, ms)| if is_absolute { ms.min(lease) } else { ms });
    let (number, session, coalesce, notify) = (0, false, false, false);
    Command::Acquire(Acquire { number, client, keys, owner, claim, lease, block, session, coalesce, notify })
}

/// Another command on a lock of `lock.adopt`.
fn adopted(rng: &mut Rng, cast: &Cast) -> Command {
    let (keys, kind) = keys(rng, cast);
    let who = rng.below(cast.owners.len());
    let client = (2 * who + rng.below(2)) as u64;
    if kind == Kind::Reentrant {
        let change =
            rng.pick(&[Change::By(1), Change::By(2), Change::By(-1), Change::By(-2), Change::To(1), Change::To(0)]);
        return Command::Count { client, key: keys[0], owner: cast.owners[who], change };
    }
    let owner = |rng: &mut Rng| if rng.once_in(3) { rng.pick(cast.owners) } else { cast.owners[who] };
    let pairs: Vec<_> = keys.into_iter().map(|key| (key, owner(rng))).collect();
    // MSET has no lease.
    let lease =
        if pairs.len() > 1 { Some(None) } else { rng.pick(&[None, Some(None), Some(Some(20)), Some(Some(300))]) };
    Command::TakeOver { client, pairs, lease }
}

fn together(rng: &mut Rng, cast: &Cast) -> Step {
    let command = |rng: &mut Rng| match rng.below(8) {
        7 => adopted(rng, cast),
        0..=2 => match acquire(rng, cast) {
            Command::Acquire(asked) => {
                Command::Acquire(Acquire { block: None, session: false, coalesce: false, ..asked })
            }
            other => other,
        },
        3 => renew(rng, cast),
        4 => break_holds(rng, cast),
        _ => release(rng, cast),
    };
    // What a hand-off causes at other keys may follow only at the end of the iteration, so its order relative to an
    // event is open. That is why commands and events are not mixed.
    if rng.once_in(2) {
        return Step::Together((0..2 + rng.below(3)).map(|_| command(rng)).collect(), Vec::new());
    }
    let (key, other) = (rng.pick(cast.keys).0, rng.pick(cast.keys).0);
    let change = match rng.below(4) {
        0 => Some(Event::Overwritten(key)),
        1 if key != other => Some(Event::Renamed(key, other)),
        2 => Some(Event::Expire(key, rng.pick(&[None, Some(5), Some(40), Some(500)]))),
        _ => None,
    };
    // At most one key changes its type, because the contract leaves open which of two errors a waiter for both keys
    // gets.
    let mut events = Vec::new();
    events.extend(rng.once_in(4).then(|| Event::Deleted(rng.pick(cast.keys).0)));
    events.extend(change);
    // The contract also leaves open whether the LIMIT of a semaphore counts if it is stored and removed in one
    // iteration.
    if !matches!(change, Some(Event::Renamed(..))) {
        events.extend(rng.once_in(4).then(|| Event::Deleted(rng.pick(cast.keys).0)));
    }
    Step::Together(Vec::new(), events)
}

fn release(rng: &mut Rng, cast: &Cast) -> Command {
    let (keys, kind) = keys(rng, cast);
    let claim = match claim(rng, kind) {
        Claim::Reentrant(_) if rng.once_in(3) => Claim::Reentrant(Holds::Exactly(0)),
        Claim::Read(_) if rng.once_in(3) => Claim::Read(Holds::Exactly(0)),
        Claim::Write(_) if rng.once_in(3) => Claim::Write(Holds::Exactly(0)),
        Claim::Permits(limit, _) if rng.once_in(3) => Claim::Permits(limit, Holds::Exactly(0)),
        Claim::Slot(limit) => Claim::Permits(limit, Holds::By(1)),
        claim => claim,
    };
    let failed = keys.len() == 1 && claim == Claim::Mutex && rng.once_in(3);
    Command::Release { keys, owner: rng.pick(cast.owners), claim, failed }
}

fn break_holds(rng: &mut Rng, cast: &Cast) -> Command {
    let owner = if rng.once_in(2) { None } else { Some(rng.pick(cast.owners)) };
    Command::Break { key: rng.pick(cast.keys).0, owner }
}

fn renew(rng: &mut Rng, cast: &Cast) -> Command {
    let (keys, kind) = keys(rng, cast);
    let lease = rng.pick(&[None, None, Some(None), Some(Some(20)), Some(Some(300))]);
    Command::Renew { keys, owner: rng.pick(cast.owners), kind, lease }
}
