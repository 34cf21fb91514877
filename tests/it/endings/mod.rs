//! The ways in which a lock ends. Each wakes the next waiter: one grant, at once, replicated after its cause, or an
//! error that says why there can be none.

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
