use serde_json::{json, Value};
use support::Server;

use crate::tool::{at, fields, redis_lock_with};

#[test]
fn the_text_output_shows_the_lock_and_each_holder() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.run("SEM.ACQUIRE permits a LIMIT 5 PERMITS 2 PX 3600000").fence();
    let second = client.run("SEM.ACQUIRE permits b LIMIT 5 PERSIST").fence();
    let mut waiter = server.client();
    waiter.send_line("SEM.ACQUIRE permits c LIMIT 5 PERMITS 4 BLOCK 0");
    server.wait_blocked(1);
    let output = at(&server, "info permits");
    let rows = output.rows();
    let fence = second.to_string();
    let about = [
        ["key", "permits"],
        ["kind", "semaphore"],
        ["limit", "5"],
        ["fence", &fence],
        ["left", "no deadline"],
        ["holders", "2"],
        ["waiters", "1"],
    ];
    for (line, [name, value]) in output.text().lines().zip(about) {
        assert_eq!(line, format!("{name:<8} {value}"));
    }
    assert_eq!(rows[8], ["OWNER", "MODE", "HOLDS", "FENCE", "HELD", "LEFT", "LEASE", "SESSION"]);
    assert_eq!(rows[9][..4], ["a", "permits", "2", &first.to_string()]);
    assert!(["1h00m", "59m59s"].contains(&rows[9][5]), "{:?}", rows[9]);
    assert_eq!(rows[9][6..], ["1h00m", "-"]);
    assert_eq!((rows[10][0], rows[10][5]), ("b", "no deadline"));
    assert_eq!(rows.len(), 11);
}

#[test]
fn an_adopted_lock_shows_the_client_that_was_granted_it() {
    let server = Server::builder().config("lock.adopt lock:*").start();
    let mut client = server.client();
    client.run("CLIENT SETNAME worker-7");
    client.run("SET lock:k token NX PX 60000");
    let text = at(&server, "info lock:k").text().to_string();
    assert!(text.contains(&format!("client   {} worker-7\n", client.address())), "{text}");
    let holder = at(&server, "info lock:k --json").json()["holders"][0].clone();
    assert_eq!((&holder["addr"], &holder["client"]), (&json!(client.address()), &json!("worker-7")));
}

#[test]
fn json_has_the_fields_of_lock_info() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.run("LOCK.ACQUIRE k w PX 60000 SESSION").fence();
    let session = client.id();
    let mut lock = at(&server, "info k --json").json();
    let holder = &mut lock["holders"][0];
    let age = holder["age"].take();
    assert!(age.as_i64().is_some_and(|age| age >= 0), "{age}");
    let ttl = holder["ttl"].take();
    assert!(ttl.as_i64().is_some_and(|ttl| (1..=60_000).contains(&ttl)), "{ttl}");
    assert_eq!(lock["ttl"].take(), ttl);
    let expected = json!({
        "key": "k", "kind": "mutex", "limit": 1, "fence": fence, "ttl": null, "waiters": 0, "holding": 1,
        "holders": [{
            "owner": "w", "mode": "exclusive", "holds": 1, "fence": fence, "ttl": null, "lease": 60_000, "age": null,
            "session": session,
        }],
    });
    assert_eq!(lock, expected);
}

#[test]
fn a_slot_of_a_semaphore_is_shown() {
    let server = Server::start();
    for owner in ["a SLOT", "b SLOT", "c"] {
        let words = owner.split_once(' ').map_or((owner, ""), |words| words);
        server.client().run(&format!("SEM.ACQUIRE s {} LIMIT 3 {}", words.0, words.1)).fence();
    }
    let lock = at(&server, "info s --json").json();
    let slots: Vec<&Value> = lock["holders"].as_array().expect("a list").iter().map(|holder| &holder["slot"]).collect();
    assert_eq!(slots, [&json!(0), &json!(1), &json!(-1)]);
    let output = at(&server, "info s");
    let modes: Vec<&str> = output.rows().iter().skip(9).map(|row| row[1]).collect();
    assert_eq!(modes, ["slot 0", "slot 1", "permits"]);
}

#[test]
fn count_limits_the_holders_but_not_their_number() {
    let server = Server::start();
    let mut client = server.client();
    for index in 0..120 {
        client.run(&format!("SEM.ACQUIRE s o{index} LIMIT 200")).fence();
    }
    for (option, shown) in [("", 100), ("--count 3", 3), ("--count 0", 120)] {
        let lock = at(&server, &format!("info s --json {option}")).json();
        assert_eq!(lock["holders"].as_array().expect("a list").len(), shown, "{option}");
        assert_eq!(lock["holding"], 120);
    }
}

#[test]
fn a_free_lock_exits_with_1() {
    let server = Server::start();
    let output = at(&server, "info k");
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (1, "", "redis-lock: k is not held\n"));
    let output = at(&server, "info k --json");
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (1, "null\n", ""));
}

#[test]
fn a_key_may_begin_with_a_hyphen() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE --json w").fence();
    let output = redis_lock_with(&["-p", &server.port().to_string(), "info", "--json", "--", "--json"]);
    assert_eq!(output.json()["key"], "--json");
}

#[test]
fn a_reader_and_a_writer_show_their_modes() {
    let server = Server::start();
    let mut client = server.client();
    client.run("RWLOCK.ACQUIRE book w WRITE").fence();
    client.run("RWLOCK.ACQUIRE book w READ").fence();
    let lock = at(&server, "info book --json").json();
    let modes: Vec<&Value> = lock["holders"].as_array().expect("a list").iter().map(|holder| &holder["mode"]).collect();
    assert_eq!(modes, ["write", "read"]);
    assert_eq!(fields(&lock).len(), 8);
}
