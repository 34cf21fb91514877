//! When a lease expires, the next waiter is granted the lock within milliseconds and never too early, by the clocks of
//! a running server.

use super::*;

#[test]
fn never_too_early() {
    let server = quiet().start();
    let mut client = server.client();
    for lease in [1, 40, 90, 250] {
        let key = format!("k{lease}");
        let start = Instant::now();
        client.run(&format!("LOCK.ACQUIRE {key} a PX {lease}"));
        let reply = client.run(&format!("LOCK.ACQUIRE {key} b BLOCK 0"));
        assert_eq!(reply.items()[0], Reply::bulk("b"));
        assert!(ms_since(start) >= lease, "{lease} ms were {:?}", start.elapsed());
    }
}

#[test]
fn wake_ups_are_precise_to_a_few_milliseconds() {
    let server = quiet().start();
    let mut client = server.client();
    let mut late: Vec<Duration> = (0..15)
        .map(|n| {
            let lease = Duration::from_millis(20 + 3 * n);
            let mut watch = client.stopwatch();
            client.run(&format!("LOCK.ACQUIRE k{n} a PX {}", lease.as_millis()));
            client.send_line(&format!("LOCK.ACQUIRE k{n} b BLOCK 0"));
            client.read_by(&mut watch, LIMIT).expect("it is granted");
            watch.elapsed().saturating_sub(lease)
        })
        .collect();
    late.sort();
    // The median, because a busy machine may delay some. The server's own expiry, ten times a second, would be later.
    assert!(late[late.len() / 2] < Duration::from_millis(25), "{late:?}");
}

#[test]
fn it_does_not_depend_on_the_servers_own_expiry() {
    let server = quiet().start();
    let mut client = server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let start = Instant::now();
    client.run("LOCK.RENEW k a PX 100");
    b.granted("b");
    assert!(ms_since(start) >= 100);
}
