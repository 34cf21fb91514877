//! The shape of every reply, in terms that RESP2 and RESP3 share. An outcome is written here, not decided.
//!
//! | file       | question                                               |
//! | ---------- | ------------------------------------------------------ |
//! | `writer`   | what can a reply consist of                            |
//! | `grant`    | how is a grant told, at once or to a blocked client    |
//! | `end`      | how are a release, a renewal, a cancellation told      |
//! | `inspect`  | how are LOCK.HELD, LOCK.INFO and LOCK.WAITERS answered |
//! | `list`     | how do LOCK.SCAN and LOCK.TOP list locks               |
//! | `help`     | which lines has LOCK.HELP                              |
//! | `log`      | how is LOCK.LOG answered                               |
//! | `number`   | how is a fence, a client, a number of rows written     |
//! | `recorder` | what was written, for tests                            |

mod end;
mod grant;
mod help;
mod inspect;
mod list;
mod log;
mod number;
#[cfg(test)]
mod recorder;
mod reply_writer;

pub use end::{broken, cancelled, released, released_keys, renewed};
pub use grant::{grant, not_granted, queued, wait_outcome};
pub use help::help;
pub use inspect::{held, info, waiters, HeldInfo, HolderInfo, LockInfo, WaiterInfo};
pub use list::{scanned, top, FirstHolder, ScannedLock, TopLock};
pub use log::{log, log_len, LogEntry, LogEvent};
pub use reply_writer::ReplyWriter;
