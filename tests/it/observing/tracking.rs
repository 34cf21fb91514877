//! Client tracking notifies a holder that its lock is gone.

use std::time::Duration;

use crate::support::waiting::*;
use crate::support::{Client, Reply, Server};

/// A holder that has read its lock with CLIENT TRACKING on.
fn holder(server: &Server, read: &str) -> Client {
    let mut holder = server.client3();
    holder.run("LOCK.ACQUIRE k a PX 60000").fence();
    assert_eq!(holder.run("CLIENT TRACKING on"), Reply::ok());
    holder.run(read);
    holder
}

#[track_caller]
fn assert_notified(holder: &mut Client, what: &str) {
    let push = holder.next_push(crate::support::LIMIT).unwrap_or_else(|| panic!("{what}: it is not notified"));
    let [kind, keys] = push.items() else { panic!("{push:?}") };
    assert_eq!((kind.text(), keys.items()), ("invalidate", &[Reply::bulk("k")][..]), "{what}");
}

#[test]
fn a_holder_is_notified_however_its_lock_changes_hands() {
    for read in ["LOCK.HELD k a", "LOCK.INFO k"] {
        for end in ["LOCK.RELEASE k a", "LOCK.BREAK k", "DEL k", "PEXPIRE k 1"] {
            for is_waited_for in [false, true] {
                let server = quiet().start();
                let mut client = server.client();
                let mut holder = holder(&server, read);
                let mut b = is_waited_for.then(|| line_up(&server, "k", ["b"]));
                client.run(end);
                if let Some([b]) = &mut b {
                    b.granted("b");
                }
                assert_notified(&mut holder, &format!("{read}, {end}, {is_waited_for}"));
            }
        }
    }
}

#[test]
fn a_holder_is_not_notified_while_nothing_changes() {
    let server = quiet().start();
    let mut client = server.client();
    let mut holder = holder(&server, "LOCK.HELD k a");
    assert!(client.run("LOCK.ACQUIRE k b").is_nil());
    let [_b] = line_up(&server, "k", ["b"]);
    client.run("LOCK.INFO k");
    holder.run("PING");
    assert_eq!(holder.next_push(Duration::from_millis(20)), None);
}
