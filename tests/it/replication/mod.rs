//! The contents of a replica and an AOF: effects with absolute deadlines, never requests.

mod effects;
mod follow;
mod promotion;
mod random;

use crate::support::families::{rows, until_ended, WAYS};
use crate::support::stored::*;
use crate::support::waiting::*;
use crate::support::{decode_all, in_sync, until, Client, Reply, Rng, Server};
use std::fs;
use std::time::{Duration, Instant};

/// A master and a replica that is connected to it.
fn pair() -> (Server, Server) {
    let master = Server::start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    (master, replica)
}

/// Whether both have the same under every one of these keys, byte by byte and to the millisecond.
#[track_caller]
fn assert_same(master: &Server, replica: &Server, keys: &[&str]) {
    in_sync(master, replica);
    let (mut ours, mut theirs) = (master.client(), replica.client());
    for key in keys {
        assert_eq!(ours.stored(key), theirs.stored(key), "{key}");
    }
    assert_eq!(ours.run("DBSIZE"), theirs.run("DBSIZE"));
}
