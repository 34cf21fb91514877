//! docs/tls.md: its certificates and configuration lines on real servers. The programs of the page are run by
//! clients/recipes/test_tls.py.

use std::process::{Command, Stdio};

use crate::support::cluster::{meet, until_cluster};
use crate::support::skip::skip;
use crate::support::{free_port, until, Builder, Client, Server};

const DOCUMENT: &str = include_str!("../../docs/tls.md");
const FOLDER: &str = "/etc/redis/tls/";

/// The lines of the block in this language.
fn block(language: &str) -> &'static str {
    let (_, block) = DOCUMENT.split_once(&format!("```{language}\n")).expect("the block");
    block.split_once("```").expect("its end").0
}

/// The page's certificates, for 127.0.0.1. `None`: openssl is not installed, and the test is skipped.
pub fn certificates() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    let commands = block("sh").replace("DNS:locks.example", "IP:127.0.0.1");
    let mut shell = Command::new("sh");
    shell.args(["-euc", &commands]).current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    if !shell.status().is_ok_and(|status| status.success()) {
        skip("there is no openssl that makes certificates");
        return None;
    }
    Some(folder)
}

/// A server with the page's configuration lines, on this port in addition to the one without TLS, through which the
/// test inspects it. `None`: it was built without TLS, and the test is skipped.
pub fn start(builder: Builder, certificates: &tempfile::TempDir, port: u16) -> Option<Server> {
    let folder = format!("{}/", certificates.path().display());
    let lines = [block("tls-server"), block("tls-replication")].concat();
    assert!(lines.starts_with("port 0\n"));
    let lines = lines.replace(FOLDER, &folder).replace("tls-port 6379", &format!("tls-port {port}"));
    let builder = lines.lines().skip(1).fold(builder, |builder, line| builder.config(line));
    match builder.try_start() {
        Ok(server) => Some(server),
        Err(log) if log.contains("Bad directive") || log.contains("Failed finding TLS support") => {
            skip("this server was built without TLS");
            None
        }
        Err(log) => panic!("{log}"),
    }
}

/// Whether a connection of this kind came in on the port.
fn is_at(client: &mut Client, kind: &str, port: u16) -> bool {
    let list = client.run(&format!("CLIENT LIST TYPE {kind}"));
    list.text().lines().any(|line| line.contains(&format!(" laddr=127.0.0.1:{port} ")))
}

#[test]
fn a_replica_and_a_sentinel_connect_with_tls() {
    let Some(certificates) = certificates() else { return };
    let port = free_port();
    let Some(primary) = start(Server::builder(), &certificates, port) else { return };
    let replica = Server::builder().config(format!("replicaof 127.0.0.1 {port}"));
    let replica = start(replica, &certificates, free_port()).expect("as the primary");
    let mut client = primary.client();
    until("the replica is connected", || is_at(&mut client, "replica", port));
    until("the link is up", || replica.info("replication").text("master_link_status") == "up");
    let fence = client.run("LOCK.ACQUIRE k a PX 60000").fence();
    until("the replica has the lock", || {
        let held = replica.client().run("LOCK.HELD k a");
        !held.is_nil() && held.items()[0].int() == fence
    });
    let monitor = format!("sentinel monitor locks 127.0.0.1 {port} 1");
    let sentinel = start(Server::builder().sentinel().config(monitor), &certificates, free_port()).expect("as well");
    until("the Sentinel reaches the primary and knows its replica", || {
        let primary = sentinel.client().run("SENTINEL MASTER locks");
        let field = |name: &str| {
            let at = primary.items().iter().position(|word| word.is_bulk(name)).expect("the field");
            primary.items()[at + 1].text().to_string()
        };
        field("flags") == "master" && field("num-slaves") == "1"
    });
}

#[test]
fn cluster_nodes_use_tls_among_each_other() {
    let Some(certificates) = certificates() else { return };
    let node = |slots: &str| {
        let node = start(Server::builder().cluster(), &certificates, free_port())?;
        assert!(!node.client().run(&format!("CLUSTER ADDSLOTSRANGE {slots}")).is_error());
        Some(node)
    };
    let Some(first) = node("0 8191") else { return };
    let second = node("8192 16383").expect("as the first");
    meet(&first, &second);
    until_cluster(&first, "ok", 2);
    assert_eq!(first.client().run("CONFIG GET tls-cluster").items()[1].text(), "yes");
}

#[test]
fn without_its_plain_port_the_server_accepts_only_tls_and_reloads_certificates() {
    let Some(certificates) = certificates() else { return };
    let port = free_port();
    let Some(server) = start(Server::builder(), &certificates, port) else { return };
    let cli = |with_tls: bool| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &port.to_string()]).current_dir(certificates.path());
        let tls: &[&str] = if with_tls { &["--tls", "--cacert", "ca.crt"] } else { &[] };
        let ran = cli.args(tls).args(["LOCK.ACQUIRE", "k", "a"]).output();
        ran.ok().map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let Some(over_tls) = cli(true) else { return skip("there is no redis-cli") };
    assert!(over_tls.starts_with("a\n"), "{over_tls}");
    assert!(!cli(false).expect("it is there").starts_with("a\n"));
    let mut client = server.client();
    client.run("CONFIG SET port 0");
    assert!(Client::try_connect(server.port()).is_err(), "the page's port 0");
    let file = certificates.path().join("server.crt");
    assert_eq!(client.run(&format!("CONFIG SET tls-cert-file {}", file.display())).text(), "OK");
    assert!(cli(true).expect("it is there").starts_with("a\n"));
}
