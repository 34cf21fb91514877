//! A flush that ends hundreds of locks at once, or a lock with a thousand waiters.

use super::*;

#[test]
fn flushall_async_with_a_thousand_waiters_makes_one_grant_for_each_key() {
    let server = quiet().start();
    let mut client = server.client();
    let keys: Vec<String> = (0..500).map(|n| format!("k{n}")).collect();
    for key in &keys {
        hold(&mut client, key, "a");
    }
    let mut waiters: Vec<[Client; 2]> = Vec::new();
    for key in &keys {
        let mut pair = [server.client(), server.client()];
        for (waiter, owner) in pair.iter_mut().zip(["b", "c"]) {
            waiter.send_line(&format!("LOCK.ACQUIRE {key} {owner} {LONG} BLOCK 0"));
        }
        waiters.push(pair);
    }
    server.wait_blocked(1000);
    let next: Vec<String> = keys.iter().map(|key| queue(&mut client, key).remove(0)).collect();

    assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok());
    let mut fences = Vec::new();
    for (n, key) in keys.iter().enumerate() {
        let winner = usize::from(next[n] == "c");
        let grant = waiters[n][winner].read();
        assert_eq!(grant.items()[0], Reply::bulk(&next[n]));
        fences.push(grant.fence());
        assert_eq!(holders(&mut client, key), [next[n].clone()]);
        assert_eq!(queue(&mut client, key).len(), 1);
    }
    assert_eq!(server.blocked_clients(), 500);
    fences.sort();
    fences.dedup();
    assert_eq!(fences.len(), 500, "no fence twice");

    assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok());
    for (n, pair) in waiters.iter_mut().enumerate() {
        let other = usize::from(next[n] == "b");
        assert!(pair[other].read().fence() > 0);
    }
    server.wait_blocked(0);
}

#[test]
fn flushall_async_with_a_thousand_waiters_for_one_key_serves_one() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut waiters: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send_line(&format!("LOCK.ACQUIRE k {n} {LONG} BLOCK 0"));
    }
    server.wait_blocked(1000);
    let order = queue(&mut client, "k");
    assert_eq!(client.run("FLUSHALL ASYNC"), Reply::ok());
    let first: usize = order[0].parse().expect("owners are numbers");
    assert_eq!(waiters[first].read().items()[0], Reply::bulk(&order[0]));
    assert_eq!(queue(&mut client, "k"), order[1..]);
    assert_eq!(server.blocked_clients(), 999);
}

/// Beyond this many events in one iteration, removals of locks are not recorded one by one. A closed connection is an
/// event.
const MANY: usize = 300;

/// Closes `MANY` connections and sends the lines in the same iteration. Returns the replies to the lines.
fn after_many_events<const N: usize>(server: &Server, client: &mut Client, lines: [&str; N]) -> [Reply; N] {
    let mut others: Vec<Client> = (0..MANY).map(|_| server.client()).collect();
    // The server accepts a limited number of connections per event-loop iteration.
    others.iter_mut().for_each(|other| _ = other.run("PING"));
    let all: Vec<&str> = ["CLIENT KILL TYPE normal SKIPME yes"].into_iter().chain(lines).collect();
    let mut replies = client.pipeline(&all);
    assert_eq!(replies.remove(0), Reply::Int(MANY as i64));
    replies.try_into().expect("a reply for each line")
}

/// A connection that stays open.
fn subscriber(server: &Server) -> Client {
    let mut client = server.client().into_resp3();
    client.send_line("SUBSCRIBE outcomes");
    assert!(client.next_push(LIMIT).is_some());
    client
}

#[test]
fn a_lock_removed_after_many_events_has_no_holder_and_is_handed_off() {
    let server = quiet().start();
    let (mut client, mut waiter) = (server.client(), subscriber(&server));
    [("k", "a"), ("of-b", "b")].into_iter().for_each(|(key, owner)| _ = hold(&mut client, key, owner));
    waiter.run(&format!("LOCK.ACQUIRE k b {LONG} BLOCK 0 NOTIFY outcomes"));
    let [deleted, asked] =
        after_many_events(&server, &mut client, ["DEL k", &format!("LOCK.ACQUIRE of-b a {LONG} BLOCK 1")]);
    assert_eq!(deleted, Reply::Int(1));
    assert!(asked.is_nil(), "a holds nothing that b waits for: {asked:?}");
    until("b holds it", || holders(&mut client, "k") == ["b"]);
}

#[test]
fn a_lock_removed_after_many_events_and_restored_is_no_longer_bound() {
    let server = quiet().start();
    let (mut client, mut session) = (server.client(), subscriber(&server));
    for key in ["restored", "bound"] {
        assert!(session.run(&format!("LOCK.ACQUIRE {key} s {LONG} SESSION")).fence() > 0);
    }
    let script = "local stored = redis.call('DUMP', 'restored')
        redis.call('DEL', 'restored')
        return redis.call('RESTORE', 'restored', 60000, stored)";
    let sha = client.cmd(&["SCRIPT", "LOAD", script]);
    let [restored] = after_many_events(&server, &mut client, [&format!("EVALSHA {} 0", sha.text())]);
    assert_eq!(restored, Reply::ok());
    drop(session);
    until("the connection's end has come", || holders(&mut client, "bound").is_empty());
    assert_eq!(holders(&mut client, "restored"), ["s"]);
}

#[test]
fn a_lock_moved_after_many_events_closes_a_deadlock_under_its_new_key() {
    let server = quiet().start();
    let (mut client, mut waiter) = (server.client(), subscriber(&server));
    for (key, owner) in [("moved", "a"), ("of-b", "b"), ("of-c", "c")] {
        hold(&mut client, key, owner);
    }
    waiter.run(&format!("MLOCK.ACQUIRE 2 free of-c b {LONG} BLOCK 0 NOTIFY outcomes"));
    let asks = format!("LOCK.ACQUIRE of-b a {LONG} BLOCK 1");
    let [renamed, asked] = after_many_events(&server, &mut client, ["RENAME moved free", &asks]);
    assert_eq!(renamed, Reply::ok());
    assert!(asked.error().starts_with("DEADLOCK "), "{asked:?}");
}

/// Fencing tokens show the order of the grants.
#[test]
fn queues_due_in_one_iteration_are_served_in_the_order_of_arrival() {
    let server = quiet().start();
    let mut client = server.client();
    let keys = ["m", "c", "z", "a", "k", "x", "b", "y", "d", "w", "f", "n"];
    for end in ["FLUSHALL", "DEL m c z a k x b y d w f n", "SWAPDB 0 1"] {
        keys.iter().for_each(|key| _ = hold(&mut client, key, "holder"));
        let mut waiters: Vec<Waiter> =
            keys.iter().map(|key| Waiter::park(&server, &format!("LOCK.ACQUIRE {key} {key} {LONG} BLOCK 0"))).collect();
        assert!(!client.run(end).is_error());
        let fences: Vec<i64> = waiters.iter_mut().zip(keys).map(|(waiter, key)| waiter.granted(key)).collect();
        assert!(fences.is_sorted(), "{end}: {fences:?}");
        client.run("FLUSHALL");
    }
}
