use std::time::Duration;

use faults::{Cluster, Takeover};
use serde_json::{json, Value};
use support::{in_sync, until, Client, Info, Server};

use crate::screen::Screen;
use crate::tool::{at, fields, redis_lock, PROGRAM};

/// Two locks: `z-hot` sorts first by waiters, `warm` by key and by oldest wait. They wait while the client is
/// connected.
fn contended(server: &Server) -> Client {
    let mut client = server.client();
    client.run("LOCK.ACQUIRE warm holder-of-warm PERSIST").fence();
    client.run("LOCK.ACQUIRE warm w1 BLOCK 0 NOTIFY c");
    until("it has waited for some time", || client.run("LOCK.WAITERS warm").items()[0].get("waited").int() > 2);
    client.run("LOCK.ACQUIRE z-hot holder-of-hot PERSIST").fence();
    client.run("LOCK.ACQUIRE z-hot w2 BLOCK 0 NOTIFY c");
    client.run("LOCK.ACQUIRE z-hot w3 BLOCK 0 NOTIFY c");
    client
}

fn start(server: &Server) -> Screen {
    Screen::start(&format!("-p {} top --interval 100ms", server.port()))
}

/// The keys in the order of their rows.
fn keys(screen: &str) -> Vec<&str> {
    let rows = screen.lines().skip_while(|line| !line.starts_with("WAITERS")).skip(1);
    rows.filter_map(|row| row.split_whitespace().nth(5))
        .take_while(|key| key.contains('r') || key.contains('h'))
        .collect()
}

#[test]
fn the_lock_with_the_most_waiters_is_on_top_with_its_holder() {
    let server = Server::start();
    let _waiters = contended(&server);
    let screen = start(&server);
    screen.until_shows("z-hot");
    let text = screen.text();
    let row = |key: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.contains(&format!(" {key} "))).expect("a row");
        line.split_whitespace().map(String::from).collect()
    };
    let hot = row("z-hot");
    assert_eq!(
        (hot[0].as_str(), &hot[3..]),
        ("2", ["mutex", "0", "z-hot", "holder-of-hot"].map(String::from).as_slice())
    );
    assert_eq!(row("warm")[0], "1");
    assert_eq!(keys(&text), ["z-hot", "warm"]);
    assert!(text.contains(&format!("127.0.0.1:{}", server.port())), "{text}");
    assert!(text.contains("locks 2 (mutex 2, reentrant 0, rw 0, semaphore 0)   waiters 3"), "{text}");
}

#[test]
fn hand_offs_per_second_match_the_servers() {
    let server = Server::start();
    let screen = start(&server);
    screen.until_shows("hand-offs 0 ");
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k one PERSIST").fence();
    screen.until("hand-offs", |text| {
        // The lock alternates between two owners until a sample has seen it.
        let mut client = server.client();
        for [holder, next] in [["one", "other"], ["other", "one"]] {
            client.run(&format!("LOCK.ACQUIRE k {next} PERSIST BLOCK 0 NOTIFY c"));
            client.run(&format!("LOCK.RELEASE k {holder}"));
        }
        text.contains("hand-offs ") && !text.contains("hand-offs 0 ")
    });
    let grants = server.info("lock").number("lock_grants_after_wait");
    assert!(grants > 0, "{grants}");
}

#[test]
fn q_escape_and_control_c_exit_with_0_and_restore_the_terminal() {
    let server = Server::start();
    for key in ["q", "\x1b", "\x03"] {
        let mut screen = start(&server);
        screen.until_shows("no waiters");
        screen.press(key);
        assert_eq!(screen.status(), 0, "{key:?}");
        screen.assert_restored();
        assert!(!screen.text().contains("no waiters"), "{}", screen.text());
    }
}

#[test]
fn control_z_suspends_it_and_fg_restores_the_screen() {
    let server = Server::start();
    let mut screen = Screen::shell("bash", &["--noprofile", "--norc", "-i"]);
    screen.press(&format!("{PROGRAM} -p {} top --interval 100ms\n", server.port()));
    screen.until_shows("no waiters");
    for _ in 0..2 {
        screen.press("\x1a");
        screen.until("the shell", |text| text.contains("Stopped") && !text.contains("no waiters"));
        screen.press("fg\n");
        screen.until("the screen again", |text| text.contains("no waiters") && !text.contains("Stopped"));
        screen.press("?");
        screen.until_shows("this help");
        screen.press("?");
        screen.until("no help", |text| !text.contains("this help"));
    }
    screen.press("q");
    screen.until("the shell", |text| !text.contains("no waiters"));
}

#[test]
fn signals_end_it_and_restore_the_terminal() {
    let server = Server::start();
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let mut screen = start(&server);
        screen.until_shows("no waiters");
        screen.signal(signal);
        assert_eq!(screen.status(), status, "{signal}");
        screen.assert_restored();
    }
}

#[test]
fn keys_sort_the_rows_change_the_interval_and_show_help() {
    let server = Server::start();
    let _waiters = contended(&server);
    let mut screen = start(&server);
    screen.until("both", |text| keys(text) == ["z-hot", "warm"]);
    screen.press("k");
    screen.until("them by key", |text| keys(text) == ["warm", "z-hot"] && text.contains("sort: key"));
    screen.press("w");
    screen.until("them by waiters", |text| keys(text) == ["z-hot", "warm"] && text.contains("sort: waiters"));
    screen.press("o");
    screen.until("them by the oldest wait", |text| keys(text) == ["warm", "z-hot"] && text.contains("oldest wait"));
    screen.press("s");
    screen.until("them by the time held", |text| text.contains("sort: time held"));
    screen.press("+");
    screen.until_shows("every 200ms");
    screen.press("-");
    screen.until_shows("every 100ms");
    screen.press("?");
    screen.until_shows("this help");
    screen.press("\x1b");
    screen.until("no help", |text| !text.contains("this help"));
    screen.press("k");
    screen.until_shows("sort: key");
    screen.press("q");
    assert_eq!(screen.status(), 0);
}

#[test]
fn rows_that_do_not_fit_can_be_scrolled_to() {
    let server = Server::start();
    let mut client = server.client();
    for index in 10..50 {
        client.run(&format!("LOCK.ACQUIRE rr-{index} holder PERSIST")).fence();
        client.run(&format!("LOCK.ACQUIRE rr-{index} waiter BLOCK 0 NOTIFY c"));
    }
    let mut screen = start(&server);
    screen.press("k");
    screen.until("the first rows", |text| keys(text).first() == Some(&"rr-10") && text.contains("sort: key"));
    let rows = keys(&screen.text()).len();
    screen.press("\x1b[6~");
    screen.until("the next page", |text| keys(text).first().is_some_and(|key| *key == format!("rr-{}", 10 + rows)));
    screen.press("\x1b[F");
    screen.until("the last rows", |text| keys(text).last() == Some(&"rr-49"));
    screen.press("\x1b[A");
    screen.until("one row up", |text| keys(text).last() == Some(&"rr-48"));
    screen.press("\x1b[H");
    screen.until("the first rows", |text| keys(text).first() == Some(&"rr-10"));
}

#[test]
fn it_adapts_to_the_size_of_the_terminal() {
    let server = Server::start();
    let _waiters = contended(&server);
    let mut screen = start(&server);
    screen.until_shows("z-hot");
    screen.resize(8, 60);
    // There is room for one row: the last line is the eighth.
    screen.until("one row", |text| {
        keys(text) == ["z-hot"] && text.lines().nth(7).is_some_and(|line| line.starts_with("q quit"))
    });
    screen.resize(2, 5);
    screen.until("what fits", |text| text.lines().nth(1) == Some("q qui"));
    screen.resize(30, 120);
    screen.until("all rows", |text| keys(text) == ["z-hot", "warm"] && text.contains("answered in"));
}

#[test]
fn long_names_are_truncated_and_the_least_important_columns_are_dropped_first() {
    let server = Server::start();
    let mut client = server.client();
    let (key, owner) = ("orders:".to_string() + &"r".repeat(60), "a-host-wit:1234567:0123456789abcdef");
    client.run(&format!("LOCK.ACQUIRE {key} {owner} PERSIST")).fence();
    client.run(&format!("LOCK.ACQUIRE {key} waiter BLOCK 0 NOTIFY c"));
    let mut screen = start(&server);
    for (columns, titles) in [
        (100, "WAITERS OLDEST HELD KIND DB KEY HOLDER"),
        (80, "WAITERS OLDEST HELD KIND DB KEY HOLDER"),
        (40, "WAITERS OLDEST KEY HOLDER"),
        (24, "WAITERS OLDEST KEY"),
    ] {
        screen.resize(24, columns);
        screen.until(&format!("the columns of {columns}"), |text| {
            let mut table = text.lines().skip_while(|line| !line.starts_with("WAITERS"));
            let has_titles = table.next().is_some_and(|line| line.split_whitespace().eq(titles.split(' ')));
            let row = table.next().unwrap_or_default();
            let names = row.split_whitespace().filter(|word| word.starts_with("orders:") || word.starts_with("a-host"));
            has_titles && names.clone().count() > 0 && names.clone().all(|name| name.ends_with('…') || *name == *owner)
        });
    }
    // No other line is truncated without a sign either.
    let numbers = screen.text().lines().nth(1).unwrap_or_default().to_string();
    assert!(numbers.starts_with("locks 1 ") && numbers.ends_with('…'), "{numbers}");
}

#[test]
fn problems_are_shown_in_full_sentences_in_a_narrow_terminal() {
    let mut server = Server::builder().config("maxmemory 100mb").config("maxmemory-policy allkeys-lru").start();
    let mut screen = start(&server);
    screen.resize(24, 40);
    let shown_text = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let evicts = format!("127.0.0.1:{} may evict locks: its maxmemory-policy should be noeviction", server.port());
    screen.until("the warning", |text| shown_text(text).contains(&evicts));
    server.kill();
    screen.until("the problem", |text| shown_text(text).contains("(os error 111); retrying. Data shown: "));
}

#[test]
fn when_the_server_disappears_it_says_so_and_reconnects() {
    let mut server = Server::start();
    let screen = start(&server);
    screen.until_shows("no waiters");
    server.kill();
    screen.until("that the server disappeared", |text| {
        text.contains("no connection to 127.0.0.1:") && text.contains("retrying")
    });
    server.restart();
    let _waiters = contended(&server);
    screen.until("the locks of the new one", |text| text.contains("z-hot") && !text.contains("no connection"));
}

#[test]
fn a_paused_server_is_reported_while_the_keys_still_work() {
    let server = Server::start();
    let mut screen = start(&server);
    screen.until_shows("no waiters");
    let pid = server.pid().to_string();
    let signal = |name: &str| {
        assert!(std::process::Command::new("kill").args(["-s", name, &pid]).status().is_ok_and(|done| done.success()))
    };
    signal("STOP");
    screen.until_shows("no response for");
    screen.press("?");
    screen.until_shows("this help");
    signal("CONT");
    screen.until("that the server replies", |text| !text.contains("no response for"));
}

#[test]
fn a_sample_uses_lock_top_and_info_and_never_scans_keys() {
    let server = Server::start();
    let mut waiters = contended(&server);
    waiters.run("CONFIG RESETSTAT");
    let _screen = start(&server);
    let calls = |command: &str| {
        let stats = server.info("commandstats");
        let line = stats.find(&format!("cmdstat_{command}")).unwrap_or("calls=0,").to_string();
        line["calls=".len()..line.find(',').expect("more fields")].parse::<u64>().expect("a number")
    };
    until("it has looked five times", || calls("lock.top") >= 5);
    let sent: Vec<String> = commands(&server);
    for command in ["scan", "keys", "lock.scan", "lock.info", "lock.waiters"] {
        assert!(!sent.contains(&command.to_string()), "{sent:?}");
    }
}

/// Every command sent so far.
fn commands(server: &Server) -> Vec<String> {
    let text = server.client().cmd(&["INFO", "commandstats"]);
    let names = text.text().lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    names.map(String::from).collect()
}

#[test]
fn once_prints_what_the_screen_shows() {
    let server = Server::start();
    let _waiters = contended(&server);
    let output = at(&server, "top --once --interval 100ms");
    let lines: Vec<&str> = output.text().lines().collect();
    let version = env!("CARGO_PKG_VERSION");
    assert!(lines[0].starts_with(&format!("127.0.0.1:{}   module {version}", server.port())), "{}", lines[0]);
    assert_eq!(lines[1], "locks 2 (mutex 2, reentrant 0, rw 0, semaphore 0)   waiters 3   sessions 0");
    assert_eq!(lines[2], "each second: hand-offs 0   grants 0   releases 0   leases expired 0   refused 0");
    let words: Vec<Vec<&str>> = lines[5..].iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["WAITERS", "OLDEST", "HELD", "KIND", "DB", "KEY", "HOLDER"]);
    assert_eq!((words[1][0], &words[1][3..]), ("2", ["mutex", "0", "z-hot", "holder-of-hot"].as_slice()));
    assert_eq!((words[2][0], &words[2][3..]), ("1", ["mutex", "0", "warm", "holder-of-warm"].as_slice()));
    assert_eq!(at(&server, "top --once --interval 100ms --count 1").text().lines().count(), 7);
}

#[test]
fn once_as_json_has_the_fields_of_lock_top_and_of_info() {
    let server = Server::start();
    let _waiters = contended(&server);
    let top = at(&server, "top --once --json --interval 100ms").json();
    assert_eq!(fields(&top), ["locks", "missing", "per_second", "servers", "time"]);
    let mut hot = top["locks"][0].clone();
    for field in ["longest", "held"] {
        assert!(hot[field].take().is_u64(), "{field}");
    }
    let name = format!("127.0.0.1:{}", server.port());
    let expected = json!({
        "server": name, "db": 0, "key": "z-hot", "kind": "mutex", "waiters": 2, "longest": null,
        "holder": "holder-of-hot", "held": null,
    });
    assert_eq!(hot, expected);
    assert_eq!(fields(&top["per_second"]), ["grants", "hand_offs", "leases_expired", "not_granted", "releases"]);
    let counters = &top["servers"][0];
    assert_eq!((&counters["server"], &counters["role"]), (&json!(name), &json!("master")));
    assert_eq!((&counters["refusals"], &top["missing"]), (&json!([]), &json!([])));
    let info = server.info("lock");
    for (field, value) in counters.as_object().expect("an object") {
        if !["server", "role", "refusals"].contains(&field.as_str()) {
            let shown_text = info.text(&format!("lock_{field}"));
            assert!(
                value.as_u64().map_or(value == shown_text, |number| field.ends_with("_ms")
                    || number.to_string() == shown_text
                    || field.contains("_ms_")
                    || field.ends_with("_us")),
                "{field}: {value} {shown_text}"
            );
        }
    }
}

#[test]
fn a_free_lock_with_waiters_has_no_holder() {
    let server = Server::builder().config("lock.grace 60000").start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k w BLOCK 0 NOTIFY c");
    let output = at(&server, "top --once --interval 100ms");
    let lines: Vec<&str> = output.text().lines().collect();
    assert!(lines[4].contains(" grants nothing for "), "{}", lines[4]);
    let words: Vec<&str> = lines[7].split_whitespace().collect();
    assert_eq!((words[0], &words[2..]), ("1", ["-", "mutex", "0", "k", "free"].as_slice()));
    assert_eq!(at(&server, "top --once --json --interval 100ms").json()["locks"][0]["holder"], Value::Null);
}

#[test]
fn it_warns_of_replicas_and_servers_that_may_evict() {
    let primary = Server::builder().config("maxmemory 100mb").config("maxmemory-policy allkeys-lru").start();
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    let output = at(&replica, "top --once --interval 100ms");
    let expected = format!("127.0.0.1:{} is a replica, which has no waiters: ask its primary", replica.port());
    assert!(output.text().contains(&expected), "{}", output.stdout);
    let output = at(&primary, "top --once --interval 100ms");
    let expected = format!("127.0.0.1:{} may evict locks", primary.port());
    assert!(output.text().contains(&expected) && !output.stdout.contains("is a replica"), "{}", output.stdout);
}

#[test]
fn in_a_cluster_the_locks_of_all_primaries_form_one_list() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    let mut clients = Vec::new();
    for (key, waiters) in [("a", 1), ("b", 3), ("c", 2), ("d", 5), ("e", 4)] {
        let home = cluster.node(cluster.primary_of(cluster.slot(key)));
        home.client().run(&format!("LOCK.ACQUIRE {key} w PERSIST")).fence();
        for index in 0..waiters {
            let mut client = home.client();
            client.send_line(&format!("LOCK.ACQUIRE {key} w{index} BLOCK 0"));
            clients.push(client);
        }
    }
    let waiting = || -> i64 {
        let nodes = (0..3)
            .map(|index| Info::parse(cluster.node(index).client().run("INFO lock").text()).number("lock_waiters"));
        nodes.sum()
    };
    until("all wait", || waiting() == 15);
    let top = redis_lock(&format!("-c -p {} top --once --json --interval 100ms", cluster.node(0).port())).json();
    let keys: Vec<&str> =
        top["locks"].as_array().expect("a list").iter().map(|lock| lock["key"].as_str().expect("text")).collect();
    assert_eq!(keys, ["d", "e", "b", "c", "a"]);
    assert_eq!(top["servers"].as_array().expect("a list").len(), 3);
    let sum: u64 = top["servers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|server| server["waiters"].as_u64().expect("a number"))
        .sum();
    assert_eq!(sum, 15);
    let text = redis_lock(&format!("-c -p {} top --once --count 2 --interval 100ms", cluster.node(0).port()));
    assert!(text.text().starts_with("3 primaries   module "), "{}", text.stdout);
    assert!(text.text().contains("waiters 15"), "{}", text.stdout);
    assert_eq!(text.text().lines().count(), 8);
}

#[test]
fn when_a_replica_of_the_cluster_takes_over_it_is_queried_from_then_on() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    let screen = Screen::start(&format!("-c -p {} top --interval 100ms", cluster.node(0).port()));
    screen.until_shows("no waiters");
    let replica = cluster.replica_of(0);
    cluster.fail_over(replica, Takeover::Orderly);
    let mut client = cluster.node(replica).client();
    let slots = client.run("CLUSTER NODES");
    let slots = slots.text().lines().find(|line| line.contains("myself")).expect("itself").to_string();
    let key = (0..).map(|index| format!("key-{index}")).find(|key| {
        let slot = cluster.slot(key);
        let ranges = slots.split_whitespace().skip(8).filter_map(|range| range.split_once('-'));
        let number = |text: &str| text.parse::<u16>().expect("a slot");
        ranges.into_iter().any(|(first, last)| (number(first)..=number(last)).contains(&slot))
    });
    let key = key.expect("it has slots");
    client.run(&format!("LOCK.ACQUIRE {key} holder PERSIST")).fence();
    let mut waiter = cluster.node(replica).client();
    waiter.send_line(&format!("LOCK.ACQUIRE {key} waiter BLOCK 0"));
    screen.until("the lock of the new primary", |text| {
        text.contains(&format!(" {key} ")) && !text.contains("is a replica") && text.contains("3 primaries")
    });
}
