//! Server commands that change a lock, or that create a value under a free key, however they are sent: in any letter
//! case, from a script, a function or another module, and in transactions that were queued before the first waiter
//! came.

use super::*;
use crate::support::built_caller;
use crate::support::skip::skip;
use std::time::Instant;

/// Ways to send a command on the keys `k` and `other`, which are declared where required.
const WAYS: [&str; 6] = ["sent", "in lower case", "in MULTI", "queued before", "by a script", "by a function"];

/// An open transaction of some client, to be continued later.
struct Queued(Client);

/// Sends the commands in one of these ways.
fn send(server: &Server, way: &str, lines: &[&str], queued: Option<Queued>) {
    let mut client = server.client();
    let calls: String = lines
        .iter()
        .map(|line| {
            let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
            format!("redis.call({}) ", words.join(","))
        })
        .collect();
    let replies = match way {
        "sent" => client.pipeline(lines),
        "in lower case" => client.pipeline(&lines.iter().map(|line| line.to_lowercase()).collect::<Vec<_>>()),
        "in MULTI" => multi(&mut client, lines),
        "queued before" => queued.expect("it was queued").0.run("EXEC").items().to_vec(),
        "by a script" => vec![client.cmd(&["EVAL", &calls, "2", "k", "other"])],
        "by a function" => {
            let library = format!("#!lua name=test\nredis.register_function('f', function() {calls} end)");
            vec![client.cmd(&["FUNCTION", "LOAD", &library]), client.run("FCALL f 2 k other")]
        }
        _ => panic!("{way}"),
    };
    assert!(replies.iter().all(|reply| !reply.is_error()), "{way}: {lines:?}: {replies:?}");
}

/// Starts the transaction, for the way in which it is queued before the first waiter comes.
fn queue(server: &Server, way: &str, lines: &[&str]) -> Option<Queued> {
    (way == "queued before").then(|| {
        let mut client = server.client();
        assert_eq!(client.run("MULTI"), Reply::ok());
        lines.iter().for_each(|line| assert_eq!(client.run(line), Reply::Status("QUEUED".into())));
        Queued(client)
    })
}

/// A server that expires no key by itself, so that only the module notices an expired lease.
fn without_expiry() -> Server {
    let server = quiet().start();
    assert_eq!(server.client().run("DEBUG SET-ACTIVE-EXPIRE 0"), Reply::ok());
    server
}

#[test]
fn a_lease_shortened_by_expire_wakes_the_next_however_it_is_sent() {
    for way in WAYS {
        for line in ["PEXPIRE k 60", "PEXPIRE k 60 LT", "EXPIRE k 0", "PEXPIREAT k 1", "EXPIREAT k 1"] {
            let server = without_expiry();
            let queued = queue(&server, way, &[line]);
            let mut client = server.client();
            hold(&mut client, "k", "a");
            let [mut b] = line_up(&server, "k", ["b"]);
            send(&server, way, &[line], queued);
            b.granted("b");
        }
    }
}

#[test]
fn a_lease_shortened_by_expire_wakes_the_next_in_another_database() {
    let server = without_expiry();
    let mut client = server.client();
    client.run("SELECT 3");
    hold(&mut client, "k", "a");
    let mut b = server.client();
    b.run("SELECT 3");
    b.send_line("LOCK.ACQUIRE k b BLOCK 0");
    until("b waits", || client.run("LOCK.INFO k").get("waiters").int() == 1);
    client.run("PEXPIRE k 60");
    assert!(b.read_within(SOON).expect("it is granted").fence() > 0);
}

#[test]
fn another_modules_expire_wakes_the_next() {
    let caller = built_caller().expect("the test module is built: `make test`");
    let server = quiet().config(format!("loadmodule {}", caller.display())).start();
    let mut client = server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    client.run("TEST.CALL pexpire k 60");
    b.granted("b");
}

#[test]
fn a_renamed_expire_wakes_the_next() {
    let server = Server::builder().config("rename-command PEXPIRE shorten").start();
    let mut client = server.client();
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    assert_eq!(client.run("shorten k 60"), Reply::Int(1));
    b.granted("b");
}

#[test]
fn waiters_learn_what_a_free_key_becomes_however_it_is_created() {
    for way in WAYS {
        for lines in [
            &["SET k v"][..],
            &["MSET other v k v"],
            &["RPUSH other 2 1", "SORT other ALPHA STORE k"],
            &["SET other v", "RENAME other k"],
        ] {
            let server = quiet().start();
            let queued = queue(&server, way, lines);
            hold(&mut server.client(), "held", "y");
            let mut multi_key = Waiter::park(&server, "MLOCK.ACQUIRE 2 k held m BLOCK 0");
            send(&server, way, lines, queued);
            let reply = multi_key.reply();
            assert!(reply.error().starts_with("WRONGTYPE "), "{way}: {lines:?}: {reply:?}");
        }
    }
}

/// The stored form of the holders, without the key's own TTL.
fn stored(client: &mut Client) -> Vec<u8> {
    client.run("DUMP k").bytes().to_vec()
}

#[test]
fn lengthening_a_shortened_ttl_again_changes_no_holder_of_a_lock_with_waiters() {
    for way in WAYS {
        for lengthen in ["PEXPIRE k 50000", "PERSIST k"] {
            let server = without_expiry();
            let queued = queue(&server, way, &["PEXPIRE k 20000"]);
            let mut client = server.client();
            for owner in ["a", "b"] {
                assert!(client.run(&format!("RWLOCK.ACQUIRE k {owner} READ {LONG}")).items()[1].int() > 0);
            }
            let _writer = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE BLOCK 0");
            let before = stored(&mut client);
            send(&server, way, &["PEXPIRE k 20000"], queued);
            until("an inspection has found it", || stored(&mut client) != before);
            client.run(lengthen);
            for owner in ["a", "b"] {
                let left = client.run(&format!("LOCK.HELD k {owner}")).items()[2].int();
                assert!((1..=20_000).contains(&left), "{way}, {lengthen}: {owner} has {left} ms");
            }
        }
    }
}

#[test]
fn of_multiple_ttl_changes_in_one_transaction_the_last_counts() {
    let server = without_expiry();
    let mut client = server.client();
    for owner in ["a", "b"] {
        assert!(client.run(&format!("RWLOCK.ACQUIRE k {owner} READ {LONG}")).items()[1].int() > 0);
    }
    let _writer = Waiter::park(&server, "RWLOCK.ACQUIRE k w WRITE BLOCK 0");
    let before = stored(&mut client);
    send(&server, "in MULTI", &["PEXPIRE k 20000", "PEXPIRE k 50000"], None);
    until("an inspection has found it", || stored(&mut client) != before);
    for owner in ["a", "b"] {
        let left = client.run(&format!("LOCK.HELD k {owner}")).items()[2].int();
        assert!((20_001..=50_000).contains(&left), "{owner} has {left} ms");
    }
}

#[test]
fn a_waiter_for_a_free_key_gets_wrongkind_when_readers_are_renamed_onto_it() {
    for way in WAYS {
        let server = without_expiry();
        let queued = queue(&server, way, &["RENAME k other"]);
        let mut client = server.client();
        hold(&mut client, "held", "y");
        for line in ["RWLOCK.ACQUIRE k a READ PX 300", "RWLOCK.ACQUIRE k b READ PX 300"] {
            assert!(client.run(line).items()[1].int() > 0);
        }
        let mut multi_key = Waiter::park(&server, &format!("MLOCK.ACQUIRE 2 other held m {LONG} BLOCK 0"));
        send(&server, way, &["RENAME k other"], queued);
        let reply = multi_key.reply();
        assert!(reply.error().starts_with("WRONGKIND "), "{way}: {reply:?}");
    }
}

/// Deadlock detection sees the holders of a key that was free before inspections have found them.
#[test]
fn a_lock_renamed_onto_a_key_with_waiters_closes_a_deadlock_at_once() {
    let server = quiet().start();
    let mut client = server.client();
    for (key, owner) in [("k", "a"), ("x", "m"), ("held", "y")] {
        hold(&mut client, key, owner);
    }
    let _multi_key = Waiter::park(&server, &format!("MLOCK.ACQUIRE 2 free held m {LONG} BLOCK 0"));
    let replies = client.pipeline(&["RENAME k free", "LOCK.ACQUIRE x a BLOCK 0 NOTIFY ch"]);
    assert_eq!(replies[0], Reply::ok());
    assert!(replies[1].error().starts_with("DEADLOCK "), "{:?}", replies[1]);
}

/// Whether the server shows that it calls the module for every command.
fn has_filter(client: &mut Client) -> bool {
    let modules = client.run("INFO modules").text().to_owned();
    let lock = modules.lines().find(|line| line.contains("name=lock,")).expect("it is loaded");
    !lock.contains("filters=0")
}

/// More keys than one inspection covers, each with a waiter on the same connection.
fn crowd(server: &Server, client: &mut Client) -> Client {
    let mut notified = server.client();
    for n in 0..100 {
        hold(client, &format!("crowd:{n}"), "a");
        let queued = notified.run(&format!("LOCK.ACQUIRE crowd:{n} b BLOCK 0 NOTIFY channel"));
        assert_eq!(queued.items()[1], Reply::Int(0));
    }
    notified
}

#[test]
fn other_commands_never_pay_for_waiters_and_holders() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [_b] = line_up(&server, "k", ["b"]);
    let _notified = crowd(&server, &mut client);
    let _multi_key = Waiter::park(&server, "MLOCK.ACQUIRE 2 free k m BLOCK 0");
    for owner in ["a", "b"] {
        assert!(client.run(&format!("RWLOCK.ACQUIRE r {owner} READ {LONG}")).items()[1].int() > 0);
    }
    client.run("EXPIRE r 100");
    assert!(!has_filter(&mut client), "the module looks at no command");
}

#[test]
fn with_waiters_for_many_keys_a_shortened_lease_wakes_the_next() {
    for way in WAYS {
        let server = without_expiry();
        let queued = queue(&server, way, &["PEXPIRE k 60"]);
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["b"]);
        let _notified = crowd(&server, &mut client);
        send(&server, way, &["PEXPIRE k 60"], queued);
        b.granted("b");
    }
}

/// How often the module has run a write check: once in each timer callback with due work.
fn iterations(client: &mut Client) -> i64 {
    let stats = client.run("INFO commandstats").text().to_owned();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_lock.apply:calls="));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
}

#[test]
fn waiters_for_held_and_free_keys_keep_no_idle_server_busy() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "held", "y");
    let _multi_key = Waiter::park(&server, "MLOCK.ACQUIRE 2 free held m BLOCK 0");
    client.run("PEXPIRE held 60000");
    let_time_pass(Duration::from_millis(100));
    let before = iterations(&mut client);
    let_time_pass(Duration::from_millis(400));
    assert_eq!(iterations(&mut client), before, "keys that do not change are not served");
    let reads = |client: &mut Client| {
        client
            .run("INFO stats")
            .text()
            .lines()
            .filter(|line| line.starts_with("keyspace_"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = reads(&mut client);
    let_time_pass(Duration::from_millis(100));
    assert_eq!(reads(&mut client), before, "an inspection is nobody's read");
}

/// Two readers, one with an expired lease, and a key that outlives both.
#[test]
fn a_server_with_two_readers_and_no_waiter_stays_idle() {
    let server = quiet().start();
    let mut client = server.client();
    let in_a_second = || {
        let before = wake_ups(&server);
        let_time_pass(Duration::from_millis(1_000));
        before.zip(wake_ups(&server)).map(|(before, after)| after - before)
    };
    let without = in_a_second();
    client.run("RWLOCK.ACQUIRE k a READ PX 200");
    client.run("RWLOCK.ACQUIRE k b READ PX 60000");
    client.run("PERSIST k");
    match without.zip(in_a_second()) {
        Some((without, with)) => assert!(with <= without + 5, "{without} times in a second without, {with} with them"),
        None => skip("the system does not report how often a process sleeps"),
    }
    assert_eq!(client.run("LOCK.INFO k").get("holding"), &Reply::Int(1));
    assert_eq!(iterations(&mut client), 0, "the module has asked for no write");
}

/// The server reports no EXPIRE. It is noticed within 100 ms, when no command has seen a waiter for a second.
#[test]
fn an_idle_server_with_a_waiter_sleeps_and_notices_a_shorter_lease_within_100_ms() {
    let server = quiet().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let_time_pass(Duration::from_millis(1_300));
    let before = wake_ups(&server);
    let_time_pass(Duration::from_millis(1_000));
    match before.zip(wake_ups(&server)) {
        // Twenty inspections, each of which wakes the server twice, and its own ten cron iterations.
        Some((before, after)) => assert!(after - before < 100, "{} times in a second", after - before),
        None => skip("the system does not report how often a process sleeps"),
    }
    client.run("PEXPIRE k 1");
    let changed = Instant::now();
    b.granted("b");
    assert!(changed.elapsed() < Duration::from_millis(100) + SLACK, "{:?}", changed.elapsed());
}

/// What a machine that is busy with other tests may add.
const SLACK: Duration = Duration::from_millis(1400);

#[test]
fn changes_held_back_by_a_pause_are_noticed_after_it() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "held", "y");
    let mut multi_key = Waiter::park(&server, "MLOCK.ACQUIRE 2 free held m BLOCK 0");
    client.run("CLIENT PAUSE 300 WRITE");
    client.send_line("SET free v");
    // No command comes after the pause.
    let reply = multi_key.reply_within(LIMIT);
    assert!(reply.error().starts_with("WRONGTYPE "), "{reply:?}");
    assert_eq!(client.read(), Reply::ok());
}
