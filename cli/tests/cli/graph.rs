//! `redis-lock graph` against real servers: the tree, the JSON, the Graphviz output, and how few commands it sends.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use faults::Cluster;
use serde_json::{json, Value};
use support::{in_sync, until, Client, Reply, Server};

use crate::screen::Screen;
use crate::tool::{at, fields, redis_lock};

/// Queues a request on a new connection, after those already queued.
#[track_caller]
fn waits(server: &Server, line: &str) -> Client {
    let before = server.blocked_clients();
    let mut client = server.client();
    client.send_line(line);
    server.wait_blocked(before + 1);
    client
}

/// The lines of the tree, with each time replaced by `#`.
fn tree(text: &str) -> Vec<String> {
    let is_time = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h']);
    let masked = |line: &str| {
        let indent: String = line.chars().take_while(|c| " │├└─".contains(*c)).collect();
        let words = line[indent.len()..].split_whitespace().map(|word| if is_time(word) { "#" } else { word });
        indent + &words.collect::<Vec<_>>().join(" ")
    };
    text.lines().skip_while(|line| !line.starts_with("LOCK, HOLDERS")).skip(1).map(masked).collect()
}

#[track_caller]
fn keys(graph: &Value) -> Vec<&str> {
    graph["locks"].as_array().expect("a list").iter().map(|lock| lock["key"].as_str().expect("text")).collect()
}

/// web-1 holds `orders`, and web-2 and web-3 wait for it. web-2 holds `ledger`, web-3 one of the two permits of `gpu`;
/// both locks have waiters.
fn chain(server: &Server) -> Vec<Client> {
    let mut client = server.client();
    client.run("LOCK.ACQUIRE orders web-1 PX 60000").fence();
    client.run("LOCK.ACQUIRE ledger web-2 PX 60000").fence();
    client.run("SEM.ACQUIRE gpu batch LIMIT 2 PERSIST").fence();
    client.run("SEM.ACQUIRE gpu web-3 LIMIT 2 PX 60000").fence();
    vec![
        waits(server, "LOCK.ACQUIRE orders web-2 BLOCK 0"),
        waits(server, "LOCK.ACQUIRE orders web-3 BLOCK 90000"),
        waits(server, "LOCK.ACQUIRE ledger web-7 BLOCK 0"),
        waits(server, "SEM.ACQUIRE gpu web-8 LIMIT 2 PERMITS 2 BLOCK 0"),
    ]
}

/// p holds `a` and waits for `b`, q holds `b` and waits for `a`: RENAME moves q's lock to the key that p waits for.
fn cycle(server: &Server) -> Vec<Client> {
    let mut client = server.client();
    client.run("LOCK.ACQUIRE a p PX 60000").fence();
    client.run("LOCK.ACQUIRE elsewhere q PX 90000").fence();
    client.run("LOCK.ACQUIRE b r").fence();
    let waiters = vec![waits(server, "LOCK.ACQUIRE b p BLOCK 0"), waits(server, "LOCK.ACQUIRE a q BLOCK 0")];
    assert_eq!(client.run("RENAME elsewhere b"), Reply::ok());
    waiters
}

#[test]
fn below_a_lock_are_its_holders_its_waiters_and_the_locks_they_block() {
    let server = Server::start();
    let _waiters = chain(&server);
    let output = at(&server, "graph");
    let expected = [
        "orders mutex, 2 waiting",
        "├─ held by web-1 # #",
        "├─ 1. web-2 # no limit",
        "│  └─ ledger mutex, 1 waiting",
        "│     ├─ held by web-2 # #",
        "│     └─ 1. web-7 # no limit",
        "└─ 2. web-3 # #",
        "   └─ gpu semaphore of 2, 1 waiting",
        "      ├─ held by batch # no deadline",
        "      ├─ held by web-3 # #",
        "      └─ 1. web-8, 2 permits # no limit",
    ];
    assert_eq!(tree(output.text()), expected, "{}", output.stdout);
    let first = format!("127.0.0.1:{}   module ", server.port());
    assert!(output.text().starts_with(&first) && output.text().contains("   waiters 4\n"), "{}", output.stdout);
}

#[test]
fn one_key_is_shown_with_the_locks_before_and_behind_it() {
    let server = Server::start();
    let _waiters = chain(&server);
    server.client().run("LOCK.ACQUIRE quiet web-8 PX 60000").fence();
    for (key, expected) in [
        ("orders", vec!["orders", "gpu", "ledger"]),
        ("ledger", vec!["orders", "ledger"]),
        // The lock has no waiters, but its holder waits.
        ("quiet", vec!["orders", "gpu", "quiet"]),
    ] {
        let graph = at(&server, &format!("graph {key} --json")).json();
        let mut found = keys(&graph);
        found.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "{key}");
    }
    let output = at(&server, "graph ledger");
    let expected = [
        "orders mutex, 2 waiting",
        "├─ held by web-1 # #",
        "├─ 1. web-2 # no limit",
        "│  └─ ledger mutex, 1 waiting",
        "│     ├─ held by web-2 # #",
        "│     └─ 1. web-7 # no limit",
        "└─ 2. web-3 # #",
    ];
    assert_eq!(tree(output.text()), expected, "{}", output.stdout);
}

#[test]
fn a_key_without_holders_and_waiters_exits_with_1() {
    let server = Server::start();
    let _waiters = chain(&server);
    let output = at(&server, "graph k");
    assert_eq!((output.status, output.stdout.as_str()), (1, ""));
    assert_eq!(output.stderr, "redis-lock: k is not held and has no waiters\n");
    let output = at(&server, "graph k --json");
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (1, "null\n", ""));
}

#[test]
fn without_waiters_it_says_so() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k w").fence();
    let output = at(&server, "graph");
    assert!(output.text().ends_with("   waiters 0\n\nno waiters\n"), "{}", output.stdout);
    assert_eq!(at(&server, "graph --json").json()["locks"], json!([]));
}

#[test]
fn owners_in_different_databases_are_distinct() {
    let server = Server::start();
    let mut clients = Vec::new();
    for (db, waiter) in [(0, "p"), (3, "q")] {
        let mut client = server.client();
        client.run(&format!("SELECT {db}"));
        client.run(&format!("LOCK.ACQUIRE k-{db} holder PERSIST")).fence();
        client.run(&format!("LOCK.ACQUIRE own-{db} {waiter} PERSIST")).fence();
        client.send_line(&format!("LOCK.ACQUIRE k-{db} {waiter} BLOCK 0"));
        clients.push(client);
    }
    server.wait_blocked(2);
    let text = at(&server, "graph");
    let mut rows = tree(text.text());
    rows.sort();
    assert!(rows.iter().any(|row| row == "k-3 mutex, db 3, 1 waiting"), "{rows:?}");
    assert!(rows.iter().any(|row| row == "k-0 mutex, 1 waiting"), "{rows:?}");
    // `holder` in database 0 and `holder` in database 3 are two owners.
    assert_eq!(keys(&at(&server, "graph k-0 --json").json()), ["k-0"]);
    assert_eq!(at(&server, "graph k-3").status, 1);
    let graph = at(&server, "-n 3 graph own-3 --json").json();
    assert_eq!(keys(&graph), ["k-3", "own-3"]);
    assert_eq!(graph["locks"][1]["db"], 3);
}

#[test]
fn a_cycle_is_reported_and_each_of_its_locks_is_drawn_once() {
    let server = Server::start();
    let _waiters = cycle(&server);
    for line in ["graph", "graph a", "graph b"] {
        let output = at(&server, line);
        assert!(output.text().contains("\ncycle of 2: its first lease has "), "{line}: {}", output.stdout);
        for step in ["\n  p waits for b, held by q\n", "\n  q waits for a, held by p\n"] {
            assert!(output.text().contains(step), "{line}: {}", output.stdout);
        }
        let expected = [
            "b mutex, 1 waiting",
            "├─ held by q, waits for a # #",
            "└─ 1. p # no limit",
            "   └─ a mutex, 1 waiting",
            "      ├─ held by p # #",
            "      └─ 1. q # no limit",
            "         └─ b cycle: see above",
        ];
        assert_eq!(tree(output.text()), expected, "{line}: {}", output.stdout);
    }
    let port = server.port();
    let step =
        |owner: &str, key: &str| json!({"owner": owner, "server": format!("127.0.0.1:{port}"), "db": 0, "key": key});
    assert_eq!(at(&server, "graph --json").json()["cycles"], json!([[step("p", "b"), step("q", "a")]]));
    let dot = at(&server, "graph --dot");
    assert_eq!(dot.text().matches("color=red").count(), 4, "{}", dot.stdout);
}

/// q may wait, because s could release its permit. The lower limit makes that insufficient.
#[test]
fn a_lowered_semaphore_limit_can_cause_a_cycle() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SEM.ACQUIRE pool p LIMIT 3 PERSIST").fence();
    client.run("SEM.ACQUIRE pool s LIMIT 3 PERSIST").fence();
    client.run("LOCK.ACQUIRE k q PERSIST").fence();
    let _waiters = [waits(&server, "LOCK.ACQUIRE k p BLOCK 0"), waits(&server, "SEM.ACQUIRE pool q LIMIT 2 BLOCK 0")];
    let output = at(&server, "graph");
    assert!(output.text().contains("cycle of 2: no lease ends it, "), "{}", output.stdout);
    assert!(tree(output.text()).iter().any(|row| row.ends_with("held by s # no deadline")), "{}", output.stdout);
}

/// A proxy between program and server: right before the program reads `b`, p hands `a` to q, q releases it and acquires
/// `b`, and p waits for `b`. At no time do p and q wait for each other.
#[test]
fn locks_that_change_hands_between_two_reads_are_not_a_cycle() {
    let server = Server::start();
    let mut p = server.client();
    p.run("LOCK.ACQUIRE a p PERSIST").fence();
    let mut q = waits(&server, "LOCK.ACQUIRE a q BLOCK 0");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = listener.local_addr().expect("its address").port();
    let port = server.port();
    let between = thread::spawn(move || {
        let (mut program, _) = listener.accept().expect("the program connects");
        let mut replies = TcpStream::connect(("127.0.0.1", port)).expect("the server is there");
        let mut requests = replies.try_clone().expect("a socket");
        let mut to_program = program.try_clone().expect("a socket");
        thread::spawn(move || io::copy(&mut replies, &mut to_program));
        let mut bytes = [0; 4096];
        let mut is_read = false;
        while let Ok(length @ 1..) = program.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]);
            if !is_read && text.contains("LOCK.INFO\r\n$1\r\nb\r\n") {
                is_read = true;
                assert_eq!(p.run("LOCK.RELEASE a p").int(), 1);
                q.read().fence();
                assert_eq!(q.run("LOCK.RELEASE a q").int(), 1);
                q.run("LOCK.ACQUIRE b q PERSIST").fence();
                p.send_line("LOCK.ACQUIRE b p BLOCK 0");
                until("p waits", || q.run("LOCK.INFO b").get("waiters").int() == 1);
            }
            requests.write_all(&bytes[..length]).expect("the server reads");
        }
        assert!(is_read, "it reads b by itself");
    });
    let output = redis_lock(&format!("-p {proxy} graph b --json"));
    assert_eq!(output.json()["cycles"], json!([]), "{}", output.stdout);
    assert_eq!(keys(&output.json()).len(), 2, "both were read: {}", output.stdout);
    between.join().expect("it went as planned");
}

#[test]
fn an_owner_that_wants_more_permits_is_not_a_cycle() {
    let server = Server::start();
    let mut client = server.client();
    for key in ["x", "y"] {
        client.run(&format!("RWLOCK.ACQUIRE {key} reader READ PERSIST")).fence();
        client.run(&format!("RWLOCK.ACQUIRE {key} other READ PERSIST")).fence();
    }
    let _waiters = ["x", "y"].map(|key| waits(&server, &format!("RWLOCK.ACQUIRE {key} reader WRITE BLOCK 0")));
    let graph = at(&server, "graph --json").json();
    assert_eq!(graph["cycles"], json!([]));
    let output = at(&server, "graph");
    assert!(!output.text().contains("cycle"), "{}", output.stdout);
    assert!(output.text().contains("held by reader, read, waits for y "), "{}", output.stdout);
}

#[test]
fn an_mlock_request_shows_its_other_locks_and_free_locks_are_marked() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE a holder PERSIST").fence();
    let _waiter = waits(&server, "MLOCK.ACQUIRE 2 a b w BLOCK 0");
    let output = at(&server, "graph");
    let expected = [
        "a mutex, 1 waiting",
        "├─ held by holder # no deadline",
        "└─ 1. w, waits also for b # no limit",
        "b mutex, 1 waiting",
        "├─ free",
        "└─ 1. w, waits also for a # no limit",
    ];
    assert_eq!(tree(output.text()), expected, "{}", output.stdout);
    // The request blocks the free lock, so the lock that it waits for explains why.
    let output = at(&server, "graph b");
    assert_eq!(tree(output.text()), expected, "{}", output.stdout);
}

#[test]
fn modes_and_hold_counts_are_shown() {
    let server = Server::start();
    let mut client = server.client();
    client.run("RWLOCK.ACQUIRE book r READ PERSIST").fence();
    client.run("RLOCK.ACQUIRE again o HOLDS 3 PERSIST").fence();
    let _waiters =
        [waits(&server, "RWLOCK.ACQUIRE book w WRITE BLOCK 0"), waits(&server, "RLOCK.ACQUIRE again p BLOCK 0")];
    let rows = tree(at(&server, "graph").text());
    for row in [
        "├─ held by r, read # no deadline",
        "└─ 1. w, write # no limit",
        "├─ held by o, 3 times # no deadline",
        "└─ 1. p # no limit",
    ] {
        assert!(rows.iter().any(|found| found == row), "{row}: {rows:?}");
    }
}

/// One lock has 9,000 waiters, 1,000 others have one each. The waiter that blocks others is near the front of the
/// queue.
fn crowded(server: &Server) -> Client {
    let mut client = server.client();
    client.run("LOCK.ACQUIRE big holder PERSIST").fence();
    client.run("LOCK.ACQUIRE behind w20 PERSIST").fence();
    client.run("LOCK.ACQUIRE behind w BLOCK 0 NOTIFY c");
    let lines: Vec<String> = (0..8_999).map(|index| format!("LOCK.ACQUIRE big w{index} BLOCK 0 NOTIFY c")).collect();
    client.pipeline(&lines);
    let held: Vec<String> = (0..1_000).map(|index| format!("LOCK.ACQUIRE k{index} h PERSIST")).collect();
    client.pipeline(&held);
    let lines: Vec<String> =
        (0..1_000).map(|index| format!("LOCK.ACQUIRE k{index} x{index} BLOCK 0 NOTIFY c")).collect();
    client.pipeline(&lines);
    until("all wait", || server.info("lock").number("lock_waiters") == 10_000);
    client
}

fn calls(server: &Server, command: &str) -> i64 {
    let stats = server.client().run("INFO commandstats");
    let line = stats.text().lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
}

#[test]
fn ten_thousand_waiters_take_a_bounded_number_of_commands_and_omissions_are_reported() {
    let server = Server::start();
    let _client = crowded(&server);
    for (options, locks) in [("", 50), ("--locks 7", 7)] {
        server.client().run("CONFIG RESETSTAT");
        let output = at(&server, &format!("graph {options}"));
        assert_eq!(calls(&server, "lock.top"), 1);
        assert_eq!(calls(&server, "lock.info"), locks);
        assert_eq!(calls(&server, "lock.waiters"), locks);
        assert_eq!((calls(&server, "select"), calls(&server, "lock.scan")), (0, 0));
        let rows = tree(output.text());
        let expected = [
            "big mutex, 8999 waiting",
            "├─ held by holder # no deadline",
            "├─ 1. w0 # no limit",
            "├─ 2. w1 # no limit",
            "├─ 3. w2 # no limit",
            "├─ 4. w3 # no limit",
            "├─ 5. w4 # no limit",
            "├─ 21. w20 # no limit",
            "│  └─ behind mutex, 1 waiting",
            "│     ├─ held by w20 # no deadline",
            "│     └─ 1. w # no limit",
            "└─ … 8993 more waiting",
        ];
        assert_eq!(rows[..expected.len()], expected, "{}", output.stdout);
        assert!(output.text().contains("\nnot shown, nor what else they hold: 8899 waiters (--waiters N)\n"));
        assert!(output.text().ends_with("\nnot shown: locks with fewer waiters (--locks N)\n"), "{}", output.stdout);
    }
    let graph = at(&server, "graph --locks 3 --waiters 40 --json").json();
    assert_eq!(graph["left_out"], json!({"locks": true, "unreadable": 0, "holders": 0, "waiters": 8_959}));
    assert_eq!(graph["locks"][0]["queue"].as_array().expect("a list").len(), 40);
}

#[test]
fn a_thousand_locks_are_read_if_requested() {
    let server = Server::start();
    let _client = crowded(&server);
    let graph = at(&server, "graph --locks 1000 --json").json();
    assert_eq!(keys(&graph).len(), 1_000);
}

#[test]
fn a_chain_too_deep_for_80_columns_continues_at_the_margin() {
    let server = Server::start();
    let mut client = server.client();
    let mut waiters = Vec::new();
    for index in 0..20 {
        client.run(&format!("LOCK.ACQUIRE key-{index} owner-{index} PERSIST")).fence();
    }
    for index in 1..20 {
        waiters.push(waits(&server, &format!("LOCK.ACQUIRE key-{} owner-{index} BLOCK 0", index - 1)));
    }
    waiters.push(waits(&server, "LOCK.ACQUIRE key-19 last BLOCK 0"));
    let output = at(&server, "graph");
    let rows = tree(output.text());
    for index in 0..20 {
        let drawn = format!("key-{index} mutex, 1 waiting");
        assert_eq!(rows.iter().filter(|row| row.ends_with(&drawn)).count(), 1, "{drawn}: {rows:#?}");
    }
    assert!(rows.contains(&"                     └─ key-4 see below".to_string()), "{rows:#?}");
    assert!(rows.contains(&"├─ held by owner-4, waits for key-3 # no deadline".to_string()), "{rows:#?}");
    assert!(output.text().lines().all(|line| line.chars().count() <= 80), "{}", output.stdout);
}

#[test]
fn in_80_columns_long_names_are_truncated_and_times_are_kept() {
    let server = Server::start();
    let (key, owner) = ("k".repeat(100), "o".repeat(100));
    server.client().run(&format!("LOCK.ACQUIRE {key} {owner} PERSIST")).fence();
    let _waiter = waits(&server, &format!("LOCK.ACQUIRE {key} {owner}-2 BLOCK 0"));
    let mut screen = Screen::start_with(&format!("-p {} graph", server.port()), 80, &[]);
    assert_eq!(screen.status(), 0);
    screen.until_shows("no limit");
    let text = screen.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("kkkk") && line.ends_with("…  mutex, 1 waiting")), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("├─ held by ooo") && line.ends_with("no deadline")), "{text}");
    // JSON is not truncated, because programs read it.
    assert!(at(&server, "graph").text().contains(&format!("held by {owner} ")));
}

#[test]
fn colours_are_only_used_on_terminals_without_no_color() {
    let server = Server::start();
    let _waiters = cycle(&server);
    let line = format!("-p {} graph", server.port());
    let shown = |environment: &[(&str, &str)]| {
        let mut screen = Screen::start_with(&line, 80, environment);
        assert_eq!(screen.status(), 0);
        screen.until_shows("cycle: see above");
        screen.coloured_text()
    };
    let is_red = |text: &str| text.contains("\u{1b}[31") || text.contains("\u{1b}[91") || text.contains("38;5;9");
    assert!(is_red(&shown(&[])), "{:?}", shown(&[]));
    assert!(!is_red(&shown(&[("NO_COLOR", "1")])), "{:?}", shown(&[("NO_COLOR", "1")]));
    assert!(!at(&server, "graph").text().contains('\u{1b}'));
}

#[test]
fn json_has_the_fields_of_the_servers_own_replies() {
    let server = Server::start();
    let _waiters = chain(&server);
    let graph = at(&server, "graph --json").json();
    assert_eq!(fields(&graph), ["cycles", "left_out", "locks", "missing", "servers", "time"]);
    assert_eq!(graph["left_out"], json!({"locks": false, "unreadable": 0, "holders": 0, "waiters": 0}));
    let lock = &graph["locks"][0];
    let info = at(&server, "info orders --json").json();
    let mut expected = fields(&info);
    expected.extend(["db", "queue", "server"]);
    expected.sort();
    assert_eq!(fields(lock), expected);
    assert_eq!((&lock["key"], &lock["waiters"], &lock["db"]), (&json!("orders"), &json!(2), &json!(0)));
    assert_eq!(lock["server"], format!("127.0.0.1:{}", server.port()));
    assert_eq!(fields(&lock["holders"][0]), fields(&info["holders"][0]));
    let waiters = at(&server, "waiters orders --json").json();
    assert_eq!(fields(&lock["queue"][0]), fields(&waiters[0]));
    assert_eq!(lock["queue"][1]["owner"], "web-3");
}

#[test]
fn the_graphviz_output_has_edges_from_waiters_to_holders_and_quoted_names() {
    let server = Server::start();
    server.client().cmd(&["LOCK.ACQUIRE", "a\"b", "w\\1", "PERSIST"]).fence();
    let mut waiter = server.client();
    waiter.send(&["LOCK.ACQUIRE", "a\"b", "x\ny", "BLOCK", "0"]);
    server.wait_blocked(1);
    let output = at(&server, "graph --dot");
    let without_times =
        |line: &str| line.split(' ').filter(|word| !word.ends_with("s\"];")).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = output.text().lines().map(without_times).collect();
    let expected = [
        "digraph \"redis-lock\" {",
        "rankdir=LR;",
        "lock0 [shape=box, style=bold, label=\"a\\\"b\\nmutex, 1 waiting\"];",
        // A name as redis-cli writes it, with backslashes as Graphviz writes them.
        "owner0 [label=\"w\\\\\\\\1\"];",
        "lock0 -> owner0 [label=\"held",
        "owner1 [label=\"x\\\\ny\"];",
        "owner1 -> lock0 [label=\"1. waits",
        "}",
    ];
    assert_eq!(lines, expected, "{}", output.stdout);
}

#[test]
fn unreadable_keys_are_counted_and_the_others_shown() {
    let server = Server::start();
    let mut client = server.client();
    client.run("ACL SETUSER viewer on >secret %R~seen:* +@all");
    let mut waiters = Vec::new();
    for key in ["seen:1", "hidden:1", "hidden:2"] {
        client.run(&format!("LOCK.ACQUIRE {key} holder PERSIST")).fence();
        waiters.push(waits(&server, &format!("LOCK.ACQUIRE {key} w BLOCK 0")));
    }
    let output = at(&server, "--user viewer -a secret graph");
    let expected = ["seen:1 mutex, 1 waiting", "├─ held by holder # no deadline", "└─ 1. w # no limit", ""];
    assert_eq!(tree(output.text())[..4], expected, "{}", output.stdout);
    assert!(output.text().ends_with("\n\nnot shown for lack of permission: 2 locks\n"), "{}", output.stdout);
    let output = at(&server, "--user viewer -a secret graph hidden:1");
    assert_eq!((output.status, output.stdout.as_str()), (77, ""));
}

#[test]
fn in_a_cluster_a_cycle_across_two_primaries_is_found() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    let home = |key: &str| cluster.node(cluster.primary_of(cluster.slot(key)));
    let other = ["b", "c", "d", "e", "f"].into_iter().find(|key| home(key).port() != home("a").port());
    let other = other.expect("a key of another node");
    home("a").client().run("LOCK.ACQUIRE a p PX 60000").fence();
    home(other).client().run(&format!("LOCK.ACQUIRE {other} q PX 60000")).fence();
    // Neither node sees the other's locks, so neither refuses the request.
    let _waiters =
        [waits(home("a"), "LOCK.ACQUIRE a q BLOCK 0"), waits(home(other), &format!("LOCK.ACQUIRE {other} p BLOCK 0"))];
    for node in 0..3 {
        let port = cluster.node(node).port();
        let output = redis_lock(&format!("-c -p {port} graph"));
        assert!(output.text().starts_with("3 primaries   module "), "{}", output.stdout);
        assert!(output.text().contains("\ncycle of 2: "), "{}", output.stdout);
        assert!(output.text().contains(&format!("\n  p waits for {other}, held by q\n")), "{}", output.stdout);
        let graph = redis_lock(&format!("-c -p {port} graph a --json")).json();
        let mut found = keys(&graph);
        found.sort();
        assert_eq!(found, ["a", other]);
        assert_eq!(redis_lock(&format!("-c -p {port} graph nothing")).status, 1);
    }
    // The slot of this key is moving, so its node replies ASK.
    let slot = cluster.slot("nothing");
    let to = (cluster.primary_of(slot) + 1) % 3;
    let to = cluster.node(to).client().run("CLUSTER MYID").text().to_string();
    home("nothing").client().run(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}"));
    assert_eq!(redis_lock(&format!("-c -p {} graph nothing", home("a").port())).status, 1);
}

#[test]
fn a_replica_is_reported_as_such() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let _waiters = chain(&primary);
    in_sync(&primary, &replica);
    let output = at(&replica, "graph");
    assert!(output.text().contains("is a replica, which has no waiters: ask its primary"), "{}", output.stdout);
}
