//! The terms of the contract: commands, outcomes and events. Independent of the rules, so that the same steps can be
//! sent to a server.

/// Milliseconds: a point on one of the clocks, or a duration.
pub type Ms = u64;

/// The two clocks of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The wall clock, which can be set: milliseconds since the epoch. Leases use it, as every time to live does.
    pub wall: Ms,
    /// The monotonic clock: milliseconds since an arbitrary start. BLOCK, reserved positions, renewals of sessions and
    /// the grace period use it.
    pub monotonic: Ms,
}

impl Clocks {
    /// Both clocks, `ms` milliseconds later.
    pub fn plus(self, ms: Ms) -> Clocks {
        Clocks { wall: self.wall + ms, monotonic: self.monotonic + ms }
    }
}

/// The name of a key or of an owner.
pub type Name = &'static str;

/// The lock type.
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

/// How many holds or permits a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holds {
    /// This many more, or fewer, without `HOLDS`.
    By(u32),
    /// `HOLDS n`: exactly this many afterwards.
    Exactly(u32),
}

/// The claim of a request, or what a release returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The mutex.
    Mutex,
    /// The mutex, by `SET key owner NX` of an adopted client: a holder with the same token excludes it as well.
    Adopted {
        /// The lease is `PXAT`: it expires this long after the request, whenever it starts.
        is_absolute: bool,
    },
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
    /// The lock type that it belongs to.
    pub fn kind(self) -> Kind {
        match self {
            Claim::Mutex | Claim::Adopted { .. } => Kind::Mutex,
            Claim::Reentrant(_) => Kind::Reentrant,
            Claim::Read(_) | Claim::Write(_) => Kind::ReadWrite,
            Claim::Permits(..) | Claim::Slot(_) => Kind::Semaphore,
        }
    }

    /// How many holds it asks for; 1 for a mutex.
    pub fn holds(self) -> Holds {
        match self {
            Claim::Mutex | Claim::Adopted { .. } | Claim::Slot(_) => Holds::Exactly(1),
            Claim::Reentrant(holds) | Claim::Read(holds) | Claim::Write(holds) | Claim::Permits(_, holds) => holds,
        }
    }

    /// The same mode and number. The LIMIT may differ.
    pub fn is_retry_of(self, other: Claim) -> bool {
        match (self, other) {
            (Claim::Permits(_, holds), Claim::Permits(_, before)) => holds == before,
            (Claim::Slot(_), Claim::Slot(_)) | (Claim::Adopted { .. }, Claim::Adopted { .. }) => true,
            _ => self == other,
        }
    }
}

/// How a count in a hash is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// HINCRBY
    By(i64),
    /// HSET
    To(u32),
}

/// A request to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The sender's number of this request, under which its outcome is reported. Not reused.
    pub number: u64,
    /// The connection that sends it.
    pub client: u64,
    /// More than one only for mutexes.
    pub keys: Vec<Name>,
    /// The owner of the hold.
    pub owner: Name,
    /// The claim.
    pub claim: Claim,
    /// The lease; `None` for `PERSIST`.
    pub lease: Option<Ms>,
    /// `BLOCK`; 0 means no limit.
    pub block: Option<Ms>,
    /// `SESSION`.
    pub session: bool,
    /// `COALESCE`, if it waits. Only for one mutex.
    pub coalesce: bool,
    /// `NOTIFY`, if it waits: the outcome is sent as a message, and the connection is not blocked.
    pub notify: bool,
}

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `*.ACQUIRE`
    Acquire(Acquire),
    /// `*.RELEASE key owner`, with the claim that is released; `MLOCK.RELEASE` for multiple keys.
    Release {
        /// More than one only for mutexes.
        keys: Vec<Name>,
        /// The owner that releases.
        owner: Name,
        /// What it releases.
        claim: Claim,
        /// `FAILED`. Only for one mutex.
        failed: bool,
    },
    /// `*.RENEW key owner [lease]`
    Renew {
        /// More than one only for mutexes.
        keys: Vec<Name>,
        /// The owner of the leases.
        owner: Name,
        /// The type of the locks.
        kind: Kind,
        /// `None` keeps the current length; `Some(None)` for `PERSIST`.
        lease: Option<Option<Ms>>,
    },
    /// `LOCK.BREAK key [OWNER owner]`
    Break {
        /// The lock.
        key: Name,
        /// The owner of the holds; `None` for all owners.
        owner: Option<Name>,
    },
    /// `LOCK.CANCEL key owner`
    Cancel {
        /// The key that it waits for.
        key: Name,
        /// The owner of the request.
        owner: Name,
    },
    /// `SET key owner` without NX, or MSET: each owner holds its mutex from now on, or nothing changes.
    TakeOver {
        /// The connection.
        client: u64,
        /// Distinct keys, each with its owner.
        pairs: Vec<(Name, Name)>,
        /// The lease, or `PERSIST`; `None` for KEEPTTL.
        lease: Option<Option<Ms>>,
    },
    /// `HINCRBY key owner n` or `HSET key owner n`: sets how many times the owner holds a reentrant mutex.
    Count {
        /// The connection.
        client: u64,
        /// The lock.
        key: Name,
        /// The field.
        owner: Name,
        /// The number.
        change: Change,
    },
}

/// The number of a grant in the order of the model's grants. A server's fencing tokens are matched to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant(pub u64);

/// The reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<F = Grant> {
    /// The fencing token, and the number of holds now.
    Granted(F, u32),
    /// It waits.
    Queued,
    /// nil
    NotGranted,
    /// The number of holds left. For multiple keys: the number of keys released.
    Released(u32),
    /// A release by an owner that does not hold the lock.
    NotHeld,
    /// `*.RENEW`
    Renewed(bool),
    /// `LOCK.BREAK`: the number of owners that lost all their holds.
    Broken(u32),
    /// `LOCK.CANCEL`
    Cancelled(bool),
    /// The number of mutexes that have a new holder. The others were already held by their owners.
    TakenOver(u32),
    /// The count in a hash now and before; `None` if the key was free.
    Counted(u32, Option<u32>),
    /// The hash has another field.
    HeldByAnother,
    /// The key is free but cannot be granted now.
    NotNow,
    /// The lock is held natively by another owner.
    Protected,
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
    /// More permits than LIMIT, an acquire that would reduce a count, or a release that would increase it.
    Invalid,
    /// `DEADLOCK`
    Deadlock,
    /// `MAXWAITERS`
    MaxWaiters,
    /// `GRACE`
    Grace,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReply<F = Grant> {
    /// The fencing token, and the number of holds now.
    Granted(F, u32),
    /// `[nil, fence]`: the hold with this fencing token has done the work.
    Done(F),
    /// nil
    TimedOut,
    /// `UNBLOCKED cancelled`
    Cancelled,
    /// `UNBLOCKED superseded`
    Superseded,
    /// It can never be granted.
    Refused(Refusal),
    /// `TRYAGAIN`
    TryAgain,
    /// Its server became a replica.
    Demoted,
}

/// Whether the server accepts writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    /// It accepts writes.
    Accepted,
    /// NOREPLICAS, CLIENT PAUSE, cluster down and so on.
    Refused,
}

/// An event that is not caused by a command of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// DEL, UNLINK, eviction.
    Deleted(Name),
    /// SET: a value of another type.
    Overwritten(Name),
    /// RENAME of an existing key.
    Renamed(Name, Name),
    /// DUMP of the first key, then RESTORE over the second with the same time to live.
    Restored(Name, Name),
    /// FLUSHDB.
    Flushed,
    /// PEXPIRE, or PERSIST for `None`.
    Expire(Name, Option<Ms>),
    /// `CLIENT UNBLOCK`, of the client of this request.
    Unblocked(u64),
    /// This connection has ended.
    ClientGone(u64),
    /// From now on the server accepts or refuses writes.
    Writes(Writes),
    /// The slot of all keys has been moved to another node.
    SlotMoved,
    /// `CONFIG SET lock.grace`.
    GraceSet(Ms),
    /// `CONFIG SET lock.keep-place`.
    KeepPlaceSet(Ms),
    /// `CONFIG SET lock.max-waiters-per-key`; `None` for 0, which means no limit per key.
    MaxWaitersPerKeySet(Option<usize>),
}
