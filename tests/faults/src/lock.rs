//! The locks that clients contend for, and the commands for each way to hold one.

/// A key, and the type of its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub key: String,
    pub kind: Kind,
}

/// A lock type, or a way to use one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    Reentrant,
    ReadWrite,
    Semaphore {
        limit: usize,
    },
    /// Two mutexes at once: its key and the [`companion`] of it.
    Pair,
    /// A mutex for native clients and clients of other lock libraries: a key of [`ADOPT`].
    Adopted,
}

/// A way to hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Mutex,
    Reentrant,
    Read,
    Write,
    /// One of `limit` permits.
    Permit {
        limit: usize,
    },
    /// Both mutexes of a [`Kind::Pair`].
    Both,
    /// The mutex, with SET, GET and DEL.
    Adopted,
}

/// The setting of servers with a lock of [`Kind::Adopted`]. In a cluster such a key begins with a hash tag.
pub const ADOPT: &str = "lock.adopt adopted*,{*}adopted*";

/// `SET … NX PX`, which also succeeds if the token already holds it, as after a lost reply; and the fencing token. A
/// replica must reject a script that may write before it has read anything, because what it reads may be outdated.
const SET: &str = "#!lua\n\
                   local owner = redis.call('GET', KEYS[1]) \
                   if owner == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[3]) \
                   elseif not redis.call('SET', KEYS[1], ARGV[1], 'NX', ARGV[2], ARGV[3]) then return false end \
                   return {ARGV[1], redis.call('LOCK.HELD', KEYS[1], ARGV[1])[1]}";

const COMPARE_AND_EXPIRE: &str = "#!lua\n\
                                  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
                                  return redis.call('PEXPIRE', KEYS[1], ARGV[3])";

const COMPARE_AND_DELETE: &str = "#!lua\n\
                                  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
                                  return redis.call('DEL', KEYS[1])";

impl Lock {
    pub fn new(key: impl Into<String>, kind: Kind) -> Lock {
        Lock { key: key.into(), kind }
    }

    /// The key of the register that only holders write. It is in the lock's slot.
    pub fn register(&self) -> String {
        if self.key.contains('{') {
            format!("register:{}", self.key)
        } else {
            format!("register:{{{}}}", self.key)
        }
    }
}

impl Kind {
    /// All ways to hold a lock of this type.
    pub fn modes(self) -> Vec<Mode> {
        match self {
            Kind::Mutex => vec![Mode::Mutex],
            Kind::Reentrant => vec![Mode::Reentrant],
            Kind::ReadWrite => vec![Mode::Read, Mode::Write],
            Kind::Semaphore { limit } => vec![Mode::Permit { limit }],
            Kind::Pair => vec![Mode::Both],
            Kind::Adopted => vec![Mode::Mutex, Mode::Adopted],
        }
    }
}

impl Mode {
    /// Whether a hold of the lock excludes all others, in any mode.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Mode::Mutex | Mode::Reentrant | Mode::Write | Mode::Both | Mode::Adopted)
    }

    /// The beginning of an acquire, which is safe to send again even if the last reply was lost.
    pub fn acquire(self, key: &str, owner: &str) -> Vec<String> {
        match self {
            Mode::Mutex => words(&["LOCK.ACQUIRE", key, owner]),
            Mode::Reentrant => words(&["RLOCK.ACQUIRE", key, owner, "HOLDS", "1"]),
            Mode::Read => words(&["RWLOCK.ACQUIRE", key, owner, "READ", "HOLDS", "1"]),
            Mode::Write => words(&["RWLOCK.ACQUIRE", key, owner, "WRITE", "HOLDS", "1"]),
            Mode::Permit { limit } => words(&["SEM.ACQUIRE", key, owner, "LIMIT", &limit.to_string(), "HOLDS", "1"]),
            Mode::Both => words(&["MLOCK.ACQUIRE", "2", key, &companion(key), owner]),
            Mode::Adopted => words(&["EVAL", SET, "1", key, owner]),
        }
    }

    pub fn renew(self, key: &str, owner: &str) -> Vec<String> {
        let command = format!("{}.RENEW", self.prefix());
        match self {
            Mode::Both => words(&[&command, "2", key, &companion(key), owner]),
            Mode::Adopted => words(&["EVAL", COMPARE_AND_EXPIRE, "1", key, owner]),
            _ => words(&[&command, key, owner]),
        }
    }

    /// Releases everything that this owner holds in this mode.
    pub fn release(self, key: &str, owner: &str) -> Vec<String> {
        let command = format!("{}.RELEASE", self.prefix());
        match self {
            Mode::Mutex => words(&[&command, key, owner]),
            Mode::Reentrant | Mode::Permit { .. } => words(&[&command, key, owner, "HOLDS", "0"]),
            Mode::Read => words(&[&command, key, owner, "READ", "HOLDS", "0"]),
            Mode::Write => words(&[&command, key, owner, "WRITE", "HOLDS", "0"]),
            Mode::Both => words(&[&command, "2", key, &companion(key), owner]),
            Mode::Adopted => words(&["EVAL", COMPARE_AND_DELETE, "1", key, owner]),
        }
    }

    /// The reply of a release that freed the lock.
    pub fn released(self) -> i64 {
        match self {
            Mode::Mutex | Mode::Adopted => 1,
            Mode::Both => 2,
            Mode::Reentrant | Mode::Read | Mode::Write | Mode::Permit { .. } => 0,
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Mode::Mutex | Mode::Adopted => "LOCK",
            Mode::Reentrant => "RLOCK",
            Mode::Read | Mode::Write => "RWLOCK",
            Mode::Permit { .. } => "SEM",
            Mode::Both => "MLOCK",
        }
    }
}

/// The second key of a [`Kind::Pair`]. It may also be used as a separate lock.
pub fn companion(key: &str) -> String {
    format!("{key}:too")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}
