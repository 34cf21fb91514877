//! The words of the contract: commands, outcomes, and what else can happen to locks. Nothing here knows the rules, so
//! that the same steps can be sent to a server.

/// Milliseconds: a point of one of the clocks, or a length of time.
pub type Ms = u64;

/// The two clocks of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The one that can be set: milliseconds since the epoch. Leases go by it, as every time to live does.
    pub wall: Ms,
    /// The one that nobody sets: milliseconds since any start. BLOCK, kept places, renewals of sessions and the grace
    /// go by it.
    pub monotonic: Ms,
}

impl Clocks {
    /// Both, so much later.
    pub fn plus(self, ms: Ms) -> Clocks {
        Clocks { wall: self.wall + ms, monotonic: self.monotonic + ms }
    }
}

/// The name of a key or of an owner.
pub type Word = &'static str;

/// The family of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `LOCK.` and `MLOCK.`
    Mutex,
    /// `RLOCK.`
    Reentrant,
    /// `RWLOCK.`
    ReadWrite,
    /// `SEM.`
    Semaphore,
}

/// How many holds or permits a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holds {
    /// So many more, or fewer: no `HOLDS` was given.
    By(u32),
    /// `HOLDS n`: exactly so many afterwards.
    Exactly(u32),
}

/// What is asked of a lock, or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The mutex.
    Mutex,
    /// A reentrant mutex.
    Reentrant(Holds),
    /// `READ`.
    Read(Holds),
    /// `WRITE`.
    Write(Holds),
    /// Permits of a semaphore under a `LIMIT`, which a release does not name.
    Permits(u32, Holds),
    /// One permit of a semaphore under a `LIMIT`, with `SLOT`.
    Slot(u32),
}

impl Claim {
    /// The family that it belongs to.
    pub fn kind(self) -> Kind {
        match self {
            Claim::Mutex => Kind::Mutex,
            Claim::Reentrant(_) => Kind::Reentrant,
            Claim::Read(_) | Claim::Write(_) => Kind::ReadWrite,
            Claim::Permits(..) | Claim::Slot(_) => Kind::Semaphore,
        }
    }

    /// What it names; a mutex is held once.
    pub fn holds(self) -> Holds {
        match self {
            Claim::Mutex | Claim::Slot(_) => Holds::Exactly(1),
            Claim::Reentrant(holds) | Claim::Read(holds) | Claim::Write(holds) | Claim::Permits(_, holds) => holds,
        }
    }

    /// The same mode and number: the LIMIT may be a newer one.
    pub fn is_retry_of(self, other: Claim) -> bool {
        match (self, other) {
            (Claim::Permits(_, holds), Claim::Permits(_, before)) => holds == before,
            (Claim::Slot(_), Claim::Slot(_)) => true,
            _ => self == other,
        }
    }
}

/// A request to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The sender's number of this request; a waiter is told its end under it. Never used again.
    pub number: u64,
    /// The connection that asks.
    pub client: u64,
    /// Several only for mutexes.
    pub keys: Vec<Word>,
    /// Who shall hold.
    pub owner: Word,
    /// What it shall hold.
    pub claim: Claim,
    /// `None`: `PERSIST`.
    pub lease: Option<Ms>,
    /// `BLOCK`; 0: for ever.
    pub block: Option<Ms>,
    /// `SESSION`.
    pub session: bool,
    /// `COALESCE`, if it waits: only for one mutex.
    pub coalesce: bool,
    /// `NOTIFY`, if it waits: it is told by a message, and its connection is not blocked.
    pub notify: bool,
}

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `*.ACQUIRE`
    Acquire(Acquire),
    /// `*.RELEASE key owner`, with the claim that is given back; `MLOCK.RELEASE` for several keys.
    Release {
        /// Several only for mutexes.
        keys: Vec<Word>,
        /// Who gives back.
        owner: Word,
        /// What.
        claim: Claim,
        /// `FAILED`: only of one mutex.
        failed: bool,
    },
    /// `*.RENEW key owner [lease]`
    Renew {
        /// Several only for mutexes.
        keys: Vec<Word>,
        /// Whose leases.
        owner: Word,
        /// Of locks of this family.
        kind: Kind,
        /// `None`: of the length last given; `Some(None)`: `PERSIST`.
        lease: Option<Option<Ms>>,
    },
    /// `LOCK.BREAK key [OWNER owner]`
    Break {
        /// Which lock.
        key: Word,
        /// Whose holds; `None`: everybody's.
        owner: Option<Word>,
    },
    /// `LOCK.CANCEL key owner`
    Cancel {
        /// Where it waits.
        key: Word,
        /// Who.
        owner: Word,
    },
}

/// The number of a grant in the order of the model's grants; the fences of a server are matched to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant(pub u64);

/// The reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<F = Grant> {
    /// It holds so many now, under this fence.
    Granted(F, u32),
    /// It waits.
    Queued,
    /// nil
    NotGranted,
    /// So many holds remain; of several keys so many were released.
    Released(u32),
    /// A release of what this owner does not hold.
    NotHeld,
    /// `*.RENEW`
    Renewed(bool),
    /// `LOCK.BREAK`: so many owners lost all their holds.
    Broken(u32),
    /// `LOCK.CANCEL`
    Cancelled(bool),
    /// An error.
    Refused(Refusal),
}

/// An error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `WRONGTYPE`
    WrongType,
    /// `WRONGKIND`
    WrongKind,
    /// More permits than LIMIT, an acquire that would take away, a release that would add.
    Invalid,
    /// `DEADLOCK`
    Deadlock,
    /// `MAXWAITERS`
    MaxWaiters,
    /// `GRACE`
    Grace,
}

/// How a request that waited ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<F = Grant> {
    /// It holds so many now, under this fence.
    Granted(F, u32),
    /// `[nil, fence]`: the work was done by the hold with this fence.
    Done(F),
    /// nil
    TimedOut,
    /// `UNBLOCKED cancelled`
    Cancelled,
    /// `UNBLOCKED superseded`
    Superseded,
    /// Its turn can never come.
    Refused(Refusal),
    /// `TRYAGAIN`
    TryAgain,
    /// Its server became a replica.
    Demoted,
}

/// Whether the server accepts writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    /// It does.
    Accepted,
    /// NOREPLICAS, CLIENT PAUSE, cluster down and so on.
    Refused,
}

/// What happens without a command of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// DEL, UNLINK, eviction.
    Deleted(Word),
    /// SET: a value of another type.
    Overwritten(Word),
    /// RENAME, of a key that is there.
    Renamed(Word, Word),
    /// DUMP of the first key, then RESTORE over the second with the same time to live.
    Restored(Word, Word),
    /// FLUSHDB.
    Flushed,
    /// PEXPIRE, or PERSIST without a time.
    Expire(Word, Option<Ms>),
    /// `CLIENT UNBLOCK`, of the client of this request.
    Unblocked(u64),
    /// This connection has ended.
    ClientGone(u64),
    /// From now on.
    Writes(Writes),
    /// The slot of all keys has been moved to another node.
    SlotMoved,
    /// `CONFIG SET lock.grace`.
    GraceSet(Ms),
    /// `CONFIG SET lock.keep-place`.
    KeepPlaceSet(Ms),
    /// `CONFIG SET lock.max-waiters-per-key`; `None`: 0, no limit of its own.
    MaxWaitersPerKeySet(Option<usize>),
}
