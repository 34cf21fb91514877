//! A key that becomes something else, or another lock: by overwriting, RESTORE, RENAME, MOVE and SWAPDB.

use super::*;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// `end` turns `k` into something that is no mutex; both waiters must be told `error`, and nobody is granted it.
#[track_caller]
fn assert_tells_all_waiters(error: &str, end: impl FnOnce(&mut Client)) {
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
fn a_key_that_becomes_a_string_tells_its_waiters_wrongtype() {
    assert_tells_all_waiters(WRONG_TYPE, |client| {
        assert_eq!(client.run("SET k v"), Reply::ok());
        assert_eq!(client.run("GET k"), Reply::bulk("v"));
    });
}

#[test]
fn rename_copy_store_commands_restore_and_swapdb_over_it_tell_them_wrongtype() {
    assert_tells_all_waiters(WRONG_TYPE, |client| {
        client.run("SET s v");
        assert_eq!(client.run("RENAME s k"), Reply::ok());
    });
    assert_tells_all_waiters(WRONG_TYPE, |client| {
        client.run("SET s v");
        assert_eq!(client.run("COPY s k REPLACE"), Reply::Int(1));
    });
    assert_tells_all_waiters(WRONG_TYPE, |client| {
        client.run("SADD s v");
        assert_eq!(client.run("SUNIONSTORE k s"), Reply::Int(1));
    });
    assert_tells_all_waiters(WRONG_TYPE, |client| {
        client.run("SET s v");
        let dump = client.run("DUMP s");
        let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"0", dump.bytes(), b"REPLACE"]);
        assert_eq!(reply, Reply::ok());
    });
    assert_tells_all_waiters(WRONG_TYPE, |client| {
        multi(client, &["DEL k", "LPUSH k v"]);
    });
    assert_tells_all_waiters(WRONG_TYPE, |client| {
        client.run("SELECT 1");
        client.run("SET k v");
        client.run("SELECT 0");
        multi(client, &["DEL k", "SWAPDB 0 1"]);
    });
}

#[test]
fn a_key_that_becomes_another_family_tells_them_wrongkind() {
    assert_tells_all_waiters("WRONGKIND ", |client| {
        client.run("RLOCK.ACQUIRE r x");
        assert_eq!(client.run("RENAME r k"), Reply::ok());
    });
    assert_tells_all_waiters("WRONGKIND ", |client| {
        client.run("RLOCK.ACQUIRE r x");
        let dump = client.run("DUMP r");
        let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"60000", dump.bytes(), b"REPLACE"]);
        assert_eq!(reply, Reply::ok());
    });
}

#[test]
fn the_overwritten_key_is_left_as_it_is() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    client.run("SET k v PX 60000");
    assert!(b.reply().is_error());
    assert_eq!(client.run("GET k"), Reply::bulk("v"));
    assert!(client.run("PTTL k").int() > 0);
    client.run("DEL k");
    assert_eq!(client.run("EXISTS k"), Reply::Int(0), "who was told is no waiter any more");
}

#[test]
fn who_waits_for_a_key_that_restore_replaces_waits_for_its_new_holder() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "other", "x");
    let [mut b] = line_up(&server, "k", ["b"]);
    let dump = client.run("DUMP other");
    let reply = client.cmd(&[b"RESTORE" as &[u8], b"k", b"60000", dump.bytes(), b"REPLACE"]);
    assert_eq!(reply, Reply::ok());
    b.assert_silent_for(A_WHILE);
    assert_eq!(holders(&mut client, "k"), ["x"]);
    assert_eq!(queue(&mut client, "k"), ["b"]);
    assert_eq!(client.run("LOCK.RELEASE k x"), Reply::Int(1));
    b.granted("b");
}

#[test]
fn a_restored_lock_that_ends_by_its_time_to_live_wakes_them_too() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "other", "x");
    let [mut b] = line_up(&server, "k", ["b"]);
    let dump = client.run("DUMP other");
    let start = Instant::now();
    client.cmd(&[b"RESTORE" as &[u8], b"k", b"150", dump.bytes(), b"REPLACE"]);
    b.granted_within("b", Duration::from_millis(150) + SOON);
    assert!(ms_since(start) >= 150, "{:?}", start.elapsed());
}

#[test]
fn who_waits_for_the_target_of_a_rename_waits_for_the_lock_that_came() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "target", "x");
    let [mut b] = line_up(&server, "k", ["b"]);
    let [mut y] = line_up(&server, "target", ["y"]);
    assert_eq!(client.run("RENAME k target"), Reply::ok());
    b.granted("b");
    y.assert_silent_for(A_WHILE);
    assert_eq!(holders(&mut client, "target"), ["a"]);
    assert_eq!(client.run("LOCK.RELEASE target a"), Reply::Int(1));
    y.granted("y");
}

#[test]
fn a_lock_that_was_renamed_ends_with_its_lease_there() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "target", "x");
    let [mut y] = line_up(&server, "target", ["y"]);
    let start = Instant::now();
    multi(&mut client, &["LOCK.ACQUIRE k a PX 150", "RENAME k target"]);
    assert_eq!(y.client.read().items()[0], Reply::bulk("y"));
    assert!(ms_since(start) >= 150, "{:?}", start.elapsed());
}

#[test]
fn a_lock_that_was_moved_ends_with_its_lease_there() {
    let server = quiet().start();
    let mut client = server.client();
    let mut in_one = server.client();
    in_one.run("SELECT 1");
    let start = Instant::now();
    multi(&mut client, &["LOCK.ACQUIRE k a PX 400", "MOVE k 1"]);
    let mut b = Waiter::ask_over(in_one, &server, "LOCK.ACQUIRE k b BLOCK 0");
    assert_eq!(b.client.read().items()[0], Reply::bulk("b"));
    assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

#[test]
fn swapdb_lets_both_sides_wait_for_what_is_now_there() {
    let server = quiet().start();
    let mut zero = server.client();
    let mut one = server.client();
    one.run("SELECT 1");
    let in_one = || {
        let mut client = server.client();
        client.run("SELECT 1");
        client
    };
    hold(&mut zero, "both", "a0");
    hold(&mut one, "both", "a1");
    hold(&mut zero, "only0", "a0");
    hold(&mut one, "only1", "a1");
    let [mut b0] = line_up(&server, "both", ["b0"]);
    let [mut c0] = line_up(&server, "only0", ["c0"]);
    let mut b1 = Waiter::park_over(in_one(), &server, "LOCK.ACQUIRE both b1 BLOCK 0");
    let mut c1 = Waiter::park_over(in_one(), &server, "LOCK.ACQUIRE only1 c1 BLOCK 0");

    assert_eq!(zero.run("SWAPDB 0 1"), Reply::ok());
    c0.granted("c0");
    c1.granted("c1");
    assert_eq!(holders(&mut zero, "only0"), ["c0"]);
    assert_eq!(holders(&mut zero, "only1"), ["a1"]);
    assert_eq!(holders(&mut one, "only0"), ["a0"]);
    assert_eq!(holders(&mut one, "only1"), ["c1"]);

    b0.assert_silent_for(A_WHILE);
    b1.assert_silent();
    assert_eq!(holders(&mut zero, "both"), ["a1"]);
    assert_eq!(queue(&mut zero, "both"), ["b0"], "the client did not change its database");
    assert_eq!(queue(&mut one, "both"), ["b1"]);
    assert_eq!(one.run("LOCK.RELEASE both a0"), Reply::Int(1));
    b1.granted("b1");
    assert_eq!(zero.run("LOCK.RELEASE both a1"), Reply::Int(1));
    b0.granted("b0");
}

#[test]
fn after_swapdb_leases_end_where_the_locks_are() {
    let server = quiet().start();
    let mut zero = server.client();
    let mut one = server.client();
    one.run("SELECT 1");
    hold(&mut one, "k", "x");
    let in_one = {
        let mut client = server.client();
        client.run("SELECT 1");
        Waiter::park_over(client, &server, "LOCK.ACQUIRE k b BLOCK 0")
    };
    let mut b = in_one;
    let start = Instant::now();
    multi(&mut zero, &["LOCK.ACQUIRE k a PX 150", "SWAPDB 0 1"]);
    b.granted_within("b", Duration::from_millis(150) + SOON);
    assert!(ms_since(start) >= 150, "{:?}", start.elapsed());
}

#[test]
fn a_flush_of_another_database_wakes_nobody() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let replies = client.pipeline(&["SELECT 1", "SET x y", "FLUSHDB", "SELECT 0"]);
    assert_eq!(replies[2], Reply::ok());
    b.assert_silent_for(A_WHILE);
    assert_eq!(holders(&mut client, "k"), ["a"]);
}

#[test]
fn a_key_that_was_removed_and_made_again_in_one_step_goes_by_what_it_is_now() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "other", "x");
    let [mut b] = line_up(&server, "k", ["b"]);
    multi(&mut client, &["DEL k", "RENAME other k"]);
    b.assert_silent_for(A_WHILE);
    assert_eq!(holders(&mut client, "k"), ["x"]);
    multi(&mut client, &["SET k v", "DEL k"]);
    // The queue is asked once, when the step is over, and finds the key free.
    b.granted("b");
}

#[test]
fn who_waits_for_another_key_first_is_told_what_this_one_has_become() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "a", "y");
    hold(&mut client, "k", "x");
    let mut several = Waiter::park(&server, "MLOCK.ACQUIRE 2 a k m BLOCK 0");
    let [mut behind] = line_up(&server, "k", ["d"]);
    client.run("SET k v");
    for waiter in [&mut several, &mut behind] {
        assert!(waiter.reply().error().starts_with(WRONG_TYPE));
    }
}

#[test]
fn who_waits_for_a_free_key_and_others_is_told_what_it_becomes() {
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
        let mut several = Waiter::park(&server, "MLOCK.ACQUIRE 2 a b m BLOCK 0");
        match ends {
            ["RESTORE a 0 DUMP"] => _ = client.cmd(&[&b"RESTORE"[..], b"a", b"0", dump.bytes()]),
            _ => _ = client.pipeline(ends),
        }
        assert!(several.reply().error().starts_with(WRONG_TYPE), "{ends:?}");
    }
}

#[test]
fn a_lock_that_is_renamed_onto_a_free_key_ends_there_with_its_lease() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "b", "y");
    let mut several = Waiter::park(&server, &format!("MLOCK.ACQUIRE 2 a b m {LONG} BLOCK 0"));
    let start = Instant::now();
    multi(&mut client, &["LOCK.ACQUIRE k z PX 300", "RENAME k a", "LOCK.RELEASE b y"]);
    several.granted_within("m", Duration::from_millis(300) + SOON);
    assert!(ms_since(start) >= 300, "{:?}", start.elapsed());
}

#[test]
fn a_lock_that_is_renamed_to_where_its_owner_waits_is_a_grant() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "x");
    let [mut y] = line_up(&server, "k", ["y"]);
    let [mut z] = line_up(&server, "k", ["z"]);
    hold(&mut client, "a", "z");
    assert_eq!(client.run("RENAME a k"), Reply::ok());
    z.granted("z");
    y.assert_silent();
    hold(&mut client, "b", "x");
    let [_x] = line_up(&server, "k", ["x"]);
    assert!(client.run("LOCK.ACQUIRE b z BLOCK 0").error().starts_with("DEADLOCK "));
}

#[test]
fn a_lock_that_is_renamed_while_its_owner_waits_elsewhere_is_part_of_deadlocks_there() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("k", "y"), ("a", "z"), ("b", "x")] {
        hold(&mut client, key, owner);
    }
    let [_w] = line_up(&server, "k", ["w"]);
    let [mut z] = line_up(&server, "b", ["z"]);
    assert_eq!(client.run("RENAME a k"), Reply::ok());
    assert!(client.run("LOCK.ACQUIRE k x BLOCK 0").error().starts_with("DEADLOCK "));
    client.run("LOCK.RELEASE b x");
    z.granted("z");
}

#[test]
fn a_semaphore_that_is_restored_onto_a_key_brings_its_limit() {
    let server = quiet().start();
    let mut client = server.client();
    client.run(&format!("SEM.ACQUIRE other o LIMIT 5 {LONG}"));
    let dump = client.run("DUMP other");
    client.run(&format!("SEM.ACQUIRE k a LIMIT 1 {LONG}"));
    let mut b = Waiter::park(&server, &format!("SEM.ACQUIRE k b LIMIT 1 {LONG} BLOCK 0"));
    let restored = client.cmd(&[&b"RESTORE"[..], b"k", b"60000", dump.bytes(), b"REPLACE"]);
    assert_eq!(restored, Reply::ok());
    b.granted("b");
    assert!(client.run(&format!("SEM.ACQUIRE k c LIMIT 5 {LONG} BLOCK 0")).fence() > 0);
}

#[test]
fn a_semaphore_that_is_renamed_onto_a_key_brings_its_limit() {
    let server = quiet().start();
    let mut client = server.client();
    client.run(&format!("SEM.ACQUIRE k a LIMIT 1 {LONG}"));
    let mut b = Waiter::park(&server, &format!("SEM.ACQUIRE k b LIMIT 1 {LONG} BLOCK 0"));
    client.run(&format!("SEM.ACQUIRE other o LIMIT 5 {LONG}"));
    assert_eq!(client.run("RENAME other k"), Reply::ok());
    b.granted("b");
    assert!(client.run(&format!("SEM.ACQUIRE k c LIMIT 5 {LONG} BLOCK 0")).fence() > 0);
}
