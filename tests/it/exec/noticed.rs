//! LOCK.EXEC in SLOWLOG, MONITOR and the server's statistics.

use super::*;
use crate::info::field;
use crate::support::waiting::*;
use crate::support::{Info, Server};

/// `calls`, `rejected_calls` and `failed_calls` of a command.
fn calls(client: &mut Client, command: &str) -> [i64; 3] {
    let info = Info::parse(client.run("INFO commandstats").text());
    let line = info.text(&format!("cmdstat_{command}")).to_string();
    let field = |name: &str| {
        let fields = line.split(',').filter_map(|field| field.split_once('='));
        fields.filter(|(field, _)| *field == name).map(|(_, n)| n.parse().expect("a number")).next().unwrap_or(0)
    };
    ["calls", "rejected_calls", "failed_calls"].map(field)
}

#[test]
fn statistics_count_both_commands_and_each_error_once() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("SET text v");
    client.run("CONFIG RESETSTAT");
    for line in ["SET x 1", "SET x 2", "GET x"] {
        client.run(&format!("LOCK.EXEC k a {line}"));
    }
    client.run("LOCK.EXEC k a LPUSH text 1");
    client.run("LOCK.EXEC k b SET x 3");
    assert_eq!(calls(&mut client, "set"), [2, 0, 0]);
    assert_eq!(calls(&mut client, "get"), [1, 0, 0]);
    assert_eq!(calls(&mut client, "lpush"), [1, 0, 1]);
    let [all, rejected, _] = calls(&mut client, "lock.exec");
    assert_eq!([all, rejected], [5, 0]);
    let errors = Info::parse(client.run("INFO errorstats").text());
    assert_eq!(errors.text("errorstat_WRONGTYPE"), "count=1");
    assert_eq!(errors.text("errorstat_NOTHELD"), "count=1");
}

/// Includes commands that fail, but not refusals and commands of other clients.
#[test]
fn info_counts_executed_commands_and_tokens_without_a_hold() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("SET text v");
    let lines = ["k a SET x 1", "k a LPUSH text 1", "k b SET x 2", "none a GET x", "k c GET x", "k a EVAL return 0"];
    for line in lines {
        client.run(&format!("LOCK.EXEC {line}"));
    }
    multi(&mut client, &["LOCK.EXEC k a GET x", "LOCK.EXEC k a GET x"]);
    assert_eq!((field(&server, "execs"), field(&server, "execs_not_held")), (4, 3));
    // Errors of the command itself, whatever the server did before.
    for line in
        ["INCR text", "XREADGROUP GROUP g c STREAMS s >", "RESTORE text 0 x", "OBJECT FREQ text", "LOCK.RENEW text a"]
    {
        assert!(client.run("LOCK.EXEC k a NOSUCH").is_error());
        assert!(client.run(&format!("LOCK.EXEC k a {line}")).is_error(), "{line}");
    }
    assert_eq!(field(&server, "execs"), 9);
}

/// A command that the server refuses for any reason did not run.
#[test]
fn info_does_not_count_commands_that_the_server_refused() {
    let server = Server::start();
    let (mut client, mut worker) = (server.client(), server.client());
    hold(&mut client, "k", "a");
    client.run("ACL SETUSER worker on nopass +@all -get ~k ~x &news");
    worker.run("AUTH worker any");
    for line in
        ["GET x", "PUBLISH other x", "NOSUCH x", "GETSET x", "OBJECT NOSUCH x", "EVAL return 0", "MULTI", "GET\u{7f} x"]
    {
        assert!(worker.run(&format!("LOCK.EXEC k a {line}")).is_error(), "{line}");
    }
    client.run("CONFIG SET maxmemory 1");
    assert!(client.run("LOCK.EXEC k a SET x 1").error().starts_with("OOM "));
    client.run("CONFIG SET maxmemory 0");
    client.run("CONFIG SET min-replicas-to-write 1");
    assert!(client.run("LOCK.EXEC k a SET x 1").error().starts_with("NOREPLICAS "));
    assert_eq!(field(&server, "execs"), 0);
}

#[test]
fn slowlog_shows_the_sent_command() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("CONFIG SET slowlog-log-slower-than 0");
    client.run("SLOWLOG RESET");
    client.run("LOCK.EXEC k a SET x 1");
    client.run("CONFIG SET slowlog-log-slower-than -1");
    let log = client.run("SLOWLOG GET -1");
    let entries: Vec<String> = log
        .items()
        .iter()
        .map(|entry| entry.items()[3].items().iter().map(Reply::text).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(entries.iter().filter(|entry| *entry == "LOCK.EXEC k a SET x 1").count(), 1, "{entries:?}");
    assert!(entries.iter().filter(|entry| *entry == "SET x 1").count() <= 1, "{entries:?}");
}

#[test]
fn monitor_shows_the_sent_command_once() {
    let server = Server::start();
    let (mut monitor, mut client) = (server.client(), server.client());
    hold(&mut client, "k", "a");
    assert_eq!(monitor.run("MONITOR"), Reply::ok());
    client.run("LOCK.EXEC k a SET x 1");
    client.run("ECHO end");
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.contains("\"end\"")) {
        lines.push(monitor.read().text().to_string());
    }
    let outer = lines.iter().filter(|line| line.contains("\"LOCK.EXEC\" \"k\" \"a\" \"SET\" \"x\" \"1\"")).count();
    assert_eq!(outer, 1, "{lines:?}");
    let inner = lines.iter().filter(|line| line.contains("] \"SET\" \"x\" \"1\"")).count();
    assert!(inner <= 1, "{lines:?}");
}
