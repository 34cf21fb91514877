//! The server's wall clock is set. Leases follow it, as every TTL does; waits, reserved positions, session renewals and
//! grace periods do not, and a timer that was armed earlier delays none of them.

use crate::support::skip::skips_shifted_clock;
use crate::support::waiting::*;
use crate::support::{until, Builder, Client, Info, Reply, Server};
use std::time::{Duration, Instant, SystemTime};

/// A server with a clock that can be set.
fn clocked() -> Builder {
    Server::builder().clock("+0")
}

/// Fails if the reply arrives before, or much later than, this time after `start`.
#[track_caller]
fn assert_times_out(waiter: &mut Waiter, start: Instant, after_ms: u64) {
    assert!(waiter.reply_within(Duration::from_millis(after_ms) + SOON).is_nil());
    assert!(ms_since(start) >= u128::from(after_ms), "too early: {:?}", start.elapsed());
}

/// Sets the clock by whole seconds.
fn set_clock(server: &mut Server, by_seconds: i64) {
    server.set_clock(&format!("{by_seconds:+}s"));
}

/// Waits until the lease of `key` was restarted after the clock was set. Its deadline shows it; the server's own idea
/// of the time may be as old as its last event-loop iteration.
#[track_caller]
fn assert_begins_again(client: &mut Client, key: &str, lease_ms: i64, by_seconds: i64) {
    until("the lease is restarted", || {
        let deadline = client.cmd(&["PEXPIRETIME", key]).int();
        assert!(deadline > 0, "the lease ended: {deadline}");
        let now = i64::try_from(since_1970().as_millis()).expect("a clock before the end of time") + by_seconds * 1000;
        (now + lease_ms * 2 / 3..=now + lease_ms).contains(&deadline)
    });
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970")
}

#[test]
fn fences_and_leases_use_the_servers_clock() {
    if skips_shifted_clock() {
        return;
    }
    let server = Server::builder().clock("-30d").start();
    let mut client = server.client();
    let fence = client.run("LOCK.ACQUIRE k a PX 60000").fence();
    let a_month_ago = since_1970() - Duration::from_secs(30 * 24 * 3600);
    let granted = Duration::from_micros(fence.unsigned_abs());
    assert!(granted.abs_diff(a_month_ago) < Duration::from_secs(60), "{granted:?} {a_month_ago:?}");
    let left = client.run("PTTL k").int();
    assert!((50_000..=60_000).contains(&left), "{left}");
    assert!(client.run("LOCK.INFO k").get("holders").items()[0].get("age").int() < 10_000);
}

/// A timer is armed for the expiry of k's lease, although no request may wait for it.
#[test]
fn setting_it_forward_delays_no_request() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = clocked().start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 14000");
    client.run("LOCK.ACQUIRE d a PERSIST");
    client.run("LOCK.ACQUIRE e a PERSIST");
    let [mut next] = line_up(&server, "k", ["b"]);
    let [mut other] = line_up(&server, "d", ["b"]);
    set_clock(&mut server, 60);
    let start = Instant::now();
    let mut late = Waiter::request(&server, "LOCK.ACQUIRE e b BLOCK 200");
    assert_eq!(client.run("DEL d"), Reply::Int(1));
    other.granted("b");
    // Its lease has expired by the wall clock.
    next.granted("b");
    assert_times_out(&mut late, start, 200);
}

/// With multiple leases, only the module can end one: the key stays, so the server itself triggers no hand-off.
#[test]
fn setting_it_forward_ends_leases_without_a_command() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = clocked().start();
    let mut client = server.client();
    client.run("SEM.ACQUIRE s a LIMIT 2 PX 60000");
    client.run("SEM.ACQUIRE s b LIMIT 2 PX 600000");
    let mut next = Waiter::park(&server, "SEM.ACQUIRE s c LIMIT 2 PX 600000 BLOCK 0");
    // A closed connection wakes the module.
    until("no other client is connected", || {
        Info::parse(client.run("INFO clients").text()).number("connected_clients") == 2
    });
    set_clock(&mut server, 61);
    next.granted("c");
}

#[test]
fn setting_it_back_and_forward_delays_no_hand_off() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = clocked().start();
    server.client().run("LOCK.ACQUIRE k a PX 2000");
    let [mut next] = line_up(&server, "k", ["b"]);
    set_clock(&mut server, -10);
    // Now the lease lasts longer by the same amount, as every TTL does.
    next.assert_silent_for(Duration::from_millis(2200));
    set_clock(&mut server, 0);
    next.granted("b");
}

#[test]
fn waits_do_not_depend_on_the_wall_clock() {
    if skips_shifted_clock() {
        return;
    }
    for by_seconds in [-30, 30] {
        let mut server = clocked().start();
        let mut client = server.client();
        client.run("LOCK.ACQUIRE k a PERSIST");
        let start = Instant::now();
        let mut waits = Waiter::park(&server, "LOCK.ACQUIRE k b BLOCK 2500");
        set_clock(&mut server, by_seconds);
        let waiter = client.run("LOCK.WAITERS k").items()[0].clone();
        let (waited, remaining) = (waiter.get("waited").int(), waiter.get("remaining").int());
        assert!((0..2500).contains(&waited) && (1..=2500).contains(&remaining), "{by_seconds} s: {waited} {remaining}");
        assert_times_out(&mut waits, start, 2500);
    }
}

#[test]
fn reserved_positions_do_not_depend_on_the_wall_clock() {
    if skips_shifted_clock() {
        return;
    }
    for (by_seconds, keep_place, order) in [(-30, 300, ["c", "b"]), (30, 60_000, ["b", "c"])] {
        let mut server = clocked().config(format!("lock.keep-place {keep_place}")).start();
        let mut client = server.client();
        client.run("LOCK.ACQUIRE k a PERSIST");
        let mut gone = Waiter::park(&server, "LOCK.ACQUIRE k b PERSIST BLOCK 50");
        let [_c] = line_up(&server, "k", ["c"]);
        assert!(gone.reply().is_nil());
        set_clock(&mut server, by_seconds);
        let_time_pass(Duration::from_millis(500));
        let _back = Waiter::park(&server, "LOCK.ACQUIRE k b PERSIST BLOCK 0");
        assert_eq!(queue(&mut client, "k"), order, "{by_seconds} s");
    }
}

#[test]
fn grace_periods_do_not_depend_on_the_wall_clock() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = clocked().config("lock.grace 600").start();
    let mut waits = Waiter::request(&server, "LOCK.ACQUIRE k a BLOCK 0");
    set_clock(&mut server, -30);
    waits.granted_within("a", Duration::from_millis(600) + SOON);

    let mut server = clocked().config("lock.grace 600000").start();
    let mut waits = Waiter::park(&server, "LOCK.ACQUIRE k a BLOCK 0");
    set_clock(&mut server, 3600);
    waits.assert_silent_for(A_WHILE);
    assert!(server.client().run("LOCK.ACQUIRE l b").error().starts_with("GRACE "));
}

/// At least two thirds of a live session's lease are left at any time: no smaller step ends it, nor do many.
#[test]
fn a_live_session_is_renewed_at_once() {
    if skips_shifted_clock() {
        return;
    }
    const LEASE: i64 = 12_000;
    let mut server = clocked().start();
    let mut client = server.client();
    let mut session = server.client();
    let fence = session.run(&format!("LOCK.ACQUIRE k a PX {LEASE} SESSION")).fence();
    session.run(&format!("RWLOCK.ACQUIRE rw a READ PX {LEASE} SESSION"));
    let [mut next] = line_up(&server, "k", ["b"]);
    // The first step comes right after the grant, when nearly all of the lease is left.
    for by_seconds in [10, 17, 24, 31, -3600] {
        set_clock(&mut server, by_seconds);
        for key in ["k", "rw"] {
            assert_begins_again(&mut client, key, LEASE, by_seconds);
        }
        next.assert_silent();
    }
    assert_eq!(client.run("LOCK.HELD k a").items()[0], Reply::Int(fence));
    drop(session);
    next.granted("b");
}

#[test]
fn setting_it_back_stops_no_renewal() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = clocked().start();
    let mut client = server.client();
    let mut session = server.client();
    session.run("LOCK.ACQUIRE k a PX 2400 SESSION");
    set_clock(&mut server, -30);
    assert_begins_again(&mut client, "k", 2_400, -30);
    for _ in 0..2 {
        until_renewed(&mut client, "k");
    }
}

/// Like every TTL, it has expired if it is past its deadline by the server's clock.
#[test]
fn setting_it_beyond_the_lease_ends_a_session() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = clocked().start();
    let mut session = server.client();
    session.run("LOCK.ACQUIRE k a PX 3000 SESSION");
    let [mut next] = line_up(&server, "k", ["b"]);
    set_clock(&mut server, 60);
    next.granted("b");
    assert!(server.client().run("LOCK.HELD k a").is_nil());
}

/// The server reads the clock once for all timers that are due. If the clock is set back before the module arms its
/// next timer, that one is due by the old reading, again and again. The steps come at every phase of the inspections.
#[test]
fn setting_it_back_during_a_timer_does_not_hang_the_server() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = clocked().config("hz 500").start();
    let mut client = server.client();
    for key in 0..64 {
        client.run(&format!("LOCK.ACQUIRE {key} a EX 1000000"));
        client.run(&format!("LOCK.ACQUIRE {key} b BLOCK 0 NOTIFY granted"));
    }
    for step in 0..300 {
        set_clock(&mut server, 3_600);
        let_time_pass(Duration::from_micros(10_000 + step * 1_370 % 10_000));
        set_clock(&mut server, 0);
        assert_eq!(client.run("PING"), Reply::Status("PONG".into()), "step {step}");
    }
}

/// The server's cron does not notice it, but the timer armed at that moment fires an hour late.
#[test]
fn a_clock_briefly_ahead_delays_no_request() {
    if skips_shifted_clock() {
        return;
    }
    let mut server = clocked().start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PERSIST");
    for _ in 0..3 {
        set_clock(&mut server, 3_600);
        let start = Instant::now();
        let mut waits = Waiter::request(&server, "LOCK.ACQUIRE k b BLOCK 300");
        client.run("PING");
        set_clock(&mut server, 0);
        assert_times_out(&mut waits, start, 300);
    }
}
