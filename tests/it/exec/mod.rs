//! LOCK.EXEC: a command runs only while its token holds the lock.

mod compose;
mod effects;
mod fuzz;
mod holding;
mod keys;
mod noticed;
mod permissions;
mod refused;
mod replies;
mod rules;

use crate::support::{Client, Reply};

/// The reply if the token does not hold the lock.
const NOT_HELD: &str = "NOTHELD this token does not hold the lock, so the command did not run: acquire the lock again";

#[track_caller]
fn assert_not_held(reply: &Reply) {
    assert_eq!(*reply, Reply::Error(NOT_HELD.into()));
}

/// Checks that the client's connection is usable and in step with its replies.
#[track_caller]
fn assert_in_step(client: &mut Client) {
    assert_eq!(client.run("PING"), Reply::Status("PONG".into()));
}
