use support::{free_port, Server};

use crate::tool::{at, redis_lock};

const OF_ONE_KEY: [&str; 5] = ["info k", "waiters k", "break k", "cancel k w", "graph k"];
const OF_ALL_KEYS: [&str; 5] = ["ls", "log", "adopt", "top --once --interval 100ms", "graph"];

#[test]
fn without_the_module_the_error_says_how_to_load_it() {
    let server = Server::builder().no_module().start();
    for line in OF_ONE_KEY.iter().chain(&OF_ALL_KEYS) {
        let output = at(&server, line);
        assert_eq!((output.status, output.stdout.as_str()), (69, ""), "{line}");
        let expected = format!(
            "redis-lock: 127.0.0.1:{} has no redis-lock module: add `loadmodule /path/to/libredis_lock.so` to its \
             redis.conf and restart it, or send MODULE LOAD /path/to/libredis_lock.so where enable-module-command \
             allows it\n",
            server.port()
        );
        assert_eq!(output.stderr, expected, "{line}");
    }
}

#[test]
fn a_key_with_another_value_exits_with_65_and_is_named() {
    let server = Server::start();
    server.client().run("SET k x");
    for line in OF_ONE_KEY {
        let output = at(&server, line);
        assert_eq!((output.status, output.stdout.as_str()), (65, ""), "{line}");
        assert_eq!(output.stderr, "redis-lock: k is a string, not a lock\n", "{line}");
    }
    let output = at(&server, "run k -- true");
    assert_eq!(output.status, 65);
    assert_eq!(output.stderr, "redis-lock: the key 'k' is a string, not a lock\n");
    // Without permission for TYPE.
    server.client().run("ACL SETUSER viewer on >secret ~* &* +@all -type");
    let output = at(&server, "--user viewer -a secret info k");
    assert_eq!(output.status, 65);
    assert!(output.stderr.starts_with("redis-lock: WRONGTYPE "), "{}", output.stderr);
}

#[test]
fn a_missing_database_explains_the_option_n() {
    let server = Server::start();
    for line in ["-n 99 ls", "info -n 99 k", "run -n 99 k -- true"] {
        let output = at(&server, line);
        assert_eq!(output.status, 64, "{line}: {}", output.stderr);
        assert!(output.stderr.contains("DB index is out of range (-n is the database"), "{}", output.stderr);
    }
}

#[test]
fn a_standalone_server_explains_the_option_c() {
    let server = Server::start();
    for line in ["-c ls", "-c info k", "run -c k -- true"] {
        let output = at(&server, line);
        assert_eq!((output.status, output.stdout.as_str()), (64, ""), "{line}: {}", output.stderr);
        let expected = format!(
            "redis-lock: 127.0.0.1:{} is not a cluster node: omit -c (flock's -c is `-- sh -c` here)\n",
            server.port()
        );
        assert_eq!(output.stderr, expected, "{line}");
    }
}

#[test]
fn a_sentinel_instead_of_a_server_is_reported_with_the_right_options() {
    let sentinel = Server::builder().sentinel().start();
    let address = format!("127.0.0.1:{}", sentinel.port());
    for line in OF_ONE_KEY.iter().chain(&OF_ALL_KEYS).chain(&["run k -- true"]) {
        let output = at(&sentinel, line);
        assert_eq!((output.status, output.stdout.as_str()), (64, ""), "{line}: {}", output.stderr);
        let expected = format!(
            "redis-lock: {address} is a Sentinel, not a server with locks: use --sentinel {address} --master NAME\n"
        );
        assert_eq!(output.stderr, expected, "{line}");
    }
}

#[test]
fn a_server_instead_of_a_sentinel_is_reported_with_its_address() {
    let server = Server::start();
    let sentinel = format!("127.0.0.1:{}", server.port());
    for line in ["ls", "info k", "run k -- true"] {
        let output = redis_lock(&format!("--sentinel {sentinel} --master m {line}"));
        assert_eq!((output.status, output.stdout.as_str()), (69, ""), "{line}: {}", output.stderr);
        let expected = format!(
            "redis-lock: no connection to m, found by the Sentinels {sentinel}: {sentinel} is a server, not a Sentinel \
             (usually on port 26379)\n"
        );
        assert_eq!(output.stderr, expected);
    }
}

#[test]
fn missing_permission_exits_with_77_and_the_servers_message() {
    let server = Server::start();
    server.client().run("ACL SETUSER viewer on >secret ~* &* +@all -lock.top -lock.log -lock.break");
    for (line, command) in
        [("top --once", "lock.top"), ("graph", "lock.top"), ("log", "lock.log"), ("break k", "lock.break")]
    {
        let output = at(&server, &format!("--user viewer -a secret {line}"));
        assert_eq!((output.status, output.stdout.as_str()), (77, ""), "{line}");
        assert!(
            output.stderr.starts_with("redis-lock: NOPERM ") && output.stderr.contains(command),
            "{}",
            output.stderr
        );
    }
    assert_eq!(at(&server, "--user viewer -a secret ls").status, 0);
}

#[test]
fn a_wrong_or_missing_password_exits_with_77() {
    let server = crate::connecting::with_password();
    let output = at(&server, "ls");
    assert_eq!(output.status, 77);
    assert!(output.stderr.contains("NOAUTH"), "{}", output.stderr);
    let output = at(&server, "ls -a wrong");
    assert_eq!(output.status, 77);
    assert!(output.stderr.contains("rejected this user or password"), "{}", output.stderr);
}

#[test]
fn an_unreachable_server_exits_with_69_and_its_address() {
    let port = free_port();
    for line in ["ls", "info k", "top --once"] {
        let output = redis_lock(&format!("-p {port} {line}"));
        assert_eq!((output.status, output.stdout.as_str()), (69, ""), "{line}");
        let expected = format!("redis-lock: no connection to 127.0.0.1:{port}: ");
        assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
    }
}

#[test]
fn any_other_server_error_exits_with_76() {
    let server = Server::start();
    server.client().run("CONFIG SET busy-reply-threshold 1");
    let mut busy = server.client();
    busy.send(&["EVAL", "while true do end", "0"]);
    // Once other clients find the server busy, the script is running.
    let mut other = server.client();
    support::until("the server is busy", || other.run("GET x").is_error());
    let output = at(&server, "info k");
    assert_eq!(output.status, 76, "{}", output.stderr);
    assert!(output.stderr.starts_with("redis-lock: BUSY "), "{}", output.stderr);
    other.run("SCRIPT KILL");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let server = Server::start();
    let mut client = server.client();
    let lines: Vec<String> = (0..3000).map(|index| format!("LOCK.ACQUIRE key:{index} w")).collect();
    client.pipeline(&lines);
    let script = format!("{} -p {} ls | head -n 1; echo ${{PIPESTATUS[0]}}", crate::tool::PROGRAM, server.port());
    let output = crate::tool::run(std::process::Command::new("bash").args(["-c", &script]));
    assert!(output.text().starts_with("KEY ") && output.stdout.ends_with("\n0\n"), "{}", output.stdout);
}
