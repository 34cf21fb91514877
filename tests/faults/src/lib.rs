//! Real faults on real servers. Clients live through them and record what they asked and what they were told
//! ([`History`]); judges, pure functions over that record, say which promise was broken; each scenario reports a
//! [`Row`]. The scenarios are tests in `tests/faults`.
//!
//! Nothing in here asks the server what it believes while a promise is judged: clients' records only.

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
pub mod sentinels;
mod stop;
pub mod versions;
mod workers;

pub use caller::{Caller, Route, Wait};
pub use cluster::{Cluster, Point, Takeover};
pub use guarded::Guarded;
pub use history::{Action, History, Look, Operation, Outcome, Recorder, ServerTime};
pub use lock::{companion, Kind, Lock, Mode};
pub use observer::Observer;
pub use report::{seconds, Row};
pub use routes::Switch;
pub use stop::Stopped;
pub use workers::{Plan, Workers};
