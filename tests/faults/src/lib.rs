//! Real faults on real servers. Clients run through them and record their requests and replies ([`History`]); judges,
//! which are pure functions over that record, find broken promises; each scenario reports a [`Row`]. The scenarios are
//! tests in `tests/faults`.
//!
//! Promises are judged only by the clients' records, never by the server's own view.

mod caller;
mod cluster;
mod guarded;
mod history;
pub mod judge;
mod lock;
pub mod network;
mod observer;
pub mod proxy;
mod report;
mod routes;
pub mod seen;
pub mod sentinels;
mod stop;
pub mod versions;
mod workers;

pub use caller::{Caller, Route, Wait};
pub use cluster::{Cluster, Point, Takeover};
pub use guarded::Guarded;
pub use history::{Action, History, Look, Operation, Outcome, Recorder, ServerTime};
pub use lock::{companion, Kind, Lock, Mode, ADOPT};
pub use observer::Observer;
pub use report::{seconds, Row};
pub use routes::Switch;
pub use stop::Stopped;
pub use workers::{Plan, Workers};
