//! The queue of a mutex: the order of those who wait, their leases and times to wait, retries, kept places,
//! lock.max-waiters and LOCK.WAITERS. What every family promises alike is in families.rs.

use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Server, LIMIT};
use std::time::{Duration, Instant};

#[test]
fn a_waiter_of_a_reentrant_lock_gets_it_when_the_last_hold_is_given_back() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("RLOCK.ACQUIRE k a HOLDS 2");
    let mut b = Waiter::park(&server, "RLOCK.ACQUIRE k b HOLDS 3 BLOCK 0");

    assert_eq!(client.run("RLOCK.RELEASE k a"), Reply::Int(1));
    assert_eq!(queue(&mut client, "k"), ["b"]);
    b.assert_silent();
    assert_eq!(client.run("RLOCK.RELEASE k a"), Reply::Int(0));
    let grant = b.reply();
    assert_eq!(grant.items()[0], Reply::bulk("b"));
    assert_eq!(grant.items()[2], Reply::Int(3));
    assert_eq!(client.run("LOCK.HELD k b").items()[1], Reply::Int(3));
}

#[test]
fn who_holds_reenters_while_others_wait() {
    let server = quiet().start();
    let mut client = server.client();
    let fence = client.run("RLOCK.ACQUIRE k a PX 60000").fence();
    let mut b = Waiter::park(&server, "RLOCK.ACQUIRE k b BLOCK 0");
    let again = client.run("RLOCK.ACQUIRE k a PX 60000 BLOCK 1000");
    assert_eq!((again.fence(), again.items()[2].int()), (fence, 2));
    b.assert_silent();
}

#[test]
fn who_holds_a_mutex_is_answered_at_once_while_others_wait() {
    let server = quiet().start();
    let mut client = server.client();
    let fence = hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let retry = client.run("LOCK.ACQUIRE k a PX 60000 BLOCK 1000");
    assert_eq!(retry.fence(), fence);
    b.assert_silent();
    assert_eq!(queue(&mut client, "k"), ["b"]);
}

/// `ttl` was asked for in the very step of the grant.
#[track_caller]
fn assert_whole_lease(ttl: &Reply, lease: i64) {
    assert!((lease - 200..=lease).contains(&ttl.int()), "{ttl:?} ms are left of {lease}");
}

#[test]
fn the_lease_starts_at_the_grant() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut b = Waiter::park(&server, "LOCK.ACQUIRE k b PX 5000 BLOCK 0");
    until("b has waited a while", || client.run("LOCK.WAITERS k").items()[0].get("waited").int() >= 300);
    let replies = multi(&mut client, &["LOCK.RELEASE k a", "PTTL k"]);
    assert_whole_lease(&replies[1], 5000);
    b.granted("b");
}

#[test]
fn a_waiter_that_names_no_lease_gets_the_default_one() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
    let mut c = Waiter::park(&server, "LOCK.ACQUIRE k c PERSIST BLOCK 0");
    assert_whole_lease(&multi(&mut client, &["LOCK.RELEASE k a", "PTTL k"])[1], 30_000);
    b.granted("b");
    assert_eq!(multi(&mut client, &["LOCK.RELEASE k b", "PTTL k"])[1], Reply::Int(-1));
    c.granted("c");
}

#[test]
fn fifty_waiters_are_served_strictly_first_come_first_served() {
    let server = quiet().start();
    let mut client = server.client();
    let mut last = hold(&mut client, "k", "first");
    let owners: [String; 50] = std::array::from_fn(|n| format!("owner-{n}"));
    let names: [&str; 50] = std::array::from_fn(|n| owners[n].as_str());
    let mut waiters = line_up(&server, "k", names);
    assert_eq!(queue(&mut client, "k"), owners);

    let mut holder = "first";
    for (n, owner) in owners.iter().enumerate() {
        assert_eq!(client.run(&format!("LOCK.RELEASE k {holder}")), Reply::Int(1));
        let fence = waiters[n].granted(owner);
        assert!(fence > last, "fences grow");
        assert_eq!(queue(&mut client, "k"), owners[n + 1..]);
        (last, holder) = (fence, owner);
    }
}

#[test]
fn newcomers_pipelined_behind_a_release_do_not_get_in_between() {
    let server = quiet().start();
    let mut a = server.client();
    hold(&mut a, "k", "a");
    let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
    let replies =
        a.pipeline(&["LOCK.RELEASE k a", "LOCK.ACQUIRE k a", "LOCK.ACQUIRE k z", "LOCK.ACQUIRE k y BLOCK 1 NOTIFY ch"]);
    assert_eq!(replies[0], Reply::Int(1));
    assert_eq!(replies[1], Reply::NullArray);
    assert_eq!(replies[2], Reply::NullArray);
    assert_eq!(replies[3].items()[1], Reply::Int(0), "queued behind c");
    b.granted("b");
    c.assert_silent();
    assert_eq!(holders(&mut a, "k"), ["b"]);
}

#[test]
fn a_waiter_pipelined_behind_a_release_goes_to_the_end_of_the_queue() {
    let server = quiet().start();
    let mut a = server.client();
    hold(&mut a, "k", "a");
    let [mut b, mut c] = line_up(&server, "k", ["b", "c"]);
    let mut client = server.client();
    a.send_raw(b"LOCK.RELEASE k a\r\nLOCK.ACQUIRE k a BLOCK 0\r\n");
    b.granted("b");
    until_queue(&mut client, "k", &["c", "a"]);
    client.run("LOCK.RELEASE k b");
    c.granted("c");
    assert_eq!(a.read(), Reply::Int(1));
    client.run("LOCK.RELEASE k c");
    assert_eq!(a.read().items()[0], Reply::bulk("a"));
}

#[test]
fn a_script_that_removes_a_lock_does_not_get_it_before_the_queue() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let script =
        "redis.call('UNLINK', KEYS[1]); return redis.call('LOCK.ACQUIRE', KEYS[1], 'z') and 'mine' or 'refused'";
    assert_eq!(client.cmd(&["EVAL", script, "1", "k"]), Reply::bulk("refused"));
    b.granted("b");
}

#[test]
fn while_anyone_waits_a_free_key_keeps_the_queues_family() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let replies = multi(&mut client, &["DEL k", "RLOCK.ACQUIRE k z"]);
    assert!(replies[1].error().starts_with("WRONGKIND "), "{replies:?}");
    b.granted("b");
}

#[test]
fn block_0_waits_for_ever() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    assert_eq!(client.run("LOCK.WAITERS k").items()[0].get("remaining"), &Reply::Int(-1));
    b.assert_silent_for(A_WHILE);
}

#[test]
fn a_time_to_wait_is_checked_in_the_servers_words() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let cases = [
        ("LOCK.ACQUIRE k b BLOCK -1", "ERR timeout is negative"),
        ("LOCK.ACQUIRE k b BLOCK", "ERR syntax error"),
        ("LOCK.ACQUIRE k b BLOCK 10 BLOCK 10", "ERR syntax error"),
        ("LOCK.ACQUIRE k b NOTIFY ch", "ERR syntax error"),
        ("LOCK.ACQUIRE k b BLOCK 10 NOTIFY", "ERR syntax error"),
        ("LOCK.ACQUIRE k b PERSIST BLOCK 10 SESSION", "ERR syntax error"),
        ("LOCK.ACQUIRE k b BLOCK 10 SESSION SESSION", "ERR syntax error"),
    ];
    for (line, error) in cases {
        assert_eq!(client.run(line), Reply::Error(error.into()), "{line}");
    }
    for line in ["LOCK.ACQUIRE k b BLOCK soon", "LOCK.ACQUIRE k b BLOCK 1.5"] {
        assert!(client.run(line).error().contains("is not an integer or out of range"), "{line}");
    }
    assert!(client.run("LOCK.ACQUIRE k b BLOCK 9223372036854775807").error().contains("out of range"));
    assert_nobody_waits(&server, &["k"]);
}

#[test]
fn time_outs_are_exact_to_a_few_milliseconds() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut late: Vec<Duration> = (0..15)
        .map(|n| {
            let wait = Duration::from_millis(20 + 3 * n);
            let mut watch = client.stopwatch();
            client.send_line(&format!("LOCK.ACQUIRE k b{n} BLOCK {}", wait.as_millis()));
            client.read_by(&mut watch, LIMIT).expect("its time runs out");
            watch.elapsed().saturating_sub(wait)
        })
        .collect();
    late.sort();
    // Half of them: a busy machine may delay some. The server's own time-outs would be 50 ms late in the middle.
    assert!(late[late.len() / 2] < Duration::from_millis(25), "{late:?}");
}

/// The server runs what was sent behind a command that blocked just before it sleeps.
#[test]
fn a_time_out_behind_another_wait_is_as_exact() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "l", "a");
    for (wait, unblock) in [("BLPOP list 0", "LPUSH list item"), ("LOCK.ACQUIRE k b BLOCK 0", "LOCK.CANCEL k b")] {
        let mut b = server.client();
        b.send_raw(format!("{wait}\r\nLOCK.ACQUIRE l b BLOCK 10\r\n").as_bytes());
        server.wait_blocked(1);
        client.run(unblock);
        assert!(!b.read_soon(SOON).expect("it was unblocked").is_nil());
        assert!(b.read_soon(SOON).expect("10 ms were over").is_nil(), "{wait}");
    }
}

#[test]
fn many_time_outs_at_once_are_all_answered() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut waiters: Vec<Client> = (0..100).map(|_| server.client()).collect();
    let start = Instant::now();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send_line(&format!("LOCK.ACQUIRE k owner-{n} BLOCK {}", 200 + n % 5));
    }
    for waiter in &mut waiters {
        assert_eq!(waiter.read(), Reply::NullArray);
        assert!(ms_since(start) >= 200);
    }
    assert_nobody_waits(&server, &["k"]);
    assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

#[test]
fn what_a_waiter_has_pipelined_runs_after_its_reply() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut b = server.client();
    b.send_raw(b"LOCK.ACQUIRE k b BLOCK 0\r\nLOCK.HELD k b\r\nLOCK.ACQUIRE k2 b BLOCK 0\r\n");
    until_queue(&mut client, "k", &["b"]);
    hold(&mut client, "k2", "a");
    client.run("LOCK.RELEASE k a");
    let fence = b.read().fence();
    assert_eq!(b.read().items()[0], Reply::Int(fence));
    until_queue(&mut client, "k2", &["b"]);
    client.run("LOCK.RELEASE k2 a");
    assert!(b.read().fence() > fence);
}

#[test]
fn queues_belong_to_a_database() {
    let server = quiet().start();
    let mut zero = server.client();
    let mut one = server.client();
    one.run("SELECT 1");
    hold(&mut zero, "k", "a");
    hold(&mut one, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let mut in_one = server.client();
    in_one.run("SELECT 1");
    let mut in_one = Waiter::park_over(in_one, &server, "LOCK.ACQUIRE k c BLOCK 0");

    assert_eq!(queue(&mut zero, "k"), ["b"]);
    assert_eq!(queue(&mut one, "k"), ["c"]);
    one.run("LOCK.RELEASE k a");
    in_one.granted("c");
    b.assert_silent();
    assert_eq!(holders(&mut zero, "k"), ["a"]);
    zero.run("LOCK.RELEASE k a");
    b.granted("b");
    assert_eq!(in_one.client.run("LOCK.HELD k c").items().len(), 3, "the client's database is still its own");
}

mod star {
    use super::*;

    #[test]
    fn a_waiter_that_wants_a_token_made_gets_one_of_its_own() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let mut waiters: Vec<Waiter> =
            (0..3).map(|_| Waiter::park(&server, "LOCK.ACQUIRE k * PX 60000 BLOCK 0")).collect();
        let mut queued = queue(&mut client, "k");
        assert_eq!(queued.len(), 3);

        let mut holder = "a".to_string();
        for (waiter, owner) in waiters.iter_mut().zip(&queued) {
            assert_eq!(client.run(&format!("LOCK.RELEASE k {holder}")), Reply::Int(1));
            assert_eq!(owner.len(), 36, "a UUID: {owner}");
            waiter.granted(owner);
            holder = owner.clone();
        }
        queued.sort();
        queued.dedup();
        assert_eq!(queued.len(), 3, "each its own");
    }

    #[test]
    fn it_keeps_no_place() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.keep-place 60000");
        hold(&mut client, "k", "a");
        let star = Waiter::park(&server, "LOCK.ACQUIRE k * PX 60000 BLOCK 0");
        let owner = queue(&mut client, "k").remove(0);
        let [_c] = line_up(&server, "k", ["c"]);
        drop(star);
        until_queue(&mut client, "k", &["c"]);
        let [_back] = line_up(&server, "k", [owner.as_str()]);
        assert_eq!(queue(&mut client, "k"), ["c", &owner]);
    }
}

mod retries {
    use super::*;

    #[test]
    fn the_older_connections_end_takes_nothing_from_the_newer() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut older] = line_up(&server, "k", ["b"]);
        let [mut newer] = line_up(&server, "k", ["b"]);
        older.reply();
        drop(older);
        newer.assert_silent_for(Duration::from_millis(50));
        client.run("LOCK.RELEASE k a");
        newer.granted("b");
    }

    #[test]
    fn a_retry_brings_its_own_lease_and_time_to_wait() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let _older = Waiter::park(&server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        let mut newer = Waiter::park(&server, "LOCK.ACQUIRE k b PX 4000 BLOCK 50000");
        let remaining = client.run("LOCK.WAITERS k").items()[0].get("remaining").int();
        assert!((1..=50_000).contains(&remaining), "{remaining}");
        let replies = multi(&mut client, &["LOCK.RELEASE k a", "PTTL k"]);
        assert_whole_lease(&replies[1], 4000);
        newer.granted("b");
    }

    #[test]
    fn without_block_the_queue_is_left_alone() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b, _c] = line_up(&server, "k", ["b", "c"]);
        assert_eq!(client.run("LOCK.ACQUIRE k b PX 60000"), Reply::NullArray);
        assert_eq!(queue(&mut client, "k"), ["b", "c"]);
        assert_eq!(client.run("LOCK.WAITERS k").items()[0].get("client"), &Reply::Int(b.id));
        client.run("LOCK.RELEASE k a");
        b.granted("b");
    }

    #[test]
    fn the_same_owner_waits_for_many_keys_at_once() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k1", "a");
        hold(&mut client, "k2", "a");
        let mut first = Waiter::park(&server, "LOCK.ACQUIRE k1 b BLOCK 0");
        let mut second = Waiter::park(&server, "LOCK.ACQUIRE k2 b BLOCK 0");
        client.run("LOCK.RELEASE k1 a");
        first.granted("b");
        second.assert_silent();
        client.run("LOCK.RELEASE k2 a");
        second.granted("b");
    }
}

mod kept_places {
    use super::*;

    /// Far longer than the tests take, so that a place never goes while nobody looks.
    const KEEP: &str = "CONFIG SET lock.keep-place 60000";

    fn server() -> (Server, Client) {
        let server = quiet().start();
        let mut client = server.client();
        assert_eq!(client.run(KEEP), Reply::ok());
        hold(&mut client, "k", "a");
        (server, client)
    }

    /// `owner` waits so shortly that it has left when this returns.
    fn wait_in_vain(client: &mut Client, owner: &str) {
        let reply = client.run(&format!("LOCK.ACQUIRE k {owner} {LONG} BLOCK 1"));
        assert_eq!(reply, Reply::NullArray);
    }

    #[test]
    fn many_short_waits_are_as_fair_as_one_long_wait() {
        let (server, mut client) = server();
        let mut b = server.client();
        wait_in_vain(&mut b, "b");
        let [mut c] = line_up(&server, "k", ["c"]);
        for _ in 0..10 {
            wait_in_vain(&mut b, "b");
        }
        let mut b = Waiter::park_over(b, &server, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        client.run("LOCK.RELEASE k a");
        b.granted("b");
        c.assert_silent();
    }

    #[test]
    fn a_kept_place_holds_nobody_up() {
        let (server, mut client) = server();
        wait_in_vain(&mut client, "b");
        client.run("LOCK.RELEASE k a");
        assert_eq!(client.run("EXISTS k"), Reply::Int(0));
        assert!(client.run("LOCK.INFO k").is_nil());
        assert!(client.run("LOCK.ACQUIRE k z PX 60000").fence() > 0);
        let [mut c] = line_up(&server, "k", ["c"]);
        let [mut b] = line_up(&server, "k", ["b"]);
        client.run("LOCK.RELEASE k z");
        // The place outlived the free lock: b asked before c did.
        b.granted("b");
        c.assert_silent();
    }

    #[test]
    fn a_grant_of_the_same_request_ends_it() {
        let (server, mut client) = server();
        wait_in_vain(&mut client, "b");
        client.run("LOCK.RELEASE k a");
        // Without BLOCK, too.
        assert!(client.run("LOCK.ACQUIRE k b PX 60000").fence() > 0);
        assert_eq!(server.info("lock").number("lock_kept_places"), 0);
        let [mut c] = line_up(&server, "k", ["c"]);
        client.run("LOCK.RELEASE k b");
        c.granted("c");
        let [mut d, mut b] = line_up(&server, "k", ["d", "b"]);
        assert_eq!(queue(&mut client, "k"), ["d", "b"]);
        client.run("LOCK.RELEASE k c");
        d.granted("d");
        b.assert_silent();
    }

    #[test]
    fn nobody_else_takes_it() {
        let (server, mut client) = server();
        client.run("RLOCK.ACQUIRE r a PX 60000");
        assert_eq!(client.run("RLOCK.ACQUIRE r b HOLDS 2 BLOCK 1"), Reply::NullArray);
        let _c = Waiter::park(&server, "RLOCK.ACQUIRE r c BLOCK 0");
        let _other = Waiter::park(&server, "RLOCK.ACQUIRE r x HOLDS 2 BLOCK 0");
        assert_eq!(queue(&mut client, "r"), ["c", "x"]);
        let _b = Waiter::park(&server, "RLOCK.ACQUIRE r b HOLDS 2 BLOCK 0");
        assert_eq!(queue(&mut client, "r"), ["b", "c", "x"]);
    }

    #[test]
    fn with_keep_place_0_there_are_none() {
        let (server, mut client) = server();
        client.run("CONFIG SET lock.keep-place 0");
        wait_in_vain(&mut client, "b");
        let [_c] = line_up(&server, "k", ["c"]);
        let [_b] = line_up(&server, "k", ["b"]);
        assert_eq!(queue(&mut client, "k"), ["c", "b"]);
    }

    #[test]
    fn they_are_bounded_like_waiters_and_the_oldest_go_first() {
        let (server, mut client) = server();
        client.run("CONFIG SET lock.max-waiters 2");
        for owner in ["b", "c", "d"] {
            wait_in_vain(&mut client, owner);
        }
        let [_c] = line_up(&server, "k", ["c"]);
        let [_b] = line_up(&server, "k", ["b"]);
        assert_eq!(queue(&mut client, "k"), ["c", "b"], "b's place, the oldest of three, had gone");
    }

    #[test]
    fn a_grant_that_came_instead_leaves_no_place_behind() {
        let (server, mut client) = server();
        wait_in_vain(&mut client, "b");
        client.run("LOCK.RELEASE k a");
        assert!(client.run("LOCK.ACQUIRE k b PX 60000 BLOCK 10").fence() > 0);
        assert_eq!(client.run("LOCK.RELEASE k b"), Reply::Int(1));
        hold(&mut client, "k", "a");
        let [_c] = line_up(&server, "k", ["c"]);
        let [_b] = line_up(&server, "k", ["b"]);
        assert_eq!(queue(&mut client, "k"), ["c", "b"]);
    }
}

mod max_waiters {
    use super::*;

    #[test]
    fn past_it_block_answers_maxwaiters() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.max-waiters 2");
        hold(&mut client, "k", "a");
        hold(&mut client, "other", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        let mut other = Waiter::park(&server, "LOCK.ACQUIRE other c BLOCK 0");

        for line in ["LOCK.ACQUIRE k d BLOCK 0", "RLOCK.ACQUIRE k2 d BLOCK 0", "LOCK.ACQUIRE k d BLOCK 9 NOTIFY ch"] {
            let reply = client.run(line);
            if line.contains("k2") {
                assert!(reply.fence() > 0, "a free lock needs no queue");
            } else {
                assert!(reply.error().starts_with("MAXWAITERS "), "{line}: {reply:?}");
            }
        }
        assert_eq!(client.run("LOCK.ACQUIRE k d"), Reply::NullArray, "without BLOCK it never counts");
        assert_eq!(queue(&mut client, "k"), ["b"]);
        b.assert_silent();

        client.run("LOCK.RELEASE other a");
        other.granted("c");
        let [_d] = line_up(&server, "k", ["d"]);
        assert_eq!(queue(&mut client, "k"), ["b", "d"]);
    }

    #[test]
    fn a_retry_of_a_queued_request_needs_no_room() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.max-waiters 1");
        hold(&mut client, "k", "a");
        let [mut older] = line_up(&server, "k", ["b"]);
        let [mut newer] = line_up(&server, "k", ["b"]);
        assert!(older.reply().error().starts_with("UNBLOCKED superseded"));
        client.run("LOCK.RELEASE k a");
        newer.granted("b");
    }

    #[test]
    fn of_one_key_as_many_wait_as_may_and_of_others_as_ever() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.max-waiters-per-key 1");
        for key in ["k", "l", "m"] {
            hold(&mut client, key, "a");
        }
        let mut b = Waiter::park(&server, "MLOCK.ACQUIRE 2 k l b BLOCK 0");
        for line in [
            "LOCK.ACQUIRE k c BLOCK 0",
            "LOCK.ACQUIRE l c BLOCK 9 NOTIFY ch",
            "MLOCK.ACQUIRE 2 m k c BLOCK 0",
            "MLOCK.ACQUIRE 2 m l c BLOCK 0",
        ] {
            let reply = client.run(line);
            let words = reply.error();
            assert!(
                words.starts_with("MAXWAITERS ") && words.contains("lock.max-waiters-per-key"),
                "{line}: {reply:?}"
            );
        }
        assert_eq!(client.run("LOCK.ACQUIRE k c"), Reply::NullArray, "without BLOCK it never counts");
        let mut c = Waiter::park(&server, "LOCK.ACQUIRE m c BLOCK 0");
        // A retry is no newcomer.
        let mut again = Waiter::park(&server, "MLOCK.ACQUIRE 2 k l b BLOCK 0");
        assert!(b.reply().error().starts_with("UNBLOCKED superseded"));
        client.run("CONFIG SET lock.max-waiters-per-key 0");
        let [mut d] = line_up(&server, "k", ["d"]);
        client.run("MLOCK.RELEASE 3 k l m a");
        again.granted("b");
        c.granted("c");
        client.run("LOCK.RELEASE k b");
        d.granted("d");
    }

    #[test]
    fn the_kept_places_of_a_key_are_bounded_and_the_oldest_go_first() {
        let limits = "lock.max-waiters-per-key 2";
        let server = quiet().config("lock.keep-place 600000").config(limits).start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        hold(&mut client, "l", "a");
        assert_eq!(client.run("LOCK.ACQUIRE l z BLOCK 1"), Reply::NullArray);
        for owner in ["b", "c", "d"] {
            assert_eq!(client.run(&format!("LOCK.ACQUIRE k {owner} BLOCK 1")), Reply::NullArray);
        }
        let [_e, _d] = line_up(&server, "k", ["e", "d"]);
        assert_eq!(queue(&mut client, "k"), ["d", "e"], "d takes its place up");
        client.run("LOCK.CANCEL k e");
        let [_b] = line_up(&server, "k", ["b"]);
        assert_eq!(queue(&mut client, "k"), ["d", "b"], "the place of b has gone");
        client.run("LOCK.CANCEL k b");
        let [_c] = line_up(&server, "k", ["c"]);
        assert_eq!(queue(&mut client, "k"), ["c", "d"], "c has kept its place");
    }

    #[test]
    fn requests_that_wait_without_blocking_count() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.max-waiters 2");
        hold(&mut client, "k", "a");
        client.run("LOCK.ACQUIRE k b BLOCK 0 NOTIFY ch");
        client.run("LOCK.ACQUIRE k c BLOCK 0 NOTIFY ch");
        let reply = client.run("LOCK.ACQUIRE k d BLOCK 0");
        assert!(reply.error().starts_with("MAXWAITERS "), "{reply:?}");
    }

    #[test]
    fn whoever_leaves_makes_room() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.max-waiters 1");
        client.run("CONFIG SET lock.keep-place 60000");
        hold(&mut client, "k", "a");
        for n in 0..5 {
            let reply = client.run(&format!("LOCK.ACQUIRE k owner-{n} BLOCK 1"));
            assert_eq!(reply, Reply::NullArray);
        }
        for n in 5..10 {
            drop(Waiter::park(&server, &format!("LOCK.ACQUIRE k owner-{n} BLOCK 0")));
            until_queue(&mut client, "k", &[]);
        }
    }
}

mod lock_waiters {
    use super::*;

    #[test]
    fn it_lists_the_queue_in_order_with_all_it_promises() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let b = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 0");
        let _c = Waiter::park(&server, "LOCK.ACQUIRE k c BLOCK 50000");
        client.run("LOCK.ACQUIRE k d BLOCK 50000 NOTIFY ch");
        until("they have waited a while", || client.run("LOCK.WAITERS k").items()[2].get("waited").int() >= 20);

        let reply = client.run("LOCK.WAITERS k");
        let waiters = reply.items();
        assert_eq!(waiters.len(), 3);
        for waiter in waiters {
            let names: Vec<&str> = waiter.pairs().iter().map(|(name, _)| name.text()).collect();
            assert_eq!(names, ["owner", "mode", "permits", "client", "addr", "waited", "remaining"]);
            assert_eq!(waiter.get("mode"), &Reply::bulk("exclusive"));
            assert_eq!(waiter.get("permits"), &Reply::Int(1));
            assert!(waiter.get("waited").int() >= 20);
        }
        assert_eq!(queue(&mut client, "k"), ["b", "c", "d"]);
        assert_eq!(waiters[0].get("client"), &Reply::Int(b.id));
        assert_eq!(waiters[0].get("remaining"), &Reply::Int(-1));
        let list = client.run(&format!("CLIENT LIST ID {}", b.id));
        assert_eq!(Some(waiters[0].get("addr").text()), client_field(list.text(), "addr"));
        let remaining = waiters[1].get("remaining").int();
        assert!((1..=49_980).contains(&remaining), "{remaining}");
        assert_eq!(waiters[2].get("client"), &Reply::Int(client.id()));
    }

    #[test]
    fn it_answers_maps_in_resp3() {
        let server = quiet().start();
        let mut client = server.client3();
        hold(&mut client, "k", "a");
        let [_b] = line_up(&server, "k", ["b"]);
        let reply = client.run("LOCK.WAITERS k");
        assert!(matches!(reply.items()[0], Reply::Map(_)), "{reply:?}");
    }

    #[test]
    fn a_key_of_another_type_is_wrongtype() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("SET s v");
        assert!(client.run("LOCK.WAITERS s").error().starts_with("WRONGTYPE "));
    }

    #[test]
    fn it_is_empty_where_nobody_waits() {
        let server = quiet().start();
        let mut client = server.client();
        assert_eq!(client.run("LOCK.WAITERS k"), Reply::Array(vec![]));
        hold(&mut client, "k", "a");
        assert_eq!(client.run("LOCK.WAITERS k"), Reply::Array(vec![]));
    }

    #[test]
    fn it_works_on_a_replica_where_nobody_can_wait() {
        let server = Server::start();
        let replica = Server::builder().replica_of(&server).start();
        hold(&mut server.client(), "k", "a");
        let [_b] = line_up(&server, "k", ["b"]);
        crate::support::in_sync(&server, &replica);
        let mut client = replica.client();
        assert_eq!(holders(&mut client, "k"), ["a"]);
        assert_eq!(client.run("LOCK.WAITERS k"), Reply::Array(vec![]));
        assert!(client.run("LOCK.ACQUIRE k z BLOCK 0").error().starts_with("READONLY "));
    }

    #[test]
    fn it_takes_owners_of_any_bytes() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let owner = [0u8, 255, b'\r', b'\n', b'%', b's'];
        let mut waiter = server.client();
        let request: [&[u8]; 5] = [b"LOCK.ACQUIRE", b"k", &owner, b"BLOCK", b"0"];
        waiter.send(&request);
        server.wait_blocked(1);
        let reply = client.run("LOCK.WAITERS k");
        assert_eq!(reply.items()[0].get("owner"), &Reply::bulk(owner));
        client.run("LOCK.RELEASE k a");
        assert_eq!(waiter.read().items()[0], Reply::bulk(owner));
    }
}

mod waiting_and_replication {
    use super::*;
    use crate::support::in_sync;

    #[test]
    fn wait_after_a_grant_by_unblocking_covers_the_grant() {
        let server = Server::start();
        let replica = Server::builder().replica_of(&server).start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        in_sync(&server, &replica);

        // While the replica does nothing, it cannot have the grant, and WAIT must say so. It sleeps for long enough
        // even where everything else stands still for a second or two.
        let mut asleep = put_to_sleep(&replica, Duration::from_millis(2500));
        client.run("LOCK.RELEASE k a");
        b.granted("b");
        assert_eq!(b.client.run("WAIT 1 50"), Reply::Int(0));
        assert_eq!(asleep.read(), Reply::ok());
        assert_eq!(b.client.run("WAIT 1 20000"), Reply::Int(1));
        assert_eq!(holders(&mut replica.client(), "k"), ["b"]);
    }
}
