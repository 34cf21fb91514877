//! The shape of every reply, in terms that RESP2 and RESP3 share. An outcome is written here, not decided.

mod grant;
mod help;
mod inspect;
mod list;
mod log;
mod number;
#[cfg(test)]
mod recorder;
mod release;
mod reply_writer;

pub use grant::{grant, not_granted, queued, wait_outcome};
pub use help::help;
pub use inspect::{held, info, waiters, HeldInfo, HolderInfo, LockInfo, WaiterInfo};
pub use list::{scanned, top, FirstHolder, ScannedLock, TopLock};
pub use log::{log, log_len, LogEntry, LogEvent};
pub use release::{broken, cancelled, released, released_keys, renewed};
pub use reply_writer::ReplyWriter;
