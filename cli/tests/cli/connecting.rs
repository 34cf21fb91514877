use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use faults::sentinels::{Judgement, Sentinels, NAME};
use faults::Cluster;
use serde_json::json;
use support::{in_sync, Reply, Server};

use crate::tool::{at, command, redis_lock, run};

/// Its password is `secret`.
pub fn with_password() -> Server {
    let server = Server::start();
    assert_eq!(server.client().run("CONFIG SET requirepass secret"), Reply::ok());
    server
}

#[test]
fn the_uri_contains_server_password_and_database() {
    let server = with_password();
    let mut client = server.client();
    client.run("AUTH secret");
    client.run("SELECT 3");
    client.run("LOCK.ACQUIRE k w PERSIST").fence();
    let port = server.port();
    assert_eq!(redis_lock(&format!("-u redis://:secret@127.0.0.1:{port}/3 info k --json")).json()["key"], "k");
    assert_eq!(redis_lock(&format!("-u redis://:secret@127.0.0.1:{port}/2 info k")).status, 1);
    // An option overrides the URI.
    assert_eq!(redis_lock(&format!("-u redis://:wrong@127.0.0.1:{port}/2 -a secret -n 3 info k --json")).status, 0);
}

#[test]
fn options_override_the_password_from_the_environment() {
    let server = with_password();
    let port = server.port().to_string();
    let status = |password: &str, line: &str| {
        let words = line.split_whitespace();
        run(command().env("REDISCLI_AUTH", password).args(["-p", &port]).args(words)).status
    };
    assert_eq!(status("secret", "ls"), 0);
    assert_eq!(status("wrong", "ls"), 77);
    assert_eq!(status("wrong", "ls -a secret"), 0);
    assert_eq!(
        run(command().env("REDISCLI_AUTH", "wrong").args(["-u", &format!("redis://:secret@127.0.0.1:{port}"), "ls"]))
            .status,
        0
    );
}

#[test]
fn options_override_the_server_from_the_environment() {
    let (server, other) = (with_password(), Server::start());
    let mut client = server.client();
    client.run("AUTH secret");
    client.run("SELECT 3");
    client.run("LOCK.ACQUIRE k w PERSIST").fence();
    let port = server.port();
    let url = format!("redis://:secret@127.0.0.1:{port}/3");
    let at = |url: &str, line: &str| run(command().env("REDIS_LOCK_URL", url).args(line.split_whitespace()));
    assert_eq!(at(&url, "info k --json").json()["key"], "k");
    assert_eq!(at(&url, "run --no-wait k -- true").status, 1);
    // Login and database may also be given as options.
    assert_eq!(at(&format!("redis://127.0.0.1:{port}/2"), "-a secret -n 3 info k").status, 0);
    // If an option names another server, nothing of the URL applies.
    let elsewhere = format!("-p {} run --no-wait k -- true", other.port());
    assert_eq!(at(&url, &elsewhere).status, 0);
    assert_eq!(at("nonsense", &elsewhere).status, 0);
    assert_eq!(at("", &elsewhere).status, 0);
    let output = at("nonsense", "ls");
    assert_eq!(output.status, 64);
    assert!(output.stderr.starts_with("redis-lock: REDIS_LOCK_URL is not the URI of a server"), "{}", output.stderr);
}

#[test]
fn with_sentinels_from_the_environment_the_url_is_the_login_for_the_primary() {
    let primary = Server::start();
    let patient = Duration::from_secs(30);
    let sentinels = Sentinels::of(&primary, 0, Judgement { down_after: patient, failover_timeout: patient });
    let sentinel = format!("127.0.0.1:{}", sentinels.ports()[0]);
    let mut client = primary.client();
    client.run("SELECT 3");
    client.run("LOCK.ACQUIRE k w PERSIST").fence();
    let mut here = command();
    here.env("REDIS_LOCK_SENTINELS", format!("127.0.0.1:1, {sentinel}")).env("REDIS_LOCK_MASTER", NAME);
    assert_eq!(run(here.args(["-n", "3", "info", "k"])).status, 0);
    let mut here = command();
    here.env("REDIS_LOCK_SENTINELS", &sentinel).env("REDIS_LOCK_MASTER", NAME).env("REDIS_LOCK_URL", "redis://any/3");
    assert_eq!(run(here.args(["info", "k"])).status, 0);
    // Each as an option.
    let mut here = command();
    here.env("REDIS_LOCK_SENTINELS", "127.0.0.1:1").env("REDIS_LOCK_MASTER", NAME);
    assert_eq!(run(here.args(["--sentinel", &sentinel, "-n", "3", "info", "k"])).status, 0);
    let mut here = command();
    here.env("REDIS_LOCK_SENTINELS", "127.0.0.1:1").env("REDIS_LOCK_MASTER", "m");
    assert_eq!(run(here.args(["-p", &primary.port().to_string(), "-n", "3", "info", "k"])).status, 0);
    // One without the other would select a lock on another server.
    for (variable, value) in [("REDIS_LOCK_SENTINELS", sentinel.as_str()), ("REDIS_LOCK_MASTER", NAME)] {
        let alone = run(command().env(variable, value).arg("ls"));
        assert_eq!(alone.status, 64, "{variable}");
        assert!(alone.stderr.contains("REDIS_LOCK_SENTINELS and REDIS_LOCK_MASTER"), "{}", alone.stderr);
    }
    let unreadable = run(command().env("REDIS_LOCK_URL", OsStr::from_bytes(b"redis://\xff")).arg("ls"));
    assert_ne!(unreadable.status, 0);
    assert!(!unreadable.stderr.contains("127.0.0.1"), "{}", unreadable.stderr);
}

#[test]
fn an_acl_user_logs_in_by_name() {
    let server = Server::start();
    let mut client = server.client();
    client.run("ACL SETUSER viewer on >secret ~seen:* +@all");
    client.run("LOCK.ACQUIRE seen:1 w").fence();
    client.run("LOCK.ACQUIRE hidden:1 w").fence();
    let locks = at(&server, "--user viewer -a secret ls --json").json();
    assert_eq!(locks.as_array().expect("a list").len(), 1);
    assert_eq!(locks[0]["key"], "seen:1");
}

#[test]
fn a_unix_socket_is_enough() {
    let server = Server::builder().config("unixsocket server.sock").start();
    server.client().run("LOCK.ACQUIRE k w").fence();
    let socket = server.dir().join("server.sock");
    let socket = socket.to_str().expect("text");
    let locks = redis_lock(&format!("-s {socket} ls --json")).json();
    assert_eq!((&locks[0]["key"], &locks[0]["server"]), (&json!("k"), &json!(socket)));
    assert_eq!(redis_lock(&format!("-u unix://{socket} info k")).status, 0);
}

#[test]
fn in_a_cluster_the_node_that_serves_the_key_is_queried() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    for key in ["a", "b", "c", "d"] {
        cluster.node(cluster.primary_of(cluster.slot(key))).client().run(&format!("LOCK.ACQUIRE {key} w")).fence();
    }
    let port = cluster.node(0).port();
    for key in ["a", "b", "c", "d"] {
        assert_eq!(redis_lock(&format!("-c -p {port} info {key} --json")).json()["holders"][0]["owner"], "w");
        assert_eq!(redis_lock(&format!("-c -p {port} break {key}")).text(), format!("1 holder of {key} was removed\n"));
    }
}

#[test]
fn without_c_a_redirection_is_an_error_that_mentions_c() {
    let cluster = Cluster::start(Duration::from_secs(30), Server::builder);
    let node = (0..3).find(|node| *node != cluster.primary_of(cluster.slot("a"))).expect("there are three");
    let output = at(cluster.node(node), "info a");
    assert_eq!(output.status, 76);
    assert!(output.stderr.contains("MOVED") && output.stderr.contains("-c"), "{}", output.stderr);
}

#[test]
fn sentinels_report_the_primary_even_after_a_failover() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    in_sync(&primary, &replica);
    let patient = Duration::from_secs(30);
    let sentinels = Sentinels::of(&primary, 1, Judgement { down_after: patient, failover_timeout: patient });
    let addresses: Vec<String> = sentinels.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let line = format!("--sentinel {} --master {NAME} break k --json", addresses.join(","));
    primary.client().run("LOCK.ACQUIRE k w PERSIST").fence();
    assert_eq!(redis_lock(&line).json()["broken"], 1);
    support::until("a failover begins", || !sentinels.fail_over().is_error());
    support::until("the replica is the primary", || sentinels.agree_on(replica.port()));
    support::until("it says so itself", || replica.info("replication").text("role") == "master");
    replica.client().run("LOCK.ACQUIRE k w PERSIST").fence();
    assert_eq!(redis_lock(&line).json()["broken"], 1);
}

#[test]
fn a_master_unknown_to_the_sentinels_exits_with_69() {
    let primary = Server::start();
    let patient = Duration::from_secs(30);
    let sentinels = Sentinels::of(&primary, 0, Judgement { down_after: patient, failover_timeout: patient });
    let output = redis_lock(&format!("--sentinel 127.0.0.1:{} --master nobody ls", sentinels.ports()[0]));
    assert_eq!(output.status, 69, "{}", output.stderr);
    assert!(
        output.stderr.starts_with("redis-lock: no connection to nobody, found by the Sentinels "),
        "{}",
        output.stderr
    );
    assert!(output.stderr.ends_with(": they know no primary with this name (--master)\n"), "{}", output.stderr);
}

#[test]
fn the_port_of_a_sentinel_may_be_omitted() {
    // No server listens on this loopback address.
    let output = redis_lock("--sentinel 127.9.8.7 --master m ls");
    assert_eq!(output.status, 69);
    assert!(output.stderr.contains("m, found by the Sentinels 127.9.8.7: Connection refused"), "{}", output.stderr);
}

#[test]
fn tls_verifies_the_server_with_the_given_ca_and_presents_the_client_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    if !make_certificates(folder.path()) {
        return support::skip("there is no openssl to make certificates with");
    }
    let file = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    let port = support::free_port();
    let server = Server::builder()
        .config(format!("tls-port {port}"))
        .config(format!("tls-cert-file {}", file("server.crt")))
        .config(format!("tls-key-file {}", file("server.key")))
        .config(format!("tls-ca-cert-file {}", file("ca.crt")))
        .try_start();
    let server = match server {
        Ok(server) => server,
        Err(log) if log.contains("tls") => return support::skip("this server is built without TLS"),
        Err(log) => panic!("{log}"),
    };
    server.client().run("LOCK.ACQUIRE k w").fence();
    let own = format!("--cert {} --key {}", file("client.crt"), file("client.key"));
    let ca = format!("--cacert {}", file("ca.crt"));
    let status = |options: &str| redis_lock(&format!("-h localhost -p {port} {options} info k")).status;
    assert_eq!(status(&format!("--tls {ca} {own}")), 0);
    // The server requires a client certificate, and its own is signed by our CA.
    assert_eq!(status(&format!("--tls {ca}")), 69);
    // Our CA is not in the system's store.
    assert_eq!(status(&format!("--tls {own}")), 69);
    assert_eq!(status(&format!("--tls --insecure {own}")), 0);
    let uri = format!("-u rediss://localhost:{port} {ca} {own} info k");
    assert_eq!(redis_lock(&uri).status, 0);
    assert_eq!(redis_lock(&format!("-p {port} --tls --cacert /no/such/file ls")).status, 74);
}

/// Creates a CA, and certificates signed by it for a server named localhost and for a client. False: no openssl.
fn make_certificates(folder: &Path) -> bool {
    let script = "set -e
        new='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
        openssl req -x509 $new -keyout ca.key -out ca.crt -days 2 -subj /CN=test-ca
        for name in server client; do
            openssl req $new -keyout $name.key -out $name.csr -subj /CN=$name
            echo subjectAltName=DNS:localhost > $name.ext
            openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out $name.crt -days 2 \\
                -extfile $name.ext
        done";
    let done = Command::new("bash").args(["-c", script]).current_dir(folder).output();
    done.is_ok_and(|done| done.status.success())
}
