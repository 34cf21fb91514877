//! Lines in the server's log. At most one a second of each kind, with the number of lines left out: clients cannot
//! flood the log. Names are quoted, escaped and cut; and no message is a format.

use std::fmt::{self, Display};

use command::errors::Quoted;
use lock::key::KeyRef;
use lock::value::owner::Owner;
use lock::value::time::Instant;

use crate::shell::ffi::context::{Ctx, LogLevel};
use crate::shell::main_state::{MAIN, PACED_LINES};

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// lock.grace has begun.
    GraceBegan,
    /// It is over.
    GraceEnded,
    /// A request was refused: its waiting would never have ended.
    Deadlock,
    /// A grant that no client received.
    Undelivered,
    /// A request was refused: too many wait already.
    MaxWaiters,
    /// LOCK.BREAK.
    Broken,
    /// The server has evicted a lock.
    Evicted,
}

const _: () = assert!(PACED_LINES == LineKind::Evicted as usize + 1);

impl LineKind {
    fn level(self) -> LogLevel {
        match self {
            LineKind::GraceBegan | LineKind::GraceEnded => LogLevel::Notice,
            _ => LogLevel::Warning,
        }
    }
}

/// Writes a line, unless there was one of its kind within the last second.
pub fn write(ctx: Ctx<'_>, now: Instant, kind: LineKind, message: impl Display) {
    let Some(left_out) = MAIN.figures.lines.borrow_mut()[kind as usize].admit(now) else { return };
    let rest = LeftOut(left_out);
    ctx.log(kind.level(), &format!("redis-lock: {message}{rest}"));
}

/// The end of a line if others were left out before it.
struct LeftOut(u64);

impl Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(f, " ({more} more of these since the last line)"),
        }
    }
}

/// An owner and its key in a line.
pub struct OwnerOnKey<'a>(pub &'a Owner, pub KeyRef<'a>);

impl Display for OwnerOnKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnerOnKey(owner, key) = self;
        write!(f, "owner {} on key {} in db {}", Quoted(owner.as_bytes()), Quoted(key.name), key.db)
    }
}
