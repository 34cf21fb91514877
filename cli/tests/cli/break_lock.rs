use serde_json::json;
use support::Server;

use crate::tool::at;

#[test]
fn the_holder_loses_the_lock_and_the_next_waiter_gets_it() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k stuck PERSIST").fence();
    let mut waiter = server.client();
    waiter.send_line("LOCK.ACQUIRE k next BLOCK 0");
    server.wait_blocked(1);
    assert_eq!(at(&server, "break k").text(), "1 holder of k was removed\n");
    waiter.read().fence();
    assert!(server.client().run("LOCK.HELD k stuck").is_nil());
}

#[test]
fn owner_selects_one_of_multiple_holders() {
    let server = Server::start();
    let mut client = server.client();
    for owner in ["a", "b", "c"] {
        client.run(&format!("SEM.ACQUIRE s {owner} LIMIT 5")).fence();
    }
    assert_eq!(at(&server, "break s --owner b --json").json(), json!({"key": "s", "broken": 1}));
    assert!(client.run("LOCK.HELD s b").is_nil());
    let output = at(&server, "break s --owner b");
    assert_eq!((output.status, output.stderr.as_str()), (1, "redis-lock: b does not hold s\n"));
    assert_eq!(at(&server, "break s").text(), "2 holders of s were removed\n");
}

#[test]
fn a_free_lock_exits_with_1() {
    let server = Server::start();
    let output = at(&server, "break k");
    assert_eq!((output.status, output.stdout.as_str(), output.stderr.as_str()), (1, "", "redis-lock: k is not held\n"));
    let output = at(&server, "break k --json");
    assert_eq!((output.status, output.stdout.as_str()), (1, "{\"key\":\"k\",\"broken\":0}\n"));
}
