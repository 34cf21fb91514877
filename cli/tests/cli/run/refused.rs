//! Errors that end a run before its command starts: the server is unreachable, rejects the login, accepts no writes or
//! rejects an option, or the user lacks permission. Each message names the cause.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use support::{free_port, in_sync, until, Server};

use super::runner::{is_held, run, until_waiters, End, Runner};
use crate::tool::{at, command, redis_lock};

/// Runs `true` under `k`, with the words of `options` before and after the subcommand.
#[track_caller]
fn ended(connection: &str, options: &str) -> (End, Duration) {
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let began = Instant::now();
    let mut program = command();
    program.args(words(connection)).arg("run").args(words(options)).args(["k", "--", "echo", "ran"]);
    let end = Runner::start(&mut program).end();
    (end, began.elapsed())
}

#[track_caller]
fn ends_with(connection: &str, options: &str, status: i32, reason: &str) -> Duration {
    let (end, after) = ended(connection, options);
    assert_eq!((end.code(), end.stdout()), (Some(status), ""), "{connection} {options}: {}", end.stderr);
    let last = end.stderr.lines().last().unwrap_or_default();
    assert!(last.contains(reason), "{connection} {options}: {}", end.stderr);
    after
}

/// Each of these waits would deadlock.
#[test]
fn a_wrong_login_or_a_missing_permission_fails_at_once() {
    let server = Server::start();
    let mut client = server.client();
    let port = server.port();
    client.run("ACL SETUSER locker on >secret ~* &* +@all -lock.acquire");
    client.run("ACL SETUSER elsewhere on >secret ~other:* &* +@all");
    let refused = format!("127.0.0.1:{port} rejected this user or password");
    for options in ["", "--wait 60s", "--no-wait", "--session", "--once"] {
        for user in ["--user locker -a wrong", "--user nobody -a secret"] {
            ends_with(&format!("-p {port} {user}"), options, 77, &refused);
        }
        ends_with(&format!("-p {port} --user locker -a secret"), options, 77, "NOPERM ");
        ends_with(&format!("-p {port} --user elsewhere -a secret"), options, 77, "NOPERM ");
    }
    // The server has no password. HELLO, which starts a session's connection, accepts any password; AUTH does not.
    for options in ["", "--session"] {
        ends_with(&format!("-p {port} -a wrong"), options, 77, &refused);
    }
    client.run("CONFIG SET requirepass secret");
    for options in ["", "--session"] {
        ends_with(&format!("-p {port}"), options, 77, "NOAUTH ");
        ends_with(&format!("-p {port} -a wrong"), options, 77, &refused);
    }
}

#[test]
fn without_permission_to_renew_a_run_with_at_least_fails_before_its_command() {
    let server = Server::start();
    server.client().run("ACL SETUSER locker on >secret ~* &* +@all -lock.renew");
    ends_with(&format!("-p {} --user locker -a secret", server.port()), "--at-least 1s", 77, "lock.renew");
    assert!(!is_held(&server, "k"));
}

#[test]
fn connection_errors_are_retried_until_the_wait_times_out_and_the_last_one_is_reported() {
    let port = free_port();
    let wait = Duration::from_secs(1);
    let cases = [
        (format!("-p {port}"), format!("no connection to 127.0.0.1:{port}: Connection refused")),
        // A name with an empty label is refused without asking a name server, which might not answer.
        ("-h no..such.host".to_string(), "no connection to no..such.host:6379: failed to lookup".into()),
        ("-s /no/such/socket".to_string(), "no connection to /no/such/socket: No such file".into()),
    ];
    for (connection, reason) in cases {
        let after = ends_with(&connection, "--wait 1s", 69, &reason);
        assert!(after >= wait, "{connection}: {after:?}");
        ends_with(&connection, "--no-wait", 69, &reason);
        // Without a limit the wait continues, and the run reports once why.
        let mut program = command();
        let runner = Runner::start(program.args(connection.split(' ')).args(["run", "k", "--", "true"]));
        runner.until_says(&reason);
        runner.until_says("; still waiting\n");
    }
}

/// A server that sends these bytes on every connection and then closes it.
fn says(bytes: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(bytes);
        }
    });
    port
}

#[test]
fn a_server_of_another_protocol_is_reported() {
    let web = says(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    // Like a TLS port that a client without TLS connects to: it sends nothing and closes.
    let closing = says(b"");
    for line in ["ls", "run --no-wait k -- true", "run --wait 100ms k -- true"] {
        let output = redis_lock(&format!("-p {web} {line}"));
        let expected = format!(
            "no connection to 127.0.0.1:{web}: what listens there does not speak the Redis protocol \
             (a TLS port requires --tls)\n"
        );
        assert_eq!(output.status, 69, "{line}");
        assert!(output.stderr.ends_with(&expected) && output.stderr.lines().count() == 1, "{line}: {}", output.stderr);
        let output = redis_lock(&format!("-p {closing} {line}"));
        assert_eq!(output.status, 69, "{line}");
        let last = output.stderr.lines().last().unwrap_or_default();
        assert!(last.ends_with(" (a TLS port requires --tls)"), "{line}: {}", output.stderr);
    }
    let output = redis_lock(&format!("-p {web} --tls ls"));
    assert_eq!(output.status, 69, "{}", output.stderr);
    let runner = Runner::start(command().args(["-p", &web.to_string(), "run", "k", "--", "true"]));
    runner.until_says("does not speak the Redis protocol (a TLS port requires --tls); still waiting\n");
}

#[test]
fn a_replica_is_reported_and_waited_for_until_its_promotion() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    let port = replica.port();
    let reason =
        format!("READONLY You can't write against a read only replica. (127.0.0.1:{port} is a replica: ask its");
    ends_with(&format!("-p {port}"), "--no-wait", 76, &reason);
    ends_with(&format!("-p {port}"), "--wait 1s", 76, &reason);
    let output = at(&replica, "break k");
    assert!(output.status == 76 && output.stderr.contains(&reason), "{}", output.stderr);
    // It replies to PING all the time.
    let runner = run(&replica, "k", "echo ran");
    runner.until_says(&reason);
    runner.until_says("; still waiting\n");
    replica.client().run("REPLICAOF NO ONE");
    assert_eq!(runner.end().stdout(), "ran\n");
}

#[test]
fn a_server_that_accepts_no_writes_is_reported() {
    let server = Server::builder().config("min-replicas-to-write 1").start();
    ends_with(&format!("-p {}", server.port()), "--wait 1s", 76, "NOREPLICAS ");
    let runner = run(&server, "k", "echo ran");
    runner.until_says("NOREPLICAS ");
    runner.until_says("; still waiting\n");
    server.client().run("CONFIG SET min-replicas-to-write 0");
    assert_eq!(runner.end().stdout(), "ran\n");
    server.client().run("CONFIG SET maxmemory 1");
    ends_with(&format!("-p {}", server.port()), "", 76, "OOM ");
}

#[test]
fn a_run_that_is_granted_at_once_sends_no_other_commands() {
    let server = Server::start();
    assert_eq!(run(&server, "k", "true").end().code(), Some(0));
    let stats = server.client().run("INFO commandstats").text().to_string();
    let sent: Vec<&str> = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next()).collect();
    let others = ["lock.cancel", "lock.renew", "lock.held"];
    assert!(sent.contains(&"lock.acquire") && !others.iter().any(|other| sent.contains(other)), "{sent:?}");
}

#[test]
fn a_time_that_the_server_would_reject_is_rejected_before_the_command() {
    let server = Server::start();
    server.client().run("CONFIG SET lock.max-lease 60000");
    let port = format!("-p {}", server.port());
    let lines = ["", "--shared", "--exclusive", "--limit 2", "--limit 2 --slot", "other"];
    for line in lines {
        for time in ["61s", "60001ms", "59999ms 1001us", "18446744073709551615s"] {
            let mut program = command();
            program.args(port.split(' ')).args(["run", "--at-least", time]).args(line.split_whitespace());
            let end = Runner::start(program.args(["k", "--", "echo", "ran"])).end();
            assert_eq!((end.code(), end.stdout()), (Some(64), ""), "{line} {time}: {}", end.stderr);
            assert!(end.stderr.starts_with("redis-lock: --at-least: ERR "), "{}", end.stderr);
            assert!(end.stderr.contains("lock.max-lease (60000)"), "{}", end.stderr);
            assert!(!is_held(&server, "k") && !is_held(&server, "other"), "{line}");
        }
        let end = Runner::start(
            command()
                .args(port.split(' '))
                .args(["run", "--lease", "61s"])
                .args(line.split_whitespace())
                .args(["k", "--", "true"]),
        )
        .end();
        assert!(end.code() == Some(64) && end.stderr.starts_with("redis-lock: --lease: ERR invalid expire time"));
    }
    // The maximum, and a value below it.
    let (end, _) = ended(&port, "--at-least 60s");
    assert_eq!((end.code(), end.stdout()), (Some(0), "ran\n"), "{}", end.stderr);
    let left = server.client().pttl("k");
    assert!((50_000..=60_000).contains(&left), "{left}");
}

#[test]
fn a_time_is_rejected_before_the_command_even_if_the_server_comes_up_later() {
    let mut server = Server::start();
    server.kill();
    let runner = run(&server, "--at-least 400d k", "echo ran");
    runner.until_says("; still waiting\n");
    server.restart();
    let end = runner.end();
    assert_eq!((end.code(), end.stdout()), (Some(64), ""), "{}", end.stderr);
    assert!(end.stderr.contains("--at-least: ERR invalid expire time"), "{}", end.stderr);
    until("the lock is free", || !is_held(&server, "k"));
}

#[test]
fn the_largest_times_mean_no_limit() {
    let server = Server::start();
    let greatest = "18446744073709551615s";
    server.client().run("LOCK.ACQUIRE k other PERSIST").fence();
    let runner = run(&server, &format!("--wait {greatest} --kill-after {greatest} k"), "echo ran; read _; exit 3");
    until_waiters(&server, "k", 1);
    server.client().run("LOCK.RELEASE k other");
    runner.until_prints("ran");
    // The lock is lost, but SIGKILL never comes.
    server.client().run("LOCK.BREAK k");
    drop(runner);
    let runner = run(&server, &format!("--lease 1500ms --kill-after {greatest} k"), "echo ran; sleep 300");
    runner.until_prints("ran");
    server.client().run("LOCK.BREAK k");
    assert_eq!(runner.end().code(), Some(75));
    let output = at(&server, &format!("run --at-least {greatest} k -- true"));
    assert_eq!(output.status, 64, "{}", output.stderr);
    let output = at(&server, &format!("run --lease {greatest} k -- true"));
    assert_eq!(output.status, 64, "{}", output.stderr);
}

#[test]
fn too_many_keys_are_a_usage_error() {
    let server = Server::start();
    let keys = |count: usize| (0..count).map(|index| format!("k{index}")).collect::<Vec<_>>().join(" ");
    assert_eq!(at(&server, &format!("run {} -- true", keys(128))).status, 0);
    let output = at(&server, &format!("run {} -- true", keys(129)));
    assert!(output.status == 64 && output.stderr.contains("at most 128 keys"), "{}", output.stderr);
}
