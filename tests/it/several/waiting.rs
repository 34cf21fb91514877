//! A request that waits has its turn on each of its keys, and passes or is passed where it must.

use super::*;

#[test]
fn it_is_granted_when_the_last_of_its_keys_is_free_and_all_at_once() {
    let server = quiet().start();
    let mut client = server.client();
    for key in ["x", "y", "z"] {
        hold(&mut client, key, "a");
    }
    let mut b = wait_for(&server, "x y z b");
    assert_eq!(client.run("LOCK.RELEASE y a"), Reply::Int(1));
    assert_held(&mut client, &[("x", "a"), ("y", ""), ("z", "a")]);
    assert_eq!(client.run("LOCK.RELEASE x a"), Reply::Int(1));
    b.assert_silent();
    assert_held(&mut client, &[("x", ""), ("y", ""), ("z", "a")]);
    let replies = multi(&mut client, &["LOCK.RELEASE z a", "LOCK.HELD x b", "LOCK.HELD y b", "LOCK.HELD z b"]);
    let fence = b.granted("b");
    for reply in &replies[1..] {
        assert_eq!(reply.items()[0], Reply::Int(fence), "one step, one fence");
    }
    assert_nobody_waits(&server, &["x", "y", "z"]);
}

#[test]
fn it_keeps_its_turn_on_each_of_its_keys() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let mut b = wait_for(&server, "x y b");
    assert_eq!(client.run("LOCK.ACQUIRE y z"), Reply::NullArray, "y is free, but b came first");
    assert_eq!(client.run("MLOCK.ACQUIRE 2 y w z"), Reply::NullArray);
    let [mut z] = line_up(&server, "y", ["z"]);
    for key in ["x", "y"] {
        assert_eq!(queue(&mut client, key)[0], "b");
    }
    client.run("LOCK.RELEASE x a");
    b.granted("b");
    z.assert_silent();
    client.run("LOCK.RELEASE y b");
    z.granted("z");
    assert_held(&mut client, &[("x", "b"), ("y", "z")]);
}

#[test]
fn it_waits_its_turn_on_each_of_its_keys() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    hold(&mut client, "y", "a");
    let [mut first] = line_up(&server, "y", ["first"]);
    let mut b = wait_for(&server, "x y b");
    client.run("LOCK.RELEASE x a");
    b.assert_silent();
    client.run("LOCK.RELEASE y a");
    first.granted("first");
    b.assert_silent();
    client.run("LOCK.RELEASE y first");
    b.granted("b");
}

#[test]
fn it_overtakes_nobody_on_one_key_when_it_is_its_turn_on_another() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    hold(&mut client, "z", "a");
    let mut first = wait_for(&server, "y z first");
    let mut second = wait_for(&server, "x y second");
    client.run("LOCK.RELEASE x a");
    // x and y are free, but first came first to y.
    second.assert_silent_for(A_WHILE);
    assert_held(&mut client, &[("x", ""), ("y", ""), ("z", "a")]);
    client.run("LOCK.RELEASE z a");
    first.granted("first");
    second.assert_silent();
    release(&mut client, "y z first", 2);
    second.granted("second");
}

#[test]
fn an_owner_that_it_waits_for_passes_it() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let mut b = wait_for(&server, "x y b");
    assert!(client.run("LOCK.ACQUIRE y a PX 60000").fence() > 0, "a has x, so b cannot go on without a");
    assert_eq!(client.run("LOCK.ACQUIRE y z"), Reply::NullArray, "nobody else passes");
    b.assert_silent();
    client.run("LOCK.RELEASE x a");
    b.assert_silent();
    client.run("LOCK.RELEASE y a");
    b.granted("b");
}

#[test]
fn an_owner_that_it_waits_for_passes_it_with_a_request_for_several_too() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let mut b = wait_for(&server, "x y w b");
    let fence = take(&mut client, "y x w v a");
    assert_eq!(held(&mut client, "w", "a").map(|held| held.0), Some(fence));
    release(&mut client, "x y w v a", 4);
    assert!(b.granted("b") > fence);
}

#[test]
fn a_waiting_owner_that_it_waits_for_passes_it_too() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    hold(&mut client, "y", "other");
    let mut b = wait_for(&server, "x y b");
    let [mut a] = line_up(&server, "y", ["a"]);
    client.run("LOCK.RELEASE y other");
    a.granted("a");
    b.assert_silent();
    release(&mut client, "x y a", 2);
    b.granted("b");
}

#[test]
fn others_behind_it_do_not_pass_with_the_owner_that_does() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    hold(&mut client, "y", "other");
    let mut b = wait_for(&server, "x y b");
    let [mut a, mut z] = line_up(&server, "y", ["a", "z"]);
    client.run("LOCK.RELEASE y other");
    a.granted("a");
    client.run("LOCK.RELEASE y a");
    z.assert_silent_for(A_WHILE);
    client.run("LOCK.RELEASE x a");
    b.granted("b");
    release(&mut client, "x y b", 2);
    z.granted("z");
}

#[test]
fn who_would_have_to_pass_others_too_is_told_of_a_deadlock() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    hold(&mut client, "y", "other");
    let mut b = wait_for(&server, "x y b");
    let [mut z] = line_up(&server, "y", ["z"]);
    // z waits behind b, b for a: a cannot wait behind z.
    let reply = client.run("LOCK.ACQUIRE y a BLOCK 0");
    let error = reply.error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    assert!(["'a'", "'z'", "'b'"].iter().all(|name| error.contains(name)), "{error}");
    b.assert_silent();
    z.assert_silent();
}

#[test]
fn crossing_requests_are_served_one_after_the_other() {
    let server = quiet().start();
    let mut client = server.client();
    take(&mut client, "x y first");
    let mut a = wait_for(&server, "x y a");
    let mut b = wait_for(&server, "y x b");
    let mut c = wait_for(&server, "z y c");
    release(&mut client, "x first", 1);
    a.assert_silent();
    release(&mut client, "y first", 1);
    a.granted("a");
    release(&mut client, "y a", 1);
    b.assert_silent();
    c.assert_silent();
    release(&mut client, "x a", 1);
    b.granted("b");
    c.assert_silent();
    release(&mut client, "x y b", 2);
    c.granted("c");
    assert_nobody_waits(&server, &["x", "y", "z"]);
}

#[test]
fn who_holds_one_and_wants_the_others_is_told_of_a_deadlock() {
    let server = quiet().start();
    let mut client = server.client();
    let fences = (hold(&mut client, "x", "a"), hold(&mut client, "y", "b"));
    let mut a = wait_for(&server, "x y a");
    let reply = client.run("MLOCK.ACQUIRE 2 x y b BLOCK 0");
    let error = reply.error();
    assert!(error.starts_with("DEADLOCK ") && error.contains("'a'") && error.contains("'b'"), "{error}");
    a.assert_silent();
    assert_eq!(held(&mut client, "x", "a").map(|held| held.0), Some(fences.0));
    assert_eq!(held(&mut client, "y", "b").map(|held| held.0), Some(fences.1));
    client.run("LOCK.RELEASE y b");
    let fence = a.granted("a");
    assert_eq!(held(&mut client, "x", "a").map(|held| held.0), Some(fence), "also for what it held before");
}

#[test]
fn a_large_set_is_not_starved_by_a_stream_of_small_ones() {
    let server = quiet().start();
    let mut client = server.client();
    let keys = ["k0", "k1", "k2", "k3"];
    for key in keys {
        hold(&mut client, key, &format!("of-{key}"));
    }
    let mut large = wait_for(&server, "k0 k1 k2 k3 large");
    let mut small: Vec<[Waiter; 1]> = Vec::new();
    for key in keys {
        assert!(client.run(&format!("LOCK.ACQUIRE {key} newcomer")).is_nil());
        small.push(line_up(&server, key, ["small"]));
    }
    for key in keys {
        large.assert_silent();
        client.run(&format!("LOCK.RELEASE {key} of-{key}"));
    }
    large.granted("large");
    release(&mut client, "k0 k1 k2 k3 large", 4);
    small.iter_mut().for_each(|[waiter]| assert!(waiter.granted("small") > 0));
}

#[test]
fn it_is_granted_when_the_last_lease_has_ended_with_no_command_from_anyone() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    hold(&mut client, "y", "b");
    let mut c = wait_for(&server, "x y c");
    let start = Instant::now();
    multi(&mut client, &["LOCK.RENEW x a PX 300", "LOCK.RENEW y b PX 400"]);
    c.granted_within("c", Duration::from_millis(400) + SOON);
    assert!(ms_since(start) >= 400, "{:?}", start.elapsed());
    assert_held(&mut client, &[("x", "c"), ("y", "c")]);
}

#[test]
fn the_end_of_its_own_hold_meanwhile_costs_it_nothing() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    hold(&mut client, "y", "b");
    let mut a = wait_for(&server, "x y a");
    client.run("LOCK.RENEW x a PX 100");
    until("its own lease has ended", || client.run("EXISTS x") == Reply::Int(0));
    assert!(client.run("LOCK.ACQUIRE x z").is_nil(), "it keeps its turn there");
    client.run("LOCK.RELEASE y b");
    a.granted("a");
    assert_held(&mut client, &[("x", "a"), ("y", "a")]);
}

#[test]
fn del_of_the_one_key_in_its_way_lets_it_in() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let mut b = wait_for(&server, "w x y b");
    client.run("DEL x");
    b.granted("b");
    assert_held(&mut client, &[("w", "b"), ("x", "b"), ("y", "b")]);
}

#[test]
fn lock_info_of_a_free_key_that_it_waits_at_says_so() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let _b = wait_for(&server, "x y b");
    let info = client.run("LOCK.INFO y");
    assert_eq!(info.get("kind"), &Reply::bulk("mutex"));
    assert_eq!(info.get("ttl"), &Reply::Int(-2), "free but waited for");
    assert_eq!(info.get("holders"), &Reply::Array(vec![]));
    for key in ["x", "y"] {
        assert_eq!(client.cmd(&["LOCK.INFO", key]).get("waiters"), &Reply::Int(1), "{key}");
        let waiters = client.cmd(&["LOCK.WAITERS", key]);
        let waiter = &waiters.items()[0];
        assert_eq!((waiter.get("owner"), waiter.get("mode")), (&Reply::bulk("b"), &Reply::bulk("exclusive")));
        assert_eq!(waiter.get("permits"), &Reply::Int(1));
    }
    assert!(client.run("RLOCK.ACQUIRE y z").error().starts_with("WRONGKIND "), "it keeps the queue's family");
}

#[test]
fn a_key_that_becomes_something_else_dismisses_it_and_frees_its_turn_on_the_others() {
    for (overwrite, error) in
        [(vec!["SET x v"], WRONGTYPE), (vec!["SEM.ACQUIRE s a LIMIT 2", "RENAME s x"], "WRONGKIND ")]
    {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "x", "a");
        let mut b = wait_for(&server, "y x z b");
        let [mut c] = line_up(&server, "z", ["c"]);
        multi(&mut client, &overwrite);
        let reply = b.only_reply();
        assert!(reply.error().starts_with(error), "{reply:?}");
        c.granted("c");
        assert_nobody_waits(&server, &["y", "z"]);
        assert_eq!(client.run("EXISTS y"), Reply::Int(0));
    }
}

#[test]
fn it_leaves_all_its_queues_when_it_leaves_one() {
    let server = quiet().start();
    let mut client = server.client();
    for leave in ["LOCK.CANCEL y b", "CLIENT UNBLOCK", "CLIENT KILL ID"] {
        client.run("FLUSHALL");
        hold(&mut client, "x", "a");
        let b = wait_for(&server, "x y z b");
        let [mut c] = line_up(&server, "z", ["c"]);
        let [mut d] = line_up(&server, "y", ["d"]);
        let line = if leave.starts_with("CLIENT") { format!("{leave} {}", b.id) } else { leave.to_string() };
        assert_eq!(client.run(&line), Reply::Int(1), "{line}");
        c.granted("c");
        d.granted("d");
        assert_nobody_waits(&server, &["x", "y", "z"]);
    }
}

#[test]
fn its_time_runs_out_on_all_keys_at_once() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let start = Instant::now();
    let mut b = Waiter::ask(&server, "MLOCK.ACQUIRE 2 x y b BLOCK 300");
    let mut c = Waiter::ask(&server, &format!("LOCK.ACQUIRE y c {LONG} BLOCK 0"));
    assert_eq!(b.client.read(), Reply::NullArray);
    assert!(ms_since(start) >= 300);
    c.granted("c");
    assert_nobody_waits(&server, &["x", "y"]);
}

#[test]
fn a_retry_takes_the_place_over_whatever_the_order_of_the_keys() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let mut older = wait_for(&server, "x y b");
    let [_c] = line_up(&server, "y", ["c"]);
    let mut newer = wait_for(&server, "y x b");
    assert_eq!(older.only_reply(), Reply::Error("UNBLOCKED superseded by a newer request".into()));
    assert_eq!(queue(&mut client, "y"), ["b", "c"]);
    client.run("LOCK.RELEASE x a");
    newer.granted("b");
}

#[test]
fn another_set_of_keys_is_no_retry() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let mut both = wait_for(&server, "x y b");
    let mut more = wait_for(&server, "x y z b");
    let [mut one] = line_up(&server, "x", ["b"]);
    assert_eq!(queue(&mut client, "x"), ["b", "b", "b"]);
    client.run("LOCK.RELEASE x a");
    let first = both.granted("b");
    assert!(more.granted("b") > first);
    one.granted("b");
    assert_held(&mut client, &[("x", "b"), ("y", "b"), ("z", "b")]);
}

#[test]
fn it_keeps_its_place_on_each_key_while_it_is_away() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("CONFIG SET lock.keep-place 60000");
    hold(&mut client, "x", "a");
    hold(&mut client, "y", "a");
    assert_eq!(client.run("MLOCK.ACQUIRE 2 x y b PX 60000 BLOCK 1"), Reply::NullArray);
    let [mut c] = line_up(&server, "x", ["c"]);
    let [mut d] = line_up(&server, "y", ["d"]);
    let mut b = wait_for(&server, "x y b");
    for (key, behind) in [("x", "c"), ("y", "d")] {
        assert_eq!(queue(&mut client, key), ["b", behind]);
    }
    release(&mut client, "x y a", 2);
    b.granted("b");
    c.assert_silent();
    d.assert_silent();
}

#[test]
fn it_counts_as_one_of_max_waiters() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("CONFIG SET lock.max-waiters 2");
    hold(&mut client, "x", "a");
    let _b = wait_for(&server, "x y z b");
    let _c = wait_for(&server, "x y z c");
    assert!(client.run("MLOCK.ACQUIRE 2 x y d BLOCK 0").error().starts_with("MAXWAITERS "));
}

#[test]
fn a_grant_that_cannot_be_delivered_is_taken_back_from_all_keys() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let b = wait_for(&server, "x y z b");
    let [mut c] = line_up(&server, "x", ["c"]);
    let [mut d] = line_up(&server, "y", ["d"]);
    multi(&mut client, &["LOCK.RELEASE x a", &format!("CLIENT KILL ID {}", b.id)]);
    c.granted("c");
    d.granted("d");
    until("z is free", || client.run("EXISTS z") == Reply::Int(0));
    assert_nobody_waits(&server, &["x", "y", "z"]);
}

#[test]
fn a_grant_that_cannot_be_delivered_leaves_its_owner_what_it_held_before() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    hold(&mut client, "y", "b");
    let both = wait_for(&server, "x y a");
    let [mut c] = line_up(&server, "y", ["c"]);
    multi(&mut client, &["LOCK.RELEASE y b", &format!("CLIENT KILL ID {}", both.id)]);
    c.granted("c");
    assert_held(&mut client, &[("x", "a"), ("y", "c")]);
}

#[test]
fn without_block_the_queue_is_left_alone() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "x", "a");
    let mut b = wait_for(&server, "x y b");
    assert!(client.run("MLOCK.ACQUIRE 2 x y b").is_nil());
    assert_eq!(client.run("LOCK.WAITERS y").items()[0].get("client"), &Reply::Int(b.id));
    b.assert_silent();
}

#[test]
fn who_holds_one_of_its_keys_while_others_wait_there_gets_the_rest_in_turn() {
    let server = quiet().start();
    let mut client = server.client();
    let before = hold(&mut client, "a", "m");
    hold(&mut client, "b", "y");
    let [mut z] = line_up(&server, "a", ["z"]);
    let [mut u] = line_up(&server, "b", ["u"]);
    let mut several = Waiter::park(&server, &format!("MLOCK.ACQUIRE 3 a b c m {LONG} BLOCK 0"));
    assert_eq!(client.run("EXISTS c"), Reply::Int(0), "no partial hold is visible");
    client.run("LOCK.RELEASE b y");
    u.granted("u");
    several.assert_silent();
    client.run("LOCK.RELEASE b u");
    let fence = several.granted("m");
    assert!(fence > before);
    for key in ["a", "b", "c"] {
        assert_eq!(client.run(&format!("LOCK.HELD {key} m")).items()[0].int(), fence, "one fence for all");
    }
    z.assert_silent();
    assert_eq!(client.run("MLOCK.RELEASE 3 a b c m"), Reply::Int(3));
    z.granted("z");
}
