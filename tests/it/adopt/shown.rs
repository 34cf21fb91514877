//! LOCK.INFO and LOCK.LOG show the connection that was granted an adopted lock.

use super::*;
use crate::support::waiting::{hold, let_time_pass, Waiter};
use crate::support::{each_protocol, until};
use std::time::Duration;

/// The address and the client name of the only holder.
#[track_caller]
fn granted_to(client: &mut Client, key: &str) -> (String, String) {
    let info = client.run(&format!("LOCK.INFO {key}"));
    let [holder] = info.get("holders").items() else { panic!("{info:?}") };
    (holder.get("addr").text().to_string(), holder.get("client").text().to_string())
}

fn named(server: &Server, name: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.run(&format!("CLIENT SETNAME {name}")), Reply::ok());
    client
}

#[test]
fn the_holder_of_an_adopted_lock_is_shown_with_address_and_name() {
    let server = Server::builder().config("lock.adopt lock:* hash:h:*").start();
    let mut operator = server.client();
    for (line, key) in [
        ("SET lock:k a NX PX 60000", "lock:k"),
        ("SETNX lock:l a", "lock:l"),
        ("SET lock:m a PX 60000", "lock:m"),
        ("MSETNX lock:n a", "lock:n"),
        ("HSET h:k a 1", "h:k"),
        ("HINCRBY h:l a 1", "h:l"),
    ] {
        let mut client = named(&server, "worker-7");
        let reply = client.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
        let expected = (client.address(), "worker-7".to_string());
        assert_eq!(granted_to(&mut operator, key), expected, "{line}");
        // The operator looks for a client that has crashed.
        let id = client.id();
        drop(client);
        crate::support::waiting::until_exited(&mut operator, id);
        assert_eq!(granted_to(&mut operator, key), expected, "{line}");
    }
    let mut other = named(&server, "other");
    assert_eq!(other.run("GETSET lock:k b"), Reply::bulk("a"));
    assert_eq!(granted_to(&mut operator, "lock:k"), (other.address(), "other".into()), "the one that took it over");
}

#[test]
fn a_native_hold_shows_its_session_instead() {
    each_protocol(|client| {
        client.run("CONFIG SET lock.adopt lock:*");
        hold(client, "lock:k", "a");
        let info = client.run("LOCK.INFO lock:k");
        let fields: Vec<_> = info.get("holders").items()[0].pairs();
        let names: Vec<_> = fields.iter().map(|(name, _)| name.text()).collect();
        assert_eq!(names, ["owner", "mode", "holds", "fence", "ttl", "lease", "age", "session"]);
        client.run("LOCK.RELEASE lock:k a");
    });
}

#[test]
fn a_client_that_waited_in_a_set_is_shown_and_a_script_or_a_restart_is_not() {
    let mut server = Server::builder().config("lock.adopt lock:*").config("lock.adopt-wait 10000").start();
    let mut first = named(&server, "first");
    assert!(set_nx(&mut first, "lock:k", "a"));
    let mut waiter = Waiter::park(&server, "SET lock:k b NX PX 60000");
    assert_eq!(first.run("DEL lock:k"), Reply::Int(1));
    assert_eq!(waiter.client.read(), Reply::ok());
    let (address, _) = granted_to(&mut first, "lock:k");
    assert!(!address.is_empty() && address != first.address(), "{address}");
    let script = "return redis.call('SET', KEYS[1], 'a', 'NX', 'PX', 60000)";
    first.cmd(&["EVAL", script, "1", "lock:l"]);
    assert_eq!(granted_to(&mut first, "lock:l"), Default::default());
    assert_eq!(first.run("SAVE"), Reply::ok());
    drop(first);
    server.kill();
    server.restart();
    assert_eq!(granted_to(&mut server.client(), "lock:k"), Default::default());
}

#[test]
fn the_log_names_the_connection_that_was_granted_an_adopted_lock() {
    let server = Server::builder().config("lock.adopt lock:*").config("lock.log-hold 1").start();
    let (mut worker, mut operator) = (named(&server, "worker"), server.client());
    let id = worker.id();
    let newest = |client: &mut Client, event: &str| -> Reply {
        until("it is logged", || {
            client.run("LOCK.LOG GET 1").items().first().is_some_and(|entry| entry.get("event").text() == event)
        });
        client.run("LOCK.LOG GET 1").items()[0].clone()
    };
    // A script releases; the server does not reveal which connection runs it.
    assert!(set_nx(&mut worker, "lock:k", "a"));
    let_time_pass(Duration::from_millis(3));
    assert!(compare_and_delete(&mut worker, "lock:k", "a"));
    let entry = newest(&mut operator, "hold");
    assert_eq!((entry.get("client").int(), entry.get("addr").text()), (id, worker.address().as_str()), "{entry:?}");
    // Its lease expires while another client waits.
    assert_eq!(worker.run("SET lock:k a NX PX 30"), Reply::ok());
    let mut waiter = Waiter::park(&server, "LOCK.ACQUIRE lock:k b BLOCK 0");
    waiter.granted("b");
    let log = operator.run("LOCK.LOG GET 2");
    let expired = log.items().iter().find(|entry| entry.get("event").text() == "expired").expect("an entry");
    assert_eq!((expired.get("client").int(), expired.get("addr").text()), (id, worker.address().as_str()), "{log:?}");
}
