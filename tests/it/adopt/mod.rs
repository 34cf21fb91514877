//! Adoption: `lock.adopt` on real servers. tests/spec/adopt.txt shows each command with its replies; these tests cover
//! the server around it: files, replicas, clusters, permissions, the filter itself.

mod described;
mod disorder;
mod nodes;
mod observed;
mod permitted;
mod persistence;
mod protected;
mod random;
mod shown;
mod switching;
mod waiting;

use crate::support::{Client, Reply, Server};

/// The release that nearly every lock library for Redis uses.
pub const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// A server that adopts `lock:*`.
pub fn adopting() -> Server {
    Server::builder().config("lock.adopt lock:*").start()
}

/// Acquires as an old client does, and returns whether it was granted.
#[track_caller]
pub fn set_nx(client: &mut Client, key: &str, token: &str) -> bool {
    match client.run(&format!("SET {key} {token} NX PX 60000")) {
        Reply::Status(status) if status == "OK" => true,
        reply if is_null(&reply) => false,
        reply => panic!("SET {key} {token} NX: {reply:?}"),
    }
}

/// Whether the reply is nil as the value of a string.
pub fn is_null(reply: &Reply) -> bool {
    matches!(reply, Reply::NullBulk | Reply::Null)
}

/// Releases as an old client does, and returns whether it held the lock.
#[track_caller]
pub fn compare_and_delete(client: &mut Client, key: &str, token: &str) -> bool {
    client.cmd(&["EVAL", COMPARE_AND_DELETE, "1", key, token]).int() == 1
}

#[track_caller]
pub fn type_of(client: &mut Client, key: &str) -> String {
    client.run(&format!("TYPE {key}")).text().to_string()
}
