//! The ways in which a lock ends, and that each one wakes whoever is next: one grant, at once, replicated after what
//! caused it, or the error that says why there can be none.

mod by_others;
mod lease;
mod many;
mod removed;
mod replaced;
mod replication;
mod same_moment;

use crate::support::waiting::*;
use crate::support::{in_sync, until, Client, Reply, Server, LIMIT};
use std::time::{Duration, Instant};
