//! The ways in which a lock ends. Each one wakes the next waiter: it is granted the lock once, immediately, and
//! replicated after the cause, or it gets an error that says why that is impossible.

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
