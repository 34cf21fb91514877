//! The precision of timeouts, LOCK.WAITERS on a replica, WAIT after a hand-off.

use crate::support::waiting::*;
use crate::support::{Client, Reply, Server, LIMIT};
use std::time::{Duration, Instant};

#[test]
fn timeouts_are_precise_to_a_few_milliseconds() {
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
    // The median, because a busy machine may delay some. The server's own timeouts would be 50 ms late on average.
    assert!(late[late.len() / 2] < Duration::from_millis(25), "{late:?}");
}

/// The server runs commands queued after a blocking command just before it sleeps.
#[test]
fn a_timeout_behind_another_wait_is_equally_precise() {
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
        assert!(b.read_soon(SOON).expect("10 ms had passed").is_nil(), "{wait}");
    }
}

#[test]
fn many_simultaneous_timeouts_all_get_replies() {
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
    assert_no_waiters(&server, &["k"]);
    assert_eq!(client.run("LOCK.RELEASE k a"), Reply::Int(1));
    assert_eq!(client.run("EXISTS k"), Reply::Int(0));
}

mod lock_waiters {
    use super::*;

    #[test]
    fn it_works_on_a_replica_which_has_no_waiters() {
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

        // While the replica does nothing, it cannot have the grant, and WAIT must say so. It sleeps long enough even if
        // everything else pauses for a second or two.
        let mut asleep = put_to_sleep(&replica, Duration::from_millis(2500));
        client.run("LOCK.RELEASE k a");
        b.granted("b");
        assert_eq!(b.client.run("WAIT 1 50"), Reply::Int(0));
        assert_eq!(asleep.read(), Reply::ok());
        assert_eq!(b.client.run("WAIT 1 20000"), Reply::Int(1));
        assert_eq!(holders(&mut replica.client(), "k"), ["b"]);
    }
}
