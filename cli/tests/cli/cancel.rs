use support::Server;

use crate::tool::at;

#[test]
fn the_waiter_gets_an_error_and_the_rest_of_the_queue_stays() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k holder PERSIST").fence();
    let mut waiters = ["a", "b"].map(|token| {
        let mut waiter = server.client();
        waiter.send_line(&format!("LOCK.ACQUIRE k {token} BLOCK 0"));
        waiter
    });
    server.wait_blocked(2);
    assert_eq!(at(&server, "cancel k a").text(), "a no longer waits for k\n");
    assert_eq!(waiters[0].read().error(), "UNBLOCKED cancelled");
    server.wait_blocked(1);
    let output = at(&server, "cancel k b --json");
    assert_eq!(output.text(), "{\"key\":\"k\",\"token\":\"b\",\"cancelled\":true}\n");
}

#[test]
fn an_owner_that_does_not_wait_exits_with_1() {
    let server = Server::start();
    server.client().run("LOCK.ACQUIRE k holder PERSIST").fence();
    let output = at(&server, "cancel k holder");
    assert_eq!((output.status, output.stdout.as_str()), (1, ""));
    assert_eq!(output.stderr, "redis-lock: holder does not wait for k\n");
    let output = at(&server, "cancel k holder --json");
    assert_eq!(output.stdout, "{\"key\":\"k\",\"token\":\"holder\",\"cancelled\":false}\n");
    assert_eq!(output.status, 1);
}
