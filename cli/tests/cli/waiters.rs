use serde_json::json;
use support::{until, Server};

use crate::tool::at;

#[test]
fn waiters_are_shown_in_queue_order() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k holder PERSIST").fence();
    let mut first = server.client();
    first.send_line("LOCK.ACQUIRE k first BLOCK 0");
    server.wait_blocked(1);
    let mut second = server.client();
    second.send_line("LOCK.ACQUIRE k second BLOCK 3600000");
    server.wait_blocked(2);
    let output = at(&server, "waiters k");
    let rows = output.rows();
    assert_eq!(rows[0], ["OWNER", "MODE", "PERMITS", "WAITED", "REMAINING", "CLIENT", "ADDRESS"]);
    assert_eq!(rows[1][..3], ["first", "exclusive", "1"]);
    assert_eq!(rows[1][4], "no limit");
    assert_eq!(rows[1][6], first.address());
    assert_eq!(rows[2][0], "second");
    assert!(["1h00m", "59m59s"].contains(&rows[2][4]), "{:?}", rows[2]);
    assert_eq!(rows.len(), 3);
}

#[test]
fn json_has_the_fields_of_lock_waiters() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k holder PERSIST").fence();
    let mut waiter = server.client();
    let id = waiter.id();
    waiter.send_line("LOCK.ACQUIRE k w BLOCK 0");
    server.wait_blocked(1);
    let mut waiters = at(&server, "waiters k --json").json();
    let waited = waiters[0]["waited"].take();
    assert!(waited.as_i64().is_some_and(|waited| waited >= 0), "{waited}");
    let expected = json!([{
        "owner": "w", "mode": "exclusive", "permits": 1, "client": id, "addr": waiter.address(), "waited": null,
        "remaining": -1, "coalesce": 0,
    }]);
    assert_eq!(waiters, expected);
}

#[test]
fn json_shows_which_requests_have_coalesce() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k holder PERSIST").fence();
    let mut waiters = [server.client(), server.client()];
    waiters[0].send_line("LOCK.ACQUIRE k w BLOCK 0 COALESCE");
    server.wait_blocked(1);
    waiters[1].send_line("LOCK.ACQUIRE k x BLOCK 0");
    server.wait_blocked(2);
    for queue in
        [at(&server, "waiters k --json").json(), at(&server, "graph k --json").json()["locks"][0]["queue"].take()]
    {
        assert_eq!((&queue[0]["coalesce"], &queue[1]["coalesce"]), (&json!(1), &json!(0)), "{queue}");
    }
}

#[test]
fn count_limits_the_waiters() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k holder PERSIST").fence();
    let lines: Vec<String> = (0..120).map(|index| format!("LOCK.ACQUIRE k w{index} BLOCK 0 NOTIFY c")).collect();
    client.pipeline(&lines);
    until("all wait", || server.info("lock").number("lock_waiters") == 120);
    for (option, shown) in [("", 100), ("--count 3", 3), ("--count 0", 120)] {
        let waiters = at(&server, &format!("waiters k --json {option}")).json();
        assert_eq!(waiters.as_array().expect("a list").len(), shown, "{option}");
    }
}

#[test]
fn an_empty_queue_is_not_a_failure() {
    let server = Server::start();
    let output = at(&server, "waiters k");
    assert_eq!((output.status, output.stdout.as_str()), (0, ""));
    assert_eq!(output.stderr, "redis-lock: k has no waiters\n");
    assert_eq!(at(&server, "waiters k --json").json(), json!([]));
}
