//! LOCK.TOP: the number of results, and a replica.

use super::{NOT_AN_INTEGER, SYNTAX};
use crate::support::waiting::*;
use crate::support::{Client, Reply, Server};

/// Database, key and number of waiters of each.
#[track_caller]
fn top(client: &mut Client, options: &str) -> Vec<(i64, String, i64)> {
    let top = client.run(&format!("LOCK.TOP {options}"));
    let lock = |lock: &Reply| (lock.get("db").int(), lock.get("key").text().to_string(), lock.get("waiters").int());
    top.items().iter().map(lock).collect()
}

#[test]
fn ten_or_as_many_as_count_says_are_listed() {
    let server = quiet().start();
    let mut client = server.client();
    let mut notified = server.client();
    for number in 0..12 {
        hold(&mut client, &format!("k{number}"), "a");
        notified.run(&format!("LOCK.ACQUIRE k{number} b BLOCK 0 NOTIFY ch"));
    }
    for (options, listed) in [("", 10), ("COUNT 1", 1), ("COUNT 11", 11), ("count 1000", 12)] {
        assert_eq!(top(&mut client, options).len(), listed, "{options}");
    }
    for count in ["0", "1001", "-1", "x", "1.5"] {
        let error = format!("{NOT_AN_INTEGER}: COUNT '{count}'");
        assert_eq!(client.run(&format!("LOCK.TOP COUNT {count}")).error(), error, "{count}");
    }
    for options in ["COUNT", "5", "COUNT 5 COUNT 5", "LIMIT 5", "COUNT 5 k"] {
        assert!(client.run(&format!("LOCK.TOP {options}")).error().starts_with(SYNTAX), "{options}");
    }
}

#[test]
fn it_is_empty_on_a_replica() {
    let master = Server::start();
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let mut notified = server.client();
    notified.run("LOCK.ACQUIRE k b BLOCK 0 NOTIFY ch");
    let [mut c] = line_up(&server, "k", ["c"]);
    assert_eq!(top(&mut client, ""), [(0, "k".to_string(), 2)]);
    let demote = format!("REPLICAOF 127.0.0.1 {}", master.port());
    // In the same write: not even waiters that have not been dismissed yet are returned.
    let replies = client.pipeline(&[demote.as_str(), "LOCK.TOP"]);
    assert_eq!(replies, [Reply::ok(), Reply::Array(vec![])]);
    assert!(c.reply().error().starts_with("UNBLOCKED "));
    assert_eq!(client.run("LOCK.TOP"), Reply::Array(vec![]));
}
