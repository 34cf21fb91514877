//! Waiting without blocking: one connection queues many requests, and a message reports the outcome of each.

use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Server};
use serde_json::{json, Value as Json};
use std::time::Duration;

/// A subscription to the channel `ch`.
struct Subscription {
    client: Client,
}

impl Subscription {
    #[track_caller]
    fn of(server: &Server) -> Subscription {
        let mut client = server.client();
        assert_eq!(client.run("SUBSCRIBE ch").items()[0], Reply::bulk("subscribe"));
        Subscription { client }
    }

    /// The next message, which must arrive now.
    #[track_caller]
    fn next(&mut self) -> Json {
        self.next_within(SOON)
    }

    #[track_caller]
    fn next_within(&mut self, limit: Duration) -> Json {
        let message = self.client.read_soon(limit).expect("a message comes");
        let parts = message.items();
        assert_eq!(parts[..2], [Reply::bulk("message"), Reply::bulk("ch")]);
        serde_json::from_slice(parts[2].bytes()).expect("messages are JSON")
    }

    /// Fails if a message was published before this call, so that the next one belongs to this call.
    #[track_caller]
    fn assert_none(&mut self, publisher: &mut Client) {
        assert_eq!(publisher.run("PUBLISH ch 0"), Reply::Int(1));
        assert_eq!(self.next(), json!(0));
    }
}

/// Queues a request that must not be granted yet.
#[track_caller]
fn queue_up(client: &mut Client, line: &str) {
    let reply = client.run(&format!("{line} NOTIFY ch"));
    let owner = line.split(' ').nth(2).expect("an owner");
    assert_eq!(reply.items()[..2], [Reply::bulk(owner), Reply::Int(0)], "queued");
}

/// Asserts the fields of a message about `owner` and `k`, and its outcome.
#[track_caller]
fn assert_outcome(message: &Json, owner: &str, outcome: &str) {
    let said = (&message["key"], &message["token"], &message["outcome"]);
    assert_eq!(said, (&json!("k"), &json!(owner), &json!(outcome)), "{message}");
}

/// Like a blocked client, its permissions are checked again after 20 ms; and it gets a message only while the user may
/// publish on its channel.
#[test]
fn a_user_without_permission_is_granted_nothing_and_without_the_channel_gets_no_message() {
    let rows = [
        ("+get", Some("granted")),
        ("-lock.acquire", Some("noperm")),
        ("resetkeys", Some("noperm")),
        ("resetchannels", None),
        ("resetchannels &other", None),
        ("reset on", None),
    ];
    let parked = rows.map(|(change, outcome)| {
        let server = quiet().start();
        let (mut client, mut worker) = (server.client(), server.client());
        let messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        client.run("ACL SETUSER worker on nopass ~k resetchannels &ch +lock.acquire");
        worker.run("AUTH worker any");
        queue_up(&mut worker, &format!("LOCK.ACQUIRE k b {LONG} BLOCK 60000"));
        let [c] = line_up(&server, "k", ["c"]);
        (server, client, worker, messages, c, change, outcome)
    });
    for (_server, mut client, _worker, mut messages, mut c, change, outcome) in parked {
        let mut waited = || client.run("LOCK.WAITERS k").items()[0].get("waited").int();
        until("it has waited for 20 ms", || waited() > 20);
        assert_eq!(client.run(&format!("ACL SETUSER worker {change}")), Reply::ok());
        client.run("LOCK.RELEASE k a");
        match outcome {
            Some("granted") => {
                assert_outcome(&messages.next(), "b", "granted");
                client.run("LOCK.RELEASE k b");
            }
            Some(outcome) => assert_outcome(&messages.next(), "b", outcome),
            None => messages.assert_none(&mut client),
        }
        c.granted("c");
    }
}

mod outcomes {
    use super::*;

    #[test]
    fn a_demotion_is_published_as_unblocked() {
        let master = Server::start();
        let server = Server::start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b BLOCK 0");
        client.run(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        assert_outcome(&messages.next(), "b", "unblocked");
    }

    #[test]
    fn a_message_is_published_after_its_change() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        let mut reader = server.client();
        for n in 0..20 {
            let key = format!("k{n}");
            hold(&mut client, &key, "a");
            queue_up(&mut client, &format!("LOCK.ACQUIRE {key} b PX 60000 BLOCK 0"));
            client.send_line(&format!("{} {key}", if n % 2 == 0 { "DEL" } else { "UNLINK" }));
            let fence = messages.next()["fence"].as_i64().expect("a fence");
            assert_eq!(reader.run(&format!("LOCK.HELD {key} b")).items()[0].int(), fence);
            client.read();
        }
    }
}
