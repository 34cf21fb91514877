//! Removals of a lock that are not covered by the transcripts of `tests/spec`: asynchronous flushes, store commands,
//! eviction.

use super::*;

/// `a` holds `k`, `b` and `c` wait. After `end` has run, `b` holds it and `c` still waits; after it has run again, for
/// `b`'s lock, `c` holds it.
#[track_caller]
fn assert_wakes_the_next(end: impl Fn(&mut Client)) {
    let server = quiet().start();
    let mut client = server.client();
    let first = hold(&mut client, "k", "a");
    let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);

    end(&mut client);
    let second = b.granted("b");
    assert!(second > first, "fences grow");
    assert_eq!(holders(&mut client, "k"), ["b"]);
    assert_eq!(queue(&mut client, "k"), ["c"]);
    c.assert_silent();

    end(&mut client);
    assert!(c.granted("c") > second);
    assert_no_waiters(&server, &["k"]);
    assert_eq!(holders(&mut client, "k"), ["c"]);
}

#[test]
fn flushdb_async_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("FLUSHDB ASYNC"), Reply::ok()));
}

#[test]
fn flushall_async_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok()));
}

#[test]
fn renamenx_wakes_the_next() {
    assert_wakes_the_next(|client| {
        client.run("DEL elsewhere");
        assert_eq!(client.run("RENAMENX k elsewhere"), Reply::Int(1));
    });
}

#[test]
fn a_store_command_with_an_empty_result_wakes_the_next() {
    assert_wakes_the_next(|client| assert_eq!(client.run("SINTERSTORE k nothing here"), Reply::Int(0)));
}

#[test]
fn restore_of_a_lock_that_has_long_expired_wakes_the_next() {
    assert_wakes_the_next(|client| {
        client.run("LOCK.ACQUIRE other x PX 60000");
        let dump = client.run("DUMP other");
        let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"1", dump.bytes(), b"REPLACE", b"ABSTTL"]);
        assert_eq!(reply, Reply::ok());
    });
}

#[test]
fn eviction_wakes_the_next() {
    let server = quiet().config("maxmemory-policy volatile-ttl").start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
    // All in one iteration, so that memory is short only until one lock is evicted.
    client.pipeline(&["CONFIG SET maxmemory 100kb", "SET x y", "CONFIG SET maxmemory 0"]);
    b.granted("b");
    assert_eq!(server.info("stats").number("evicted_keys"), 1);
    assert_eq!(holders(&mut client, "k"), ["b"]);
    c.assert_silent();
}
