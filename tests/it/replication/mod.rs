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

/// Both have the same under every one of these keys, byte by byte and to the millisecond, or soon will: what the master
/// makes of an EXPIRE it decides in a later turn, which may come between the two looks.
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
