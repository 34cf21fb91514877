use serde_json::json;
use support::Server;

use crate::tool::at;

#[test]
fn each_pattern_has_a_verdict() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET locks:orders 1");
    client.cmd(&["CONFIG", "SET", "lock.adopt-observe", "py:* qo_* page:* lock:*"]);
    for line in
        ["SET py:k t NX PX 60000", "SET qo_k 1 NX EX 60", "DEL qo_k", "SETEX page:1 60 text", "SETEX page:1 60 text"]
    {
        assert!(!client.run(line).is_error(), "{line}");
    }
    let text = at(&server, "adopt").text().to_string();
    for words in [
        "py:*  fits  (observed)\n    now 1 of type string; 1 granted, 0 refused, ",
        "qo_*  fits, with a remark  (observed)\n    releases do not check the token",
        "page:*  does not fit  (observed)\n    keys are set without NX",
        "lock:*  matches nothing  (observed)\n    no key matches, and no command has used one\n    the nearest key is \
         locks:orders\n",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    // Commands have accessed keys of the pattern, so it is not a typing error.
    client.run("UNLINK py:k");
    let text = at(&server, "adopt").text().to_string();
    assert!(text.contains("now no key; 1 granted") && !text.contains("the nearest key is page:1"), "{text}");
}

/// The example of docs/adopt.md, with clients that do what its text says.
#[test]
fn the_pages_example_matches_the_output() {
    let page = include_str!("../../../docs/adopt.md");
    let patterns = page.lines().find_map(|line| line.strip_prefix("redis-cli CONFIG SET lock.adopt-observe "));
    let example = page.split("```console\n$ redis-lock adopt\n").nth(1).and_then(|rest| rest.split("```").next());
    let server = Server::start();
    let mut client = server.client();
    for line in
        ["SET job:7 t", "SET cache:a text", "ACL SETUSER app on nopass ~report:* +@all -@all +hset +hexists +set +get"]
    {
        assert_eq!(client.run(line).text(), "OK");
    }
    let patterns = patterns.expect("the patterns").trim_matches('\'');
    client.cmd(&["CONFIG", "SET", "lock.adopt-observe", patterns]);
    let release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end";
    for token in ["a", "b"] {
        client.run(&format!("SET lock:orders {token} NX PX 60000"));
        if token == "a" {
            client.run("SET lock:orders b NX PX 60000");
        }
        client.cmd(&["EVAL", release, "1", "lock:orders", token]);
    }
    for line in ["SET qo_task 1 NX EX 60", "DEL qo_task", "SET cache:n 1 EX 60", "INCR cache:n"] {
        client.run(line);
    }
    client.cmd(&["EVAL", "return redis.call('hincrby', KEYS[1], 'id:1', 1)", "1", "report:7"]);
    // Redis 7.0 does not reveal the connections of observed commands.
    let without_clients = |line: &str| match line.rsplit_once(", ") {
        Some((line, clients)) if clients.ends_with(" clients") => line.to_string(),
        _ => line.to_string(),
    };
    let printed: Vec<String> = at(&server, "adopt").text().lines().map(without_clients).collect();
    assert_eq!(printed, example.expect("the example").lines().collect::<Vec<_>>());
}

#[test]
fn json_has_the_fields_of_the_report_and_the_server() {
    let server = Server::builder().config("lock.adopt lock:*").start();
    let mut client = server.client();
    client.run("SET lock:k t NX PX 60000");
    client.run("INCR lock:k");
    let mut report = at(&server, "adopt --json").json();
    report[0]["clients"].take();
    let expected = json!([{
        "server": format!("127.0.0.1:{}", server.port()), "pattern": "lock:*", "mode": "adopt",
        "keys": {"redislock": 1}, "grant": 1, "refuse": 0, "renew": 0, "takeover": 0, "release": 0,
        "release_without_token": 0, "wait": 0, "protected": 0, "noperm": 0, "wrongtype": {"INCR": 1}, "no_lease": 0,
        "values_empty": 0, "values_long": 0, "values_time": 0, "values_counter": 0, "clients": null, "users": [],
        "nearest": "", "fits": "no", "reason": "these commands fail with WRONGTYPE on a lock: INCR",
    }]);
    assert_eq!(report, expected);
}

#[test]
fn without_a_pattern_it_explains_what_to_do() {
    let server = Server::start();
    let output = at(&server, "adopt");
    assert_eq!((output.status, output.stdout.as_str()), (0, ""));
    let said = "redis-lock: no patterns are set: set lock.adopt-observe first to observe clients, then lock.adopt\n";
    assert_eq!(output.stderr, said);
    assert_eq!(at(&server, "adopt --json").json(), json!([]));
}
