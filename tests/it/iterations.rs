//! When thousands become admissible at once, the server grants them over multiple event-loop iterations in queue order,
//! and no other request gets ahead of them. Requests of one pipeline run between the first of these iterations and the
//! next.

use crate::support::waiting::*;
use crate::support::{until, Client, Reply, Server};
use serde_json::Value as Json;
use std::collections::{BTreeSet, HashMap};

/// More than the server serves in one iteration.
const MANY: usize = 5_000;

/// A server with that many waiters, a subscriber to their outcomes, and a connection to work with.
struct Crowd {
    server: Server,
    messages: Client,
    client: Client,
    /// The owners reported as granted, in this order, with their fencing tokens.
    granted: Vec<(String, u64)>,
    /// Other outcomes that were reported.
    others: HashMap<String, String>,
}

impl Crowd {
    fn new() -> Crowd {
        let server = quiet().start();
        let (mut messages, client) = (server.client(), server.client());
        assert_eq!(messages.run("SUBSCRIBE ch").items()[0], Reply::bulk("subscribe"));
        Crowd { server, messages, client, granted: Vec::new(), others: HashMap::new() }
    }

    /// Readers 0, 1, 2, … queued after a writer.
    fn of_readers() -> Crowd {
        let mut crowd = Crowd::new();
        assert!(crowd.client.run(&format!("RWLOCK.ACQUIRE k writer WRITE {LONG}")).fence() > 0);
        crowd.wait(|n| format!("RWLOCK.ACQUIRE k {n} READ"));
        crowd
    }

    /// Queues the request of each number.
    fn wait(&mut self, request: impl Fn(usize) -> String) {
        let requests: Vec<String> = (0..MANY).map(|n| format!("{} {LONG} BLOCK 0 NOTIFY ch", request(n))).collect();
        let replies = self.client.pipeline(&requests);
        assert!(replies.iter().all(|reply| reply.items()[1] == Reply::Int(0)), "all wait");
    }

    #[track_caller]
    fn read_outcomes(&mut self, count: usize) {
        for _ in 0..count {
            let message = self.messages.read_soon(SOON).expect("a message comes");
            let message: Json = serde_json::from_slice(message.items()[2].bytes()).expect("messages are JSON");
            let owner = message["token"].as_str().expect("of whom").to_owned();
            match message["outcome"].as_str().expect("what") {
                "granted" => self.granted.push((owner, message["fence"].as_u64().expect("a fence"))),
                other => _ = self.others.insert(owner, other.to_owned()),
            }
        }
    }

    /// Checks that owners were granted in queue order, which is also the order of their fencing tokens.
    #[track_caller]
    fn assert_in_order(&self, expected: impl IntoIterator<Item = usize>) {
        let owners: Vec<&str> = self.granted.iter().map(|(owner, _)| &**owner).collect();
        let expected: Vec<String> = expected.into_iter().map(|n| n.to_string()).collect();
        assert_eq!(owners, expected);
        assert!(self.granted.iter().map(|(_, fence)| fence).is_sorted(), "fences are in the order of the queue");
    }
}

const RELEASE: &str = "RWLOCK.RELEASE k writer WRITE";

#[test]
fn a_new_request_waits_until_all_admissible_ones_are_granted() {
    let mut crowd = Crowd::of_readers();
    let replies = crowd.client.pipeline(&[
        RELEASE.to_owned(),
        "LOCK.WAITERS k COUNT 0".to_owned(),
        format!("RWLOCK.ACQUIRE k hasty READ {LONG}"),
        format!("RWLOCK.ACQUIRE k newcomer READ {LONG} BLOCK 0 NOTIFY ch"),
        "RWLOCK.RELEASE k 0 READ".to_owned(),
        format!("RWLOCK.ACQUIRE k 1 READ {LONG}"),
    ]);
    assert!(!replies[1].items().is_empty(), "one iteration does not serve them all");
    assert!(replies[2].is_nil(), "{:?}", replies[2]);
    assert_eq!(replies[3].items()[1], Reply::Int(0), "it waits");
    assert_eq!((&replies[4], &replies[5].items()[2]), (&Reply::Int(0), &Reply::Int(2)), "holders continue as before");
    crowd.read_outcomes(MANY + 1);
    let (newcomer, _) = crowd.granted.last().expect("all were granted");
    assert_eq!(newcomer, "newcomer");
    crowd.granted.pop();
    crowd.assert_in_order(0..MANY);
    assert_eq!(holders(&mut crowd.client, "k").len(), MANY, "without the first, with the newcomer");
    assert_no_waiters(&crowd.server, &["k"]);
}

#[test]
fn the_rest_of_the_queue_is_granted_even_if_the_key_is_deleted() {
    let mut crowd = Crowd::of_readers();
    let replies = crowd.client.pipeline(&[RELEASE, "DEL k", "LOCK.WAITERS k COUNT 0", "RWLOCK.ACQUIRE k hasty READ"]);
    assert_eq!(replies[1], Reply::Int(1));
    let left = replies[2].items().len();
    assert!(left > 0 && replies[3].is_nil(), "{:?}", replies[3]);
    crowd.read_outcomes(MANY);
    crowd.assert_in_order(0..MANY);
    let held = holders(&mut crowd.client, "k");
    assert_eq!((held.len(), &*held[0]), (left, &*(MANY - left).to_string()), "the earlier ones were deleted");
}

#[test]
fn a_request_cancelled_or_disconnected_in_between_is_granted_nothing() {
    let mut crowd = Crowd::of_readers();
    let mut leaving = crowd.server.client();
    leaving.run(&format!("RWLOCK.ACQUIRE k leaving READ {LONG} BLOCK 0 NOTIFY ch"));
    let id = leaving.id();
    let (last, next) = (MANY - 1, MANY - 2);
    let lines = [RELEASE.to_owned(), format!("LOCK.CANCEL k {last}"), format!("CLIENT KILL ID {id}")];
    let replies = crowd.client.pipeline(&lines);
    assert_eq!(replies[1..], [Reply::Int(1), Reply::Int(1)]);
    crowd.read_outcomes(MANY);
    crowd.assert_in_order(0..=next);
    assert_eq!(crowd.others, HashMap::from([(last.to_string(), "cancelled".to_owned())]));
    let mut client = crowd.server.client();
    until("no request waits", || queue(&mut client, "k").is_empty());
    assert!(!holders(&mut client, "k").contains(&"leaving".to_owned()));
}

#[test]
fn a_waiter_without_its_wrongtype_reply_yet_is_granted_the_key_once_it_is_free_again() {
    let mut crowd = Crowd::of_readers();
    let set = crowd.client.run("SET k value");
    assert_eq!(set, Reply::ok());
    until("some got their reply", || {
        crowd.read_outcomes(1);
        !crowd.others.is_empty()
    });
    crowd.client.run("DEL k");
    crowd.read_outcomes(MANY - 1);
    let reported_before = crowd.others.len();
    assert!(crowd.others.values().all(|outcome| outcome == "wrongtype"), "{:?}", crowd.others.values().next());
    crowd.assert_in_order(reported_before..MANY);
}

#[test]
fn every_flushed_key_and_every_hold_of_a_closed_connection_is_handed_off_once() {
    for end in ["FLUSHALL", "CLIENT KILL"] {
        let mut crowd = Crowd::new();
        let mut session = crowd.server.client();
        let id = session.id();
        let holds: Vec<String> = (0..MANY).map(|n| format!("LOCK.ACQUIRE {n} holder {LONG} SESSION")).collect();
        assert!(session.pipeline(&holds).iter().all(|reply| reply.fence() > 0));
        crowd.wait(|n| format!("LOCK.ACQUIRE {n} {n}"));
        let end = if end == "FLUSHALL" { end.to_owned() } else { format!("{end} ID {id}") };
        assert!(!crowd.client.run(&end).is_error());
        crowd.read_outcomes(MANY);
        let served: BTreeSet<&str> = crowd.granted.iter().map(|(owner, _)| &**owner).collect();
        assert_eq!((served.len(), crowd.granted.len()), (MANY, MANY), "each once; keys have no order among them");
        assert_eq!(crowd.client.run("DBSIZE"), Reply::Int(MANY as i64));
        assert_no_waiters(&crowd.server, &["0", "4999"]);
    }
}

#[test]
fn a_release_completes_thousands_with_coalesce_and_frees_the_lock_at_once() {
    let mut crowd = Crowd::new();
    assert!(crowd.client.run(&format!("LOCK.ACQUIRE k maker {LONG}")).fence() > 0);
    crowd.wait(|n| format!("LOCK.ACQUIRE k {n} COALESCE"));
    let (mut blocked, mut leaving) = (crowd.server.client(), crowd.server.client());
    leaving.run(&format!("LOCK.ACQUIRE k leaving {LONG} BLOCK 0 COALESCE NOTIFY ch"));
    let kill = format!("CLIENT KILL ID {}", leaving.id());
    blocked.send_line(&format!("LOCK.ACQUIRE k blocked {LONG} BLOCK 0"));
    until("it waits", || queue(&mut crowd.client, "k").last().is_some_and(|last| last == "blocked"));
    let last = MANY - 1;
    let replies = crowd.client.pipeline(&[
        "LOCK.RELEASE k maker".to_owned(),
        "LOCK.WAITERS k".to_owned(),
        format!("LOCK.CANCEL k {last}"),
        kill,
        "LOCK.RELEASE k blocked".to_owned(),
        format!("LOCK.ACQUIRE k newcomer {LONG}"),
    ]);
    assert_eq!(replies[..5], [Reply::Int(1), Reply::Array(vec![]), Reply::Int(0), Reply::Int(1), Reply::Int(1)]);
    assert!(replies[5].fence() > 0, "a newcomer finds it free");
    assert!(blocked.read_soon(SOON).expect("it gets its reply").fence() > 0, "the first without COALESCE is granted");
    crowd.read_outcomes(MANY);
    crowd.others.remove("leaving");
    assert!(crowd.others.values().all(|outcome| outcome == "done"), "{:?}", crowd.others.values().next());
    assert!(crowd.others.len() >= last && crowd.granted.is_empty());
    assert_no_waiters(&crowd.server, &["k"]);
}

/// They are not recorded one by one. A pass over the queues hands them off; inspections find some earlier.
#[test]
fn tens_of_thousands_of_keys_deleted_by_a_script_are_all_handed_off() {
    const KEYS: usize = 40_000;
    let mut crowd = Crowd::new();
    assert_eq!(crowd.client.run(&format!("CONFIG SET lock.max-waiters {KEYS}")), Reply::ok());
    for first in (0..KEYS).step_by(MANY) {
        let keys = first..first + MANY;
        let holds: Vec<String> = keys.clone().map(|n| format!("LOCK.ACQUIRE {n} holder {LONG}")).collect();
        assert!(crowd.client.pipeline(&holds).iter().all(|reply| reply.fence() > 0));
        let waits: Vec<String> = keys.map(|n| format!("LOCK.ACQUIRE {n} {n} {LONG} BLOCK 0 NOTIFY ch")).collect();
        assert!(crowd.client.pipeline(&waits).iter().all(|reply| reply.items()[1] == Reply::Int(0)), "all wait");
    }
    let script = format!("for n = 0, {} do redis.call('DEL', n) end", KEYS - 1);
    assert!(crowd.client.cmd(&["EVAL", &script, "0"]).is_null());
    crowd.read_outcomes(KEYS);
    assert!(crowd.granted.iter().map(|(_, fence)| fence).is_sorted(), "fences are in the order of the grants");
    crowd.granted.sort_by_key(|(owner, _)| owner.parse::<usize>().expect("owners are numbers"));
    let owners: Vec<String> = crowd.granted.into_iter().map(|(owner, _)| owner).collect();
    assert_eq!(owners, (0..KEYS).map(|n| n.to_string()).collect::<Vec<_>>());
}
