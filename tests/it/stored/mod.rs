//! A lock is a keyspace value: it is saved, loaded, moved, measured, expired and watched like any other.

mod cost;
mod keyspace;
mod multiple_holders;
mod persistence;
mod watch;

use crate::support::lock_types::{held, left, until_ended};
use crate::support::skip::skip;
use crate::support::stored::*;
use crate::support::waiting::*;
use crate::support::{assert_just_began, in_sync, until, Client, Reply, Server};
use std::time::{Duration, Instant};
