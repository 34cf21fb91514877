//! A key that becomes a value of another data type through store commands, COPY, MOVE, RESTORE, SWAPDB.

use super::*;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// `end` turns `k` into a value that is not a mutex; both waiters must get `error`, and neither is granted the key.
#[track_caller]
fn assert_all_waiters_get(error: &str, end: impl FnOnce(&mut Client)) {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut waiters = line_up(&server, "k", ["b", "c"]);
    end(&mut client);
    for waiter in &mut waiters {
        let reply = waiter.only_reply();
        assert!(reply.error().starts_with(error), "{reply:?}");
    }
    server.wait_blocked(0);
}

#[test]
fn waiters_get_wrongtype_after_rename_copy_store_commands_restore_and_swapdb() {
    assert_all_waiters_get(WRONG_TYPE, |client| {
        client.run("SET s v");
        assert_eq!(client.run("RENAME s k"), Reply::ok());
    });
    assert_all_waiters_get(WRONG_TYPE, |client| {
        client.run("SET s v");
        assert_eq!(client.run("COPY s k REPLACE"), Reply::Int(1));
    });
    assert_all_waiters_get(WRONG_TYPE, |client| {
        client.run("SADD s v");
        assert_eq!(client.run("SUNIONSTORE k s"), Reply::Int(1));
    });
    assert_all_waiters_get(WRONG_TYPE, |client| {
        client.run("SET s v");
        let dump = client.run("DUMP s");
        let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"0", dump.bytes(), b"REPLACE"]);
        assert_eq!(reply, Reply::ok());
    });
    assert_all_waiters_get(WRONG_TYPE, |client| {
        multi(client, &["DEL k", "LPUSH k v"]);
    });
    assert_all_waiters_get(WRONG_TYPE, |client| {
        client.run("SELECT 1");
        client.run("SET k v");
        client.run("SELECT 0");
        multi(client, &["DEL k", "SWAPDB 0 1"]);
    });
}

#[test]
fn a_waiter_for_a_free_key_and_others_learns_what_the_key_becomes() {
    for ends in [
        &["SET a v"] as &[&str],
        &["SET s v", "RENAME s a"],
        &["SELECT 1", "SET a v", "MOVE a 0"],
        &["SELECT 1", "MULTI", "SET a v", "MOVE a 0", "EXEC"],
        &["SELECT 1", "MULTI", "SET l v", "COPY l a DB 0", "EXEC"],
        &["LPUSH l v", "COPY l a"],
        &["RESTORE a 0 DUMP"],
    ] {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SET s dumped");
        let dump = client.run("DUMP s");
        hold(&mut client, "b", "y");
        let mut multi_key = Waiter::park(&server, "MLOCK.ACQUIRE 2 a b m BLOCK 0");
        match ends {
            ["RESTORE a 0 DUMP"] => _ = client.cmd(&[&b"RESTORE"[..], b"a", b"0", dump.bytes()]),
            _ => _ = client.pipeline(ends),
        }
        assert!(multi_key.reply().error().starts_with(WRONG_TYPE), "{ends:?}");
    }
}
