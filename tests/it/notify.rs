//! Waiting without blocking: one connection queues for many, and learns by messages what became of each request.

use crate::support::families::{each_way, held, rows, wait_for, Way};
use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Server};
use serde_json::{json, Value as Json};
use std::time::{Duration, Instant};

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

    /// The next message, which must come now.
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

    /// Fails if any message was published before this call: the next one that comes is this call's own.
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

/// Asserts all that every message about `owner` and `k` says, and its outcome.
#[track_caller]
fn assert_outcome(message: &Json, owner: &str, outcome: &str) {
    let said = (&message["key"], &message["token"], &message["outcome"]);
    assert_eq!(said, (&json!("k"), &json!(owner), &json!(outcome)), "{message}");
}

/// As a client that blocks, after 20 ms; and by a message only as long as the user may publish on its channel.
#[test]
fn a_user_that_has_lost_a_permission_is_granted_nothing_and_one_that_has_lost_the_channel_is_told_nothing() {
    let rows = [
        ("+get", Some("granted")),
        ("-lock.acquire", Some("unblocked")),
        ("resetkeys", Some("unblocked")),
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

mod requests {
    use super::*;

    #[test]
    fn a_free_lock_is_granted_in_the_reply_and_nothing_is_published() {
        each_way(quiet, |way, server, client| {
            let mut messages = Subscription::of(server);
            let reply = client.run(&format!("{} BLOCK 0 NOTIFY ch", way.acquire("k", "b")));
            assert!(reply.fence() > 0, "{way:?}");
            messages.assert_none(client);
        });
    }

    #[test]
    fn a_made_token_is_told_in_the_reply() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let mut messages = Subscription::of(&server);
        let reply = client.run("LOCK.ACQUIRE k * BLOCK 0 NOTIFY ch");
        let owner = reply.items()[0].text();
        assert_eq!((owner.len(), &reply.items()[1]), (36, &Reply::Int(0)));
        assert_eq!(queue(&mut client, "k"), [owner]);
        client.run("LOCK.RELEASE k a");
        assert_outcome(&messages.next(), owner, "granted");
    }

    #[test]
    fn notify_without_block_is_a_syntax_error() {
        let server = quiet().start();
        let mut client = server.client();
        let line = "LOCK.ACQUIRE k b NOTIFY ch";
        assert_eq!(client.run(line), Reply::Error("ERR syntax error".into()));
        assert_eq!(client.run("EXISTS k"), Reply::Int(0));
    }

    #[test]
    fn blocked_clients_and_messages_are_one_queue() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        let [mut c] = line_up(&server, "k", ["c"]);
        queue_up(&mut client, "LOCK.ACQUIRE k d PX 60000 BLOCK 0");
        assert_eq!(queue(&mut client, "k"), ["b", "c", "d"]);
        client.run("LOCK.RELEASE k a");
        assert_outcome(&messages.next(), "b", "granted");
        c.assert_silent();
        client.run("LOCK.RELEASE k b");
        c.granted("c");
        client.run("LOCK.RELEASE k c");
        assert_outcome(&messages.next(), "d", "granted");
    }

    #[test]
    fn one_connection_waits_for_a_hundred_and_they_are_served_in_order() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "first");
        for n in 0..100 {
            queue_up(&mut client, &format!("LOCK.ACQUIRE k owner-{n} PX 60000 BLOCK 0"));
        }
        let mut holder = "first".to_string();
        let mut last = 0;
        for n in 0..100 {
            client.run(&format!("LOCK.RELEASE k {holder}"));
            let message = messages.next();
            holder = format!("owner-{n}");
            assert_outcome(&message, &holder, "granted");
            let fence = message["fence"].as_i64().expect("a fence");
            assert!(fence > last);
            last = fence;
        }
        assert_eq!(client.run(&format!("LOCK.RELEASE k {holder}")), Reply::Int(1));
        messages.assert_none(&mut client);
    }

    #[test]
    fn a_retry_takes_its_place_over_and_is_granted_once() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        let [_c] = line_up(&server, "k", ["c"]);
        let mut other = server.client();
        queue_up(&mut other, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        assert_eq!(queue(&mut client, "k"), ["b", "c"]);
        assert_eq!(client.run("LOCK.WAITERS k").items()[0].get("client"), &Reply::Int(other.id()));
        client.run("LOCK.RELEASE k a");
        let mut grants = 0;
        assert_eq!(client.run("PUBLISH ch 0"), Reply::Int(1));
        loop {
            let message = messages.next();
            if message == json!(0) {
                break;
            }
            grants += i32::from(message["outcome"] == "granted");
        }
        assert_eq!(grants, 1);
        assert_eq!(holders(&mut client, "k"), ["b"]);
    }

    #[test]
    fn a_blocked_client_that_asks_anew_without_blocking_is_superseded() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        assert_eq!(b.only_reply(), Reply::Error("UNBLOCKED superseded by a newer request".into()));
        client.run("LOCK.RELEASE k a");
        assert_outcome(&messages.next(), "b", "granted");
    }

    #[test]
    fn who_is_unsure_asks_again_with_the_same_token() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        // Nobody is subscribed: the message is lost.
        client.run("LOCK.RELEASE k a");
        let fence = client.run("LOCK.HELD k b").items()[0].int();
        let again = client.run("LOCK.ACQUIRE k b PX 60000 BLOCK 0 NOTIFY ch");
        assert_eq!(again.fence(), fence, "the grant of which the message was lost");
    }
}

mod outcomes {
    use super::*;

    #[test]
    fn granted_says_all_that_a_reply_would() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        client.run("LOCK.RELEASE k a");
        let message = messages.next();
        let held = client.run("LOCK.HELD k b");
        assert_eq!(
            message,
            json!({"key": "k", "token": "b", "outcome": "granted", "fence": held.items()[0].int(), "holds": 1})
        );

        client.run("RLOCK.ACQUIRE r a");
        queue_up(&mut client, "RLOCK.ACQUIRE r b HOLDS 4 BLOCK 0");
        client.run("RLOCK.RELEASE r a");
        let message = messages.next();
        assert_eq!((&message["holds"], &message["key"]), (&json!(4), &json!("r")));
    }

    #[test]
    fn a_grant_that_no_command_made_is_told_too() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        for end in ["PEXPIRE k 30", "DEL k", "FLUSHALL ASYNC", "RENAME k elsewhere"] {
            hold(&mut client, "k", "a");
            queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
            client.run(end);
            let message = messages.next();
            assert_outcome(&message, "b", "granted");
            assert_eq!(client.run("LOCK.HELD k b").items()[0].int(), message["fence"].as_i64().expect("a fence"));
            client.run("FLUSHALL");
        }
    }

    #[test]
    fn timeout_comes_when_the_time_is_over_and_never_too_early() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        for wait in [20, 150] {
            let start = Instant::now();
            queue_up(&mut client, &format!("LOCK.ACQUIRE k b BLOCK {wait}"));
            let message = messages.next_within(Duration::from_millis(wait) + SOON);
            assert!(ms_since(start) >= u128::from(wait), "{:?}", start.elapsed());
            assert_outcome(&message, "b", "timeout");
            assert_eq!(queue(&mut client, "k"), [""; 0]);
        }
        client.run("LOCK.RELEASE k a");
        assert_eq!(client.run("EXISTS k"), Reply::Int(0));
        messages.assert_none(&mut client);
    }

    #[test]
    fn unblocked_when_the_server_becomes_a_replica() {
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
    fn bytes_that_are_not_utf_8_are_written_as_base64() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        let key: &[u8] = &[0xff, 0x00, b'k'];
        let owner: &[u8] = &[b'b', 0xc3];
        let request = |client: &mut Client, owner: &[u8], rest: &[&[u8]]| {
            let args = [&[b"LOCK.ACQUIRE" as &[u8], key, owner], rest].concat();
            client.cmd(&args)
        };
        request(&mut client, b"a", &[]).fence();
        let queued = request(&mut client, owner, &[b"BLOCK", b"0", b"NOTIFY", b"ch"]);
        assert_eq!(queued.items()[1], Reply::Int(0));
        assert_eq!(client.cmd(&[b"LOCK.RELEASE" as &[u8], key, b"a"]), Reply::Int(1));
        let message = messages.next();
        assert_eq!(message["key"], json!({"base64": "/wBr"}));
        assert_eq!(message["token"], json!({"base64": "YsM="}));
        assert_eq!(message["outcome"], "granted");
    }

    #[test]
    fn any_utf_8_is_a_string() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        let owner = "ü \"quoted\" \\ \n\0 {\"base64\":1} 漢字 %s";
        hold(&mut client, "k", "a");
        client.cmd(&["LOCK.ACQUIRE", "k", owner, "BLOCK", "0", "NOTIFY", "ch"]);
        client.run("LOCK.RELEASE k a");
        assert_outcome(&messages.next(), owner, "granted");
    }

    #[test]
    fn when_a_message_comes_what_it_says_is_already_so() {
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

mod connections {
    use super::*;

    #[test]
    fn when_the_connection_goes_its_requests_leave_and_keep_their_places() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("CONFIG SET lock.keep-place 60000");
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        let mut asker = server.client();
        queue_up(&mut asker, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        let [mut c] = line_up(&server, "k", ["c"]);
        drop(asker);
        until_queue(&mut client, "k", &["c"]);
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        assert_eq!(queue(&mut client, "k"), ["b", "c"]);
        client.run("LOCK.RELEASE k a");
        assert_outcome(&messages.next(), "b", "granted");
        c.assert_silent();
    }

    #[test]
    fn a_connection_that_has_gone_is_passed_over() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let mut asker = server.client();
        for owner in ["b", "c", "d"] {
            queue_up(&mut asker, &format!("LOCK.ACQUIRE k {owner} PX 60000 BLOCK 0"));
        }
        let [mut e] = line_up(&server, "k", ["e"]);
        multi(&mut client, &[&format!("CLIENT KILL ID {}", asker.id()), "LOCK.RELEASE k a"]);
        e.granted("e");
        assert_eq!(holders(&mut client, "k"), ["e"]);
        assert_eq!(queue(&mut client, "k"), [""; 0]);
    }

    #[test]
    fn with_session_a_grant_belongs_to_the_connection_that_asked() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = Subscription::of(&server);
        hold(&mut client, "k", "a");
        let mut asker = server.client();
        let reply = asker.run("LOCK.ACQUIRE k b PX 2000 BLOCK 0 NOTIFY ch SESSION");
        assert_eq!(reply.items()[1], Reply::Int(0));
        client.run("LOCK.RELEASE k a");
        assert_outcome(&messages.next(), "b", "granted");
        until_renewed(&mut client, "k");
        until_renewed(&mut client, "k");
        let info = client.run("LOCK.INFO k");
        assert_eq!(info.get("holders").items()[0].get("session"), &Reply::Int(asker.id()));
        drop(asker);
        until("it is released", || client.run("EXISTS k") == Reply::Int(0));
    }

    #[test]
    fn it_needs_permission_for_the_channel() {
        let server = quiet().start();
        let mut client = server.client();
        client.run("ACL SETUSER u on nopass ~* +@all resetchannels &ch &mine:*");
        hold(&mut client, "k", "a");
        let mut user = server.client();
        assert_eq!(user.run("AUTH u x"), Reply::ok());
        for line in ["LOCK.ACQUIRE k b BLOCK 0 NOTIFY other", "LOCK.ACQUIRE free b BLOCK 0 NOTIFY other"] {
            let refused = user.run(line);
            assert!(refused.error().starts_with("NOPERM "), "{refused:?}");
        }
        assert_eq!(queue(&mut client, "k"), [""; 0]);
        assert_eq!(client.run("EXISTS free"), Reply::Int(0), "an error changes nothing");
        for channel in ["ch", "mine:1"] {
            let reply = user.run(&format!("LOCK.ACQUIRE k {channel} BLOCK 0 NOTIFY {channel}"));
            assert_eq!(reply.items()[1], Reply::Int(0));
        }
    }

    #[test]
    fn the_channel_may_be_any_bytes() {
        let server = quiet().start();
        let mut client = server.client();
        let channel: &[u8] = &[0, 255, b' '];
        let mut messages = server.client();
        messages.cmd(&[b"SUBSCRIBE" as &[u8], channel]);
        hold(&mut client, "k", "a");
        client.cmd(&[b"LOCK.ACQUIRE" as &[u8], b"k", b"b", b"BLOCK", b"0", b"NOTIFY", channel]);
        client.run("LOCK.RELEASE k a");
        let message = messages.read_soon(SOON).expect("a message comes");
        assert_eq!(message.items()[1], Reply::bulk(channel));
    }
}

mod each_family {
    use super::*;

    #[track_caller]
    fn subscribe(server: &Server) -> Client {
        let mut messages = server.client();
        assert_eq!(messages.run("SUBSCRIBE ch").items()[0], Reply::bulk("subscribe"));
        messages
    }

    /// The next message, which must come now.
    #[track_caller]
    fn next(messages: &mut Client) -> Json {
        let message = messages.read_soon(SOON).expect("a message comes");
        serde_json::from_slice(message.items()[2].bytes()).expect("messages are JSON")
    }

    #[track_caller]
    fn queue_up(way: Way, client: &mut Client, owner: &str, wait: &str) {
        let reply = client.run(&format!("{} {LONG} {wait} NOTIFY ch", way.acquire("k", owner)));
        assert_eq!(reply, way.queued(owner), "{way:?}");
    }

    #[track_caller]
    fn assert_outcome(way: Way, message: &Json, owner: &str, outcome: &str) {
        let said = (&message["key"], &message["token"], &message["outcome"]);
        assert_eq!(said, (&json!("k"), &json!(owner), &json!(outcome)), "{way:?}: {message}");
    }

    #[test]
    fn who_waits_without_blocking_is_told_of_its_grant() {
        each_way(quiet, |way, server, client| {
            let mut messages = subscribe(server);
            way.hold(client, "k", "a");
            queue_up(way, client, "b", "BLOCK 0");
            assert_eq!(server.blocked_clients(), 0, "{way:?}");
            let mut c = wait_for(way, server, "k", "c");
            assert_eq!(queue(client, "k"), ["b", "c"]);
            way.give_back(client, "k", "a");
            let message = next(&mut messages);
            assert_outcome(way, &message, "b", "granted");
            let (fence, holds, _) = held(client, "k", "b").expect("it holds");
            assert_eq!((&message["fence"], &message["holds"]), (&json!(fence), &json!(holds)), "{way:?}");
            c.assert_silent();
            way.give_back(client, "k", "b");
            c.granted("c");
        });
    }

    #[test]
    fn timeout_cancelled_wrongtype_and_wrongkind_are_told_too() {
        each_way(quiet, |way, server, client| {
            let mut messages = subscribe(server);
            way.hold(client, "k", "a");
            queue_up(way, client, "b", "BLOCK 30");
            assert_outcome(way, &next(&mut messages), "b", "timeout");
            queue_up(way, client, "c", "BLOCK 0");
            assert_eq!(client.run("LOCK.CANCEL k c"), Reply::Int(1));
            assert_outcome(way, &next(&mut messages), "c", "cancelled");
            queue_up(way, client, "d", "BLOCK 0");
            client.run("SET k v");
            assert_outcome(way, &next(&mut messages), "d", "wrongtype");
            client.run("FLUSHALL");
            way.hold(client, "k", "a");
            queue_up(way, client, "e", "BLOCK 0");
            client.run(if way.kind == "rw" { "SEM.ACQUIRE other x LIMIT 2" } else { "RWLOCK.ACQUIRE other x READ" });
            client.run("RENAME other k");
            assert_outcome(way, &next(&mut messages), "e", "wrongkind");
            assert_nobody_waits(server, &["k"]);
        });
    }

    #[test]
    fn readers_that_are_granted_together_are_all_told() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = subscribe(&server);
        client.run("RWLOCK.ACQUIRE k a WRITE PX 60000");
        for n in 0..20 {
            let line = format!("RWLOCK.ACQUIRE k r{n} READ HOLDS 2 PX 60000 BLOCK 0 NOTIFY ch");
            assert_eq!(client.run(&line).items()[1], Reply::Int(0));
        }
        client.run("RWLOCK.RELEASE k a WRITE");
        let mut last = 0;
        for n in 0..20 {
            let message = next(&mut messages);
            assert_eq!((&message["token"], &message["holds"]), (&json!(format!("r{n}")), &json!(2)));
            let fence = message["fence"].as_i64().expect("a fence");
            assert!(fence > last);
            last = fence;
        }
        assert_eq!(rows(&mut client, "k").len(), 20);
    }

    #[test]
    fn a_request_whose_own_limit_admits_it_is_queued_and_told() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = subscribe(&server);
        client.run("SEM.ACQUIRE k a LIMIT 1 PX 60000");
        for (owner, limit) in [("b", 1), ("c", 3)] {
            let line = format!("SEM.ACQUIRE k {owner} LIMIT {limit} PX 60000 BLOCK 0 NOTIFY ch");
            assert_eq!(client.run(&line).items()[1], Reply::Int(0));
        }
        for owner in ["b", "c"] {
            let message = next(&mut messages);
            assert_eq!((&message["token"], &message["outcome"]), (&json!(owner), &json!("granted")));
        }
        assert_nobody_waits(&server, &["k"]);
    }

    #[test]
    fn a_refusal_by_a_smaller_limit_is_told() {
        let server = quiet().start();
        let mut client = server.client();
        let mut messages = subscribe(&server);
        client.run("SEM.ACQUIRE k a LIMIT 4 HOLDS 2 PX 60000");
        client.run("SEM.ACQUIRE k b LIMIT 4 PERMITS 4 BLOCK 0 NOTIFY ch");
        client.run("SEM.ACQUIRE k a LIMIT 3 HOLDS 2 PX 60000");
        let message = next(&mut messages);
        assert_eq!((&message["token"], &message["outcome"]), (&json!("b"), &json!("unblocked")));
    }
}
