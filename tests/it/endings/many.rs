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

/// Fences show the order of the grants.
#[test]
fn queues_that_are_due_in_one_turn_are_served_in_the_order_of_their_arrival() {
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
