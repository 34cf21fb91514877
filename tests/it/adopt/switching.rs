//! Adoption is switched on and off while clients work: no two clients hold the lock at any time.

use super::*;
use crate::support::waiting::Waiter;
use crate::support::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEY: &str = "lock:shared";

/// Works under the lock, and checks that no other client does.
fn work(client: &mut Client, holder: &str) {
    assert_eq!(client.run("INCR inside").int(), 1, "{holder} is not alone");
    assert_eq!(client.run("DECR inside").int(), 0, "{holder} is not alone");
}

/// Polls with SET NX, and releases with compare-and-delete. Returns how often it held the lock.
fn poller(mut client: Client, name: &str, is_over: &AtomicBool) -> u32 {
    let mut held = 0;
    for iteration in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let token = format!("{name}-{iteration}");
        if !set_nx(&mut client, KEY, &token) {
            thread::yield_now();
            continue;
        }
        work(&mut client, name);
        held += u32::from(compare_and_delete(&mut client, KEY, &token));
    }
    held
}

/// Waits in the queue; a string under the key is not a lock that it can acquire. Returns how often it held the lock.
fn native(mut client: Client, name: &str, is_over: &AtomicBool) -> u32 {
    let mut held = 0;
    for iteration in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let token = format!("{name}-{iteration}");
        let reply = client.run(&format!("LOCK.ACQUIRE {KEY} {token} PX 60000 BLOCK 100"));
        if reply.is_nil() || reply.is_error() {
            assert!(reply.is_nil() || reply.error().starts_with("WRONGTYPE "), "{reply:?}");
            continue;
        }
        work(&mut client, name);
        held += client.run(&format!("LOCK.RELEASE {KEY} {token}")).int() as u32;
        // A poller is granted the lock only while no request waits.
        thread::sleep(Duration::from_millis(2));
    }
    held
}

#[test]
fn mutual_exclusion_holds_while_adoption_is_switched_under_load() {
    let server = Server::start();
    let is_over = AtomicBool::new(false);
    let held = thread::scope(|scope| {
        let old = |n: usize| (server.client(), format!("old-{n}"));
        let pollers: Vec<_> = (0..4)
            .map(|n| {
                let ((client, name), is_over) = (old(n), &is_over);
                scope.spawn(move || poller(client, &name, is_over))
            })
            .collect();
        let natives: Vec<_> = (0..2)
            .map(|n| {
                let (client, is_over) = (server.client(), &is_over);
                scope.spawn(move || native(client, &format!("native-{n}"), is_over))
            })
            .collect();
        let mut admin = server.client();
        let (mut rng, start) = (Rng::new(7), Instant::now());
        while start.elapsed() < Duration::from_secs(3) {
            for setting in ["lock:*", ""] {
                assert_eq!(admin.cmd(&["CONFIG", "SET", "lock.adopt", setting]), Reply::ok());
                thread::sleep(Duration::from_millis(rng.below(30) as u64));
            }
        }
        // With adoption on, each of them is granted the lock.
        admin.run("CONFIG SET lock.adopt lock:*");
        thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
        let join = |handles: Vec<thread::ScopedJoinHandle<'_, u32>>| -> Vec<u32> {
            handles.into_iter().map(|handle| handle.join().expect("it excludes")).collect()
        };
        (join(pollers), join(natives))
    });
    assert!(held.0.iter().sum::<u32>() > 10 && held.1.iter().sum::<u32>() > 10, "{held:?}");
    let mut client = server.client();
    assert_eq!(client.run(&format!("EXISTS {KEY}")).int(), 0, "nothing is left");
}

#[test]
fn native_and_old_clients_hand_off_to_each_other() {
    let server = adopting();
    let mut old = server.client();
    assert!(set_nx(&mut old, KEY, "old"));
    let mut native = Waiter::park(&server, &format!("LOCK.ACQUIRE {KEY} native PX 60000 BLOCK 0"));
    assert!(compare_and_delete(&mut old, KEY, "old"));
    let fence = native.granted("native");
    assert!(!set_nx(&mut old, KEY, "old"));
    assert_eq!(native.client.run(&format!("LOCK.RELEASE {KEY} native")).int(), 1);
    assert!(set_nx(&mut old, KEY, "old"));
    assert!(old.run(&format!("LOCK.HELD {KEY} old")).items()[0].int() > fence);
}

/// The lock of a killed holder expires, and the native waiter is granted it.
#[test]
fn with_adoption_off_an_old_client_is_no_longer_queued() {
    let server = Server::builder().config("lock.adopt lock:*").config("lock.adopt-wait 60000").start();
    let mut client = server.client();
    assert!(set_nx(&mut client, KEY, "a"));
    let mut b = Waiter::park(&server, &format!("SET {KEY} b NX PX 60000"));
    assert_eq!(client.cmd(&["CONFIG", "SET", "lock.adopt", ""]), Reply::ok());
    // Otherwise it would wait for a minute.
    assert!(!set_nx(&mut server.client(), KEY, "c"));
    assert!(compare_and_delete(&mut client, KEY, "a"));
    assert_eq!(b.reply(), Reply::ok());
    assert!(!set_nx(&mut server.client(), KEY, "c"));
    assert!(compare_and_delete(&mut client, KEY, "b"));
    assert!(set_nx(&mut client, KEY, "c"));
    assert_eq!(type_of(&mut client, KEY), "string");
}

#[test]
fn a_killed_holder_is_succeeded_when_its_lease_expires() {
    let server = adopting();
    let mut old = server.client();
    old.run(&format!("SET {KEY} old NX PX 100"));
    let mut native = Waiter::park(&server, &format!("LOCK.ACQUIRE {KEY} native PX 60000 BLOCK 0"));
    drop(old);
    native.granted("native");
}

/// What an application without locks does with one key of each type; returns whether all of it worked.
fn application(client: &mut Client, iteration: u32) -> bool {
    let text = format!("v{iteration}");
    let lines = [
        "INCR counter".into(),
        format!("SET reset {iteration}"),
        "INCR reset".into(),
        "GETSET window 0".into(),
        "INCRBY window 3".into(),
        format!("SETEX page 600 {text}"),
        "STRLEN page".into(),
        format!("SET cached {text} EX 600"),
        format!("APPEND cached {text}"),
        format!("MSET one {text} other {text}"),
        "GETRANGE one 0 0".into(),
        format!("HSET session user {text} visits {iteration}"),
        "HINCRBY session visits 1".into(),
        "HGETALL session".into(),
        "LPUSH list x".into(),
        "LTRIM list 0 9".into(),
        format!("SET fresh{iteration} {text}"),
        format!("APPEND fresh{iteration} {text}"),
        format!("DEL fresh{iteration}"),
        format!("SET flag {text} NX PX 600000"),
    ];
    let replies: Vec<_> = lines.iter().map(|line: &String| client.run(line)).collect();
    let failed = replies.iter().zip(&lines).filter(|(reply, _)| reply.is_error());
    let failed: Vec<_> = failed.collect();
    assert!(failed.iter().all(|(reply, _)| reply.error().starts_with("WRONGTYPE ")), "{failed:?}");
    failed.is_empty()
}

#[test]
fn an_application_whose_keys_were_adopted_by_mistake_works_again() {
    let server = Server::start();
    let mut client = server.client();
    assert!(application(&mut client, 0), "before");
    client.run("LOCK.ACQUIRE native t PX 600000").fence();
    let (is_over, failures) = (AtomicBool::new(false), std::sync::atomic::AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            for iteration in 1.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                failures.fetch_add(u32::from(!application(&mut client, iteration)), Ordering::Relaxed);
            }
        });
        assert_eq!(client.run("CONFIG SET lock.adopt *"), Reply::ok());
        let end = Instant::now() + crate::support::LIMIT;
        while failures.load(Ordering::Relaxed) < 10 && Instant::now() < end {
            thread::yield_now();
        }
        assert_eq!(client.cmd(&["CONFIG", "SET", "lock.adopt", ""]), Reply::ok());
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(failures.into_inner() > 0, "it was adopted");
    let mut cursor = "0".to_string();
    loop {
        let page = client.run(&format!("LOCK.SCAN {cursor} COUNT 100"));
        for lock in page.items()[1].items() {
            let key = lock.get("key").text().to_string();
            let is_native = key == "native";
            assert_eq!(client.cmd(&["LOCK.ADOPTION", "RETURN", &key]), Reply::Int(i64::from(!is_native)), "{key}");
        }
        cursor = page.items()[0].text().to_string();
        if cursor == "0" {
            break;
        }
    }
    for iteration in [1_000_000, 1_000_001] {
        assert!(application(&mut client, iteration), "afterwards");
    }
    assert!(client.run("LOCK.HELD native t").items()[0].int() > 0);
    assert_eq!(client.run("LOCK.SCAN 0 COUNT 1000").items()[1].items().len(), 1, "only the native lock is left");
}

/// The shell commands of docs/adopt.md, "A pattern was wrong", and its step for users with limited commands.
#[test]
fn the_pages_commands_undo_a_wrong_pattern() {
    let page = include_str!("../../../docs/adopt.md");
    let (_, section) = page.split_once("### A pattern was wrong").expect("the section");
    let lines = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("its lines");
    let rights =
        page.lines().find_map(|line| line.strip_prefix("127.0.0.1:6379> ACL SETUSER app ")).expect("the rights");
    let server = Server::builder().config("lock.adopt app:*").start();
    let mut client = server.client();
    assert_eq!(client.run("ACL SETUSER app on nopass ~* +set +get +incr"), Reply::ok());
    let mut limited = server.client();
    limited.run("AUTH app any");
    assert!(limited.run("SET app:1 5").error().starts_with("NOPERM "));
    for key in ["app:1", "app:two words", "other"] {
        assert_eq!(client.cmd(&["SET", key, "5"]), Reply::ok());
    }
    client.run("LOCK.ACQUIRE app:native t PX 600000").fence();
    let lines = lines.replace("redis-cli ", &format!("redis-cli -p {} ", server.port()));
    let ran = std::process::Command::new("sh").args(["-c", &lines]).output().expect("sh runs");
    if String::from_utf8_lossy(&ran.stderr).contains("not found") {
        return crate::support::skip::skip("there is no redis-cli");
    }
    assert!(ran.status.success(), "{ran:?}");
    for key in ["app:1", "app:two words", "other"] {
        assert_eq!(client.cmd(&["INCR", key]), Reply::Int(6), "{key}: {ran:?}");
    }
    assert_eq!(type_of(&mut client, "app:native"), "redislock");
    // Former patterns are translated until the next start.
    assert!(limited.run("SET app:1 5").error().starts_with("NOPERM "));
    assert_eq!(client.run(&format!("ACL SETUSER app {rights}")), Reply::ok());
    assert_eq!(limited.run("SET app:1 5"), Reply::ok());
    assert_eq!(limited.run("INCR app:1"), Reply::Int(6));
}
