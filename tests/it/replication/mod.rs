//! The contents of a replica and an AOF: effects with absolute deadlines, never requests.

mod effects;
mod follow;
mod promotion;
mod random;

use crate::support::lock_types::{rows, until_ended, WAYS};
use crate::support::stored::*;
use crate::support::waiting::*;
use crate::support::{decode_all, in_sync, until, Client, Reply, Rng, Server};
use std::fs;
use std::time::{Duration, Instant};

/// A master and its connected replica.
fn pair() -> (Server, Server) {
    let master = Server::start();
    let replica = Server::builder().replica_of(&master).start();
    in_sync(&master, &replica);
    (master, replica)
}

/// Checks that both have the same under each of these keys, byte by byte and to the millisecond. Retries, because the
/// master may process an EXPIRE in a later iteration, between the two reads.
#[track_caller]
fn assert_same(master: &Server, replica: &Server, keys: &[&str]) {
    let (mut ours, mut theirs) = (master.client(), replica.client());
    for key in keys {
        let start = Instant::now();
        loop {
            in_sync(master, replica);
            let (our, their) = (ours.stored(key), theirs.stored(key));
            if our == their {
                break;
            }
            assert!(start.elapsed() < SOON, "{key}: {our:?} {their:?}");
        }
    }
    assert_eq!(ours.run("DBSIZE"), theirs.run("DBSIZE"));
}
