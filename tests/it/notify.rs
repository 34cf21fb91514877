//! Waiting without blocking: one connection queues for many, and learns by messages what became of each request.

use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Server};
use serde_json::{json, Value as Json};
use std::time::{Duration, Instant};

/// A subscription to the channel `ch`.
struct News {
    client: Client,
}

impl News {
    #[track_caller]
    fn of(server: &Server) -> News {
        let mut client = server.client();
        assert_eq!(client.run("SUBSCRIBE ch").items()[0], Reply::bulk("subscribe"));
        News { client }
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

mod requests {
    use super::*;

    #[test]
    fn it_answers_at_once_that_it_is_queued_and_blocks_nobody() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        client.run("RLOCK.ACQUIRE r a");
        let queued = client.run("LOCK.ACQUIRE k b BLOCK 0 NOTIFY ch");
        assert_eq!(queued, Reply::Array(vec![Reply::bulk("b"), Reply::Int(0)]));
        let queued = client.run("RLOCK.ACQUIRE r b BLOCK 0 NOTIFY ch");
        assert_eq!(queued, Reply::Array(vec![Reply::bulk("b"), Reply::Int(0), Reply::Int(0)]));
        assert_eq!(server.blocked_clients(), 0);
        assert_eq!(queue(&mut client, "k"), ["b"]);
        assert_eq!(queue(&mut client, "r"), ["b"]);
    }

    #[test]
    fn a_free_lock_is_granted_in_the_reply_and_nothing_is_published() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        assert!(client.run("LOCK.ACQUIRE k b BLOCK 0 NOTIFY ch").fence() > 0);
        assert!(client.run("RLOCK.ACQUIRE r b BLOCK 0 NOTIFY ch").fence() > 0);
        news.assert_none(&mut client);
    }

    #[test]
    fn a_made_token_is_told_in_the_reply() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let mut news = News::of(&server);
        let reply = client.run("LOCK.ACQUIRE k * BLOCK 0 NOTIFY ch");
        let owner = reply.items()[0].text();
        assert_eq!((owner.len(), &reply.items()[1]), (36, &Reply::Int(0)));
        assert_eq!(queue(&mut client, "k"), [owner]);
        client.run("LOCK.RELEASE k a");
        assert_outcome(&news.next(), owner, "granted");
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
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        let [mut c] = line_up(&server, "k", ["c"]);
        queue_up(&mut client, "LOCK.ACQUIRE k d PX 60000 BLOCK 0");
        assert_eq!(queue(&mut client, "k"), ["b", "c", "d"]);
        client.run("LOCK.RELEASE k a");
        assert_outcome(&news.next(), "b", "granted");
        c.assert_silent();
        client.run("LOCK.RELEASE k b");
        c.granted("c");
        client.run("LOCK.RELEASE k c");
        assert_outcome(&news.next(), "d", "granted");
    }

    #[test]
    fn one_connection_waits_for_a_hundred_and_they_are_served_in_order() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        hold(&mut client, "k", "first");
        for n in 0..100 {
            queue_up(&mut client, &format!("LOCK.ACQUIRE k owner-{n} PX 60000 BLOCK 0"));
        }
        let mut holder = "first".to_string();
        let mut last = 0;
        for n in 0..100 {
            client.run(&format!("LOCK.RELEASE k {holder}"));
            let message = news.next();
            holder = format!("owner-{n}");
            assert_outcome(&message, &holder, "granted");
            let fence = message["fence"].as_i64().expect("a fence");
            assert!(fence > last);
            last = fence;
        }
        assert_eq!(client.run(&format!("LOCK.RELEASE k {holder}")), Reply::Int(1));
        news.assert_none(&mut client);
    }

    #[test]
    fn a_retry_takes_its_place_over_and_is_granted_once() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
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
            let message = news.next();
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
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        assert_eq!(b.only_reply(), Reply::Error("UNBLOCKED superseded by a newer request".into()));
        client.run("LOCK.RELEASE k a");
        assert_outcome(&news.next(), "b", "granted");
    }

    #[test]
    fn who_is_unsure_asks_again_with_the_same_token() {
        let server = quiet().start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        // Nobody is subscribed: the message is lost.
        client.run("LOCK.RELEASE k a");
        assert!(client.run("LOCK.ACQUIRE k b PX 60000 BLOCK 0 NOTIFY ch").fence() > 0);
    }
}

mod outcomes {
    use super::*;

    #[test]
    fn granted_says_all_that_a_reply_would() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        client.run("LOCK.RELEASE k a");
        let message = news.next();
        let held = client.run("LOCK.HELD k b");
        assert_eq!(
            message,
            json!({"key": "k", "token": "b", "outcome": "granted", "fence": held.items()[0].int(), "holds": 1})
        );

        client.run("RLOCK.ACQUIRE r a");
        queue_up(&mut client, "RLOCK.ACQUIRE r b HOLDS 4 BLOCK 0");
        client.run("RLOCK.RELEASE r a");
        let message = news.next();
        assert_eq!((&message["holds"], &message["key"]), (&json!(4), &json!("r")));
    }

    #[test]
    fn a_grant_that_no_command_made_is_told_too() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        for end in ["PEXPIRE k 30", "DEL k", "FLUSHALL ASYNC", "RENAME k elsewhere"] {
            hold(&mut client, "k", "a");
            queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
            client.run(end);
            let message = news.next();
            assert_outcome(&message, "b", "granted");
            assert_eq!(client.run("LOCK.HELD k b").items()[0].int(), message["fence"].as_i64().expect("a fence"));
            client.run("FLUSHALL");
        }
    }

    #[test]
    fn timeout_comes_exactly_when_the_time_is_over() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        for wait in [20, 150] {
            let start = Instant::now();
            queue_up(&mut client, &format!("LOCK.ACQUIRE k b BLOCK {wait}"));
            let message = news.next_within(Duration::from_millis(wait) + SOON);
            assert!(ms_since(start) >= u128::from(wait), "{:?}", start.elapsed());
            assert_outcome(&message, "b", "timeout");
            assert_eq!(queue(&mut client, "k"), [""; 0]);
        }
        client.run("LOCK.RELEASE k a");
        assert_eq!(client.run("EXISTS k"), Reply::Int(0));
        news.assert_none(&mut client);
    }

    #[test]
    fn cancelled_by_lock_cancel() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b BLOCK 0");
        assert_eq!(client.run("LOCK.CANCEL k b"), Reply::Int(1));
        assert_outcome(&news.next(), "b", "cancelled");
        assert_eq!(client.run("LOCK.CANCEL k b"), Reply::Int(0));
        client.run("LOCK.RELEASE k a");
        news.assert_none(&mut client);
    }

    #[test]
    fn wrongtype_and_wrongkind_when_the_key_became_something_else() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b BLOCK 0");
        client.run("SET k v");
        assert_outcome(&news.next(), "b", "wrongtype");
        client.run("DEL k");

        hold(&mut client, "k", "a");
        client.run("RLOCK.ACQUIRE r a");
        queue_up(&mut client, "LOCK.ACQUIRE k b BLOCK 0");
        client.run("RENAME r k");
        assert_outcome(&news.next(), "b", "wrongkind");
        assert_eq!(queue(&mut client, "k"), [""; 0]);
    }

    #[test]
    fn unblocked_when_the_server_becomes_a_replica() {
        let master = Server::start();
        let server = Server::start();
        let mut client = server.client();
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        queue_up(&mut client, "LOCK.ACQUIRE k b BLOCK 0");
        client.run(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        assert_outcome(&news.next(), "b", "unblocked");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_written_as_base64() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
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
        let message = news.next();
        assert_eq!(message["key"], json!({"base64": "/wBr"}));
        assert_eq!(message["token"], json!({"base64": "YsM="}));
        assert_eq!(message["outcome"], "granted");
    }

    #[test]
    fn any_utf_8_is_a_string() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        let owner = "ü \"quoted\" \\ \n\0 {\"base64\":1} 漢字 %s";
        hold(&mut client, "k", "a");
        client.cmd(&["LOCK.ACQUIRE", "k", owner, "BLOCK", "0", "NOTIFY", "ch"]);
        client.run("LOCK.RELEASE k a");
        assert_outcome(&news.next(), owner, "granted");
    }

    #[test]
    fn when_a_message_comes_what_it_says_is_already_so() {
        let server = quiet().start();
        let mut client = server.client();
        let mut news = News::of(&server);
        let mut reader = server.client();
        for n in 0..20 {
            let key = format!("k{n}");
            hold(&mut client, &key, "a");
            queue_up(&mut client, &format!("LOCK.ACQUIRE {key} b PX 60000 BLOCK 0"));
            client.send_line(&format!("{} {key}", if n % 2 == 0 { "DEL" } else { "UNLINK" }));
            let fence = news.next()["fence"].as_i64().expect("a fence");
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
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        let mut asker = server.client();
        queue_up(&mut asker, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        let [mut c] = line_up(&server, "k", ["c"]);
        drop(asker);
        until_queue(&mut client, "k", &["c"]);
        queue_up(&mut client, "LOCK.ACQUIRE k b PX 60000 BLOCK 0");
        assert_eq!(queue(&mut client, "k"), ["b", "c"]);
        client.run("LOCK.RELEASE k a");
        assert_outcome(&news.next(), "b", "granted");
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
        let mut news = News::of(&server);
        hold(&mut client, "k", "a");
        let mut asker = server.client();
        let reply = asker.run("LOCK.ACQUIRE k b PX 2000 BLOCK 0 NOTIFY ch SESSION");
        assert_eq!(reply.items()[1], Reply::Int(0));
        client.run("LOCK.RELEASE k a");
        assert_outcome(&news.next(), "b", "granted");
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
        let mut news = server.client();
        news.cmd(&[b"SUBSCRIBE" as &[u8], channel]);
        hold(&mut client, "k", "a");
        client.cmd(&[b"LOCK.ACQUIRE" as &[u8], b"k", b"b", b"BLOCK", b"0", b"NOTIFY", channel]);
        client.run("LOCK.RELEASE k a");
        let message = news.read_soon(SOON).expect("a message comes");
        assert_eq!(message.items()[1], Reply::bulk(channel));
    }
}
