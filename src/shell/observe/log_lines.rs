//! Lines in the server's log. At most one a second of each kind, which then tells how many were left out: what clients
//! do cannot flood the log. Names are quoted, escaped and cut; and no message is a format.

use std::cell::RefCell;
use std::fmt::{self, Display};

use command::errors::Quoted;
use lock::key::KeyRef;
use lock::value::owner::Owner;
use lock::value::time::Instant;

use crate::shell::ffi::context::{Ctx, LogLevel};
use crate::shell::ffi::main_thread::MainThread;

/// Milliseconds between two lines of one kind.
const BETWEEN_MS: u64 = 1_000;

/// What a line tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// lock.grace has begun.
    GraceBegan,
    /// It is over.
    GraceEnded,
    /// A request was refused: its waiting would never have ended.
    Deadlock,
    /// Nobody received a grant.
    Undelivered,
    /// A request was refused: too many wait already.
    MaxWaiters,
    /// LOCK.BREAK.
    Broken,
    /// The server has evicted a lock.
    Evicted,
}

/// How many kinds there are.
const KINDS: usize = LineKind::Evicted as usize + 1;

impl LineKind {
    fn level(self) -> LogLevel {
        match self {
            LineKind::GraceBegan | LineKind::GraceEnded => LogLevel::Notice,
            _ => LogLevel::Warning,
        }
    }
}

/// Of one kind: when its last line was, and what was left out since.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    last: Option<Instant>,
    left_out: u64,
}

impl Pace {
    /// How many were left out before this line; `None`: it is left out too.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.ms_since(last) < BETWEEN_MS) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

static PACES: MainThread<RefCell<[Pace; KINDS]>> = MainThread(RefCell::new([Pace { last: None, left_out: 0 }; KINDS]));

/// Writes a line, unless there was one of its kind within the last second.
pub fn write(ctx: Ctx<'_>, now: Instant, kind: LineKind, message: impl Display) {
    let Some(left_out) = PACES.0.borrow_mut()[kind as usize].admit(now) else { return };
    let rest = LeftOut(left_out);
    ctx.log(kind.level(), &format!("redis-lock: {message}{rest}"));
}

/// What stands behind a line if others were left out before it.
struct LeftOut(u64);

impl Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(f, " ({more} more of these since the last line)"),
        }
    }
}

/// An owner and its key, as a line names them.
pub struct OwnerOnKey<'a>(pub &'a Owner, pub KeyRef<'a>);

impl Display for OwnerOnKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnerOnKey(owner, key) = self;
        write!(f, "owner {} on key {} in db {}", Quoted(owner.as_bytes()), Quoted(key.name), key.db)
    }
}
