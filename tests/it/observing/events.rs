//! lock.keyspace-events: what requests and the module do to locks, as keyspace events of class `d`.

use crate::support::waiting::*;
use crate::support::{in_sync, until, Builder, Client, Reply, Server};

const PATTERN: &str = "__key*__:*";

/// Events as seen by a subscriber to all databases.
struct Subscriber(Client);

impl Subscriber {
    fn of(server: &Server) -> Subscriber {
        let mut client = server.client();
        client.run(&format!("PSUBSCRIBE {PATTERN}"));
        Subscriber(client)
    }

    /// What was published so far: `event key`, followed by `@db` if that is not 0. Only keyspace channels.
    fn read(&mut self, client: &mut Client) -> Vec<String> {
        client.run("PUBLISH __key__:end end");
        let mut events = Vec::new();
        loop {
            let message = self.0.read();
            let [.., channel, event] = message.items() else { panic!("{message:?}") };
            let channel = channel.text();
            if channel == "__key__:end" {
                return events;
            }
            let Some((db, key)) = channel.strip_prefix("__keyspace@").and_then(|rest| rest.split_once("__:")) else {
                continue;
            };
            let db = if db == "0" { String::new() } else { format!("@{db}") };
            events.push(format!("{} {key}{db}", event.text()));
        }
    }
}

fn observed() -> Builder {
    quiet().config("lock.keyspace-events yes").config("notify-keyspace-events KEA")
}

fn start() -> (Server, Client, Subscriber) {
    let server = observed().start();
    let (client, subscriber) = (server.client(), Subscriber::of(&server));
    (server, client, subscriber)
}

#[test]
fn every_lock_type_publishes_a_requests_changes() {
    let rows: &[(&str, &[&str])] = &[
        ("LOCK.ACQUIRE k a", &["lock.acquire k"]),
        ("LOCK.ACQUIRE k b", &[]),
        ("LOCK.ACQUIRE k a PX 90000", &["lock.acquire k"]),
        ("LOCK.RENEW k a PX 99000", &["lock.renew k"]),
        ("LOCK.RENEW k b", &[]),
        ("LOCK.HELD k a", &[]),
        ("LOCK.INFO k", &[]),
        ("LOCK.RELEASE k b", &[]),
        ("LOCK.RELEASE k a", &["lock.release k"]),
        ("RLOCK.ACQUIRE k a HOLDS 2", &["lock.acquire k"]),
        ("RLOCK.ACQUIRE k a", &["lock.acquire k"]),
        ("RLOCK.RELEASE k a", &["lock.release k"]),
        ("RLOCK.RENEW k a", &["lock.renew k"]),
        ("RLOCK.RELEASE k a HOLDS 0", &["lock.release k"]),
        ("RWLOCK.ACQUIRE k a READ", &["lock.acquire k"]),
        ("RWLOCK.ACQUIRE k b READ", &["lock.acquire k"]),
        ("RWLOCK.ACQUIRE k c WRITE", &[]),
        ("RWLOCK.RELEASE k a READ", &["lock.release k"]),
        ("RWLOCK.ACQUIRE k b WRITE", &["lock.acquire k"]),
        ("RWLOCK.RENEW k b", &["lock.renew k"]),
        ("LOCK.BREAK k", &["lock.break k"]),
        ("SEM.ACQUIRE k a LIMIT 3", &["lock.acquire k"]),
        ("SEM.ACQUIRE k b LIMIT 3 PERMITS 2", &["lock.acquire k"]),
        ("SEM.RELEASE k b", &["lock.release k"]),
        ("SEM.RENEW k a", &["lock.renew k"]),
        ("LOCK.BREAK k", &["lock.break k", "lock.break k"]),
        ("MLOCK.ACQUIRE 2 k l a", &["lock.acquire k", "lock.acquire l"]),
        ("MLOCK.RENEW 2 l k a", &["lock.renew l", "lock.renew k"]),
        ("MLOCK.RELEASE 2 k l a", &["lock.release k", "lock.release l"]),
        ("LOCK.ACQUIRE k a", &["lock.acquire k"]),
        ("DEL k", &["del k"]),
    ];
    let (_server, mut client, mut subscriber) = start();
    for (line, expected) in rows {
        let reply = client.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
        // The server's own events are ignored, except the deletion of a key.
        let mut events = subscriber.read(&mut client);
        events.retain(|event| event.starts_with("lock.") || event.starts_with("del "));
        assert_eq!(events, *expected, "{line}");
    }
}

/// The same request again changes neither holders, holds nor deadlines.
#[test]
fn a_request_that_changes_nothing_publishes_nothing() {
    let rows: &[(&str, &[&str])] = &[
        ("LOCK.ACQUIRE k a PX 600000", &["lock.acquire k"]),
        ("LOCK.ACQUIRE k a PX 1000", &[]),
        ("LOCK.ACQUIRE k a PX 900000", &["lock.acquire k"]),
        ("LOCK.ACQUIRE k a PERSIST", &["lock.acquire k"]),
        ("LOCK.ACQUIRE k a PERSIST", &[]),
        ("MLOCK.ACQUIRE 2 k l a PERSIST", &["lock.acquire k", "lock.acquire l"]),
        ("MLOCK.ACQUIRE 2 k l a PERSIST", &[]),
        ("RLOCK.ACQUIRE r a HOLDS 2 PERSIST", &["lock.acquire r"]),
        ("RLOCK.ACQUIRE r a HOLDS 2 PERSIST", &[]),
        ("RLOCK.ACQUIRE r a PERSIST", &["lock.acquire r"]),
        ("RWLOCK.ACQUIRE rw a READ HOLDS 1 PERSIST", &["lock.acquire rw"]),
        ("RWLOCK.ACQUIRE rw a READ HOLDS 1 PERSIST", &[]),
        ("RWLOCK.ACQUIRE rw a WRITE PERSIST", &["lock.acquire rw"]),
        ("SEM.ACQUIRE s a LIMIT 3 HOLDS 1 PX 600000", &["lock.acquire s"]),
        ("SEM.ACQUIRE s a LIMIT 3 HOLDS 1 PX 1000", &[]),
        ("SEM.ACQUIRE s a LIMIT 3 HOLDS 2 PX 1000", &["lock.acquire s"]),
    ];
    let (_server, mut client, mut subscriber) = start();
    for (line, expected) in rows {
        client.run(line).fence();
        let mut events = subscriber.read(&mut client);
        events.retain(|event| event.starts_with("lock."));
        assert_eq!(events, *expected, "{line}");
    }
}

#[test]
fn a_hand_off_publishes_the_end_and_then_the_acquire() {
    let (server, mut client, mut subscriber) = start();
    let ends: &[(&str, &str)] = &[
        ("LOCK.RELEASE k a", "lock.release k"),
        ("LOCK.BREAK k", "lock.break k"),
        ("DEL k", "del k"),
        ("PEXPIRE k 1", "expired k"),
    ];
    for (end, event) in ends {
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        subscriber.read(&mut client);
        client.run(end);
        b.granted("b");
        let mut events = subscriber.read(&mut client);
        events.retain(|event| !event.starts_with("expire "));
        assert_eq!(events, [*event, "lock.acquire k"], "{end}");
        client.run("LOCK.RELEASE k b");
    }
    // The waiter is granted multiple keys at once.
    client.run("MLOCK.ACQUIRE 2 k l a").fence();
    let mut b = Waiter::park(&server, "MLOCK.ACQUIRE 2 l k b BLOCK 0");
    subscriber.read(&mut client);
    client.run("MLOCK.RELEASE 2 k l a");
    b.granted("b");
    let events = subscriber.read(&mut client);
    assert_eq!(events, ["lock.release k", "lock.release l", "lock.acquire l", "lock.acquire k"]);
    // The same for the end of a session.
    let mut session = server.client();
    session.run("LOCK.ACQUIRE s a PX 60000 SESSION").fence();
    let [mut c] = line_up(&server, "s", ["c"]);
    subscriber.read(&mut client);
    drop(session);
    c.granted("c");
    assert_eq!(subscriber.read(&mut client), ["lock.release s", "lock.acquire s"]);
}

#[test]
fn a_transaction_publishes_in_order() {
    let (server, mut client, mut subscriber) = start();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    subscriber.read(&mut client);
    multi(
        &mut client,
        &["SET x 1", "LOCK.RELEASE k a", "LOCK.ACQUIRE l a", "SELECT 2", "LOCK.ACQUIRE m a", "SELECT 0"],
    );
    b.granted("b");
    let expected = ["set x", "lock.release k", "lock.acquire k", "lock.acquire l", "lock.acquire m@2"];
    let mut events = subscriber.read(&mut client);
    events.retain(|event| !event.starts_with("new "));
    assert_eq!(events, expected);
}

#[test]
fn leases_expired_by_the_module_publish_expire() {
    let (_server, mut client, mut subscriber) = start();
    client.run("SELECT 5");
    client.run("SEM.ACQUIRE k b LIMIT 3 PX 60000").fence();
    client.run("SEM.ACQUIRE k a LIMIT 3 PX 1").fence();
    until("a is gone", || holders(&mut client, "k") == ["b"]);
    assert_eq!(client.run("SEM.RELEASE k z"), Reply::Int(-1), "the lock is accessed");
    until("it is published", || subscriber.read(&mut client).contains(&"lock.expire k@5".to_string()));
    assert_eq!(client.run("EXISTS k"), Reply::Int(1), "the client's database is what it was");
}

#[test]
fn the_timer_publishes_in_the_database_of_the_key() {
    let (server, mut client, mut subscriber) = start();
    client.run("SELECT 7");
    hold(&mut client, "k", "a");
    let mut other = server.client();
    other.run("SELECT 7");
    let mut b = Waiter::park_over(other, &server, "LOCK.ACQUIRE k b BLOCK 0");
    subscriber.read(&mut client);
    client.run("DEL k");
    b.granted("b");
    assert_eq!(subscriber.read(&mut client), ["del k@7", "lock.acquire k@7"]);
    // Multiple databases in one engine pass.
    let mut third = server.client();
    third.run("SELECT 3");
    hold(&mut third, "k", "a");
    let mut c = Waiter::park_over(third, &server, "LOCK.ACQUIRE k c BLOCK 0");
    let mut other = server.client();
    other.run("SELECT 7");
    let mut d = Waiter::park_over(other, &server, "LOCK.ACQUIRE k d BLOCK 0");
    subscriber.read(&mut client);
    client.run("FLUSHALL");
    c.granted("c");
    d.granted("d");
    let mut events = subscriber.read(&mut client);
    events.sort_unstable();
    assert_eq!(events, ["lock.acquire k@3", "lock.acquire k@7"]);
}

#[test]
fn a_session_that_is_renewed_publishes_nothing() {
    let (server, mut client, mut subscriber) = start();
    let mut session = server.client();
    session.run("LOCK.ACQUIRE k a PX 300 SESSION").fence();
    subscriber.read(&mut client);
    until_renewed(&mut client, "k");
    assert_eq!(subscriber.read(&mut client), Vec::<String>::new());
}

#[test]
fn publishing_requires_the_setting_and_the_class() {
    let server = quiet().config("notify-keyspace-events KEA").start();
    let (mut client, mut subscriber) = (server.client(), Subscriber::of(&server));
    let events = |client: &mut Client, subscriber: &mut Subscriber| {
        client.run("LOCK.ACQUIRE k a").fence();
        client.run("LOCK.RELEASE k a");
        let mut events = subscriber.read(client);
        events.retain(|event| event.starts_with("lock."));
        events
    };
    assert_eq!(events(&mut client, &mut subscriber), Vec::<String>::new(), "no is the default");
    client.run("CONFIG SET lock.keyspace-events yes");
    assert_eq!(events(&mut client, &mut subscriber), ["lock.acquire k", "lock.release k"]);
    client.run("CONFIG SET notify-keyspace-events KEx");
    assert_eq!(events(&mut client, &mut subscriber), Vec::<String>::new());
    client.run("CONFIG SET notify-keyspace-events Kd");
    assert_eq!(events(&mut client, &mut subscriber), ["lock.acquire k", "lock.release k"]);
    client.run("CONFIG SET lock.keyspace-events no");
    assert_eq!(events(&mut client, &mut subscriber), Vec::<String>::new());
}

#[test]
fn replicas_publish_nothing() {
    let server = observed().start();
    let replica = observed().replica_of(&server).start();
    in_sync(&server, &replica);
    let mut subscriber = Subscriber::of(&replica);
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a").fence();
    client.run("SEM.ACQUIRE s a LIMIT 2").fence();
    client.run("LOCK.RENEW k a");
    client.run("LOCK.RELEASE k a");
    in_sync(&server, &replica);
    let mut events = subscriber.read(&mut replica.client());
    events.retain(|event| event.starts_with("lock."));
    assert_eq!(events, Vec::<String>::new());
}
