//! The reply is the inner command's own, byte for byte, in both protocol versions.

use super::*;
use crate::support::waiting::*;
use crate::support::{built_caller, Pipeline, Server};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The raw bytes of the reply to a command.
fn raw_reply(server: &Server, protocol: &str, request: &[&str]) -> String {
    const END: &str = "the end of the reply";
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a server listens");
    let mut pipeline = Pipeline::default();
    for request in [&["HELLO", protocol][..], &["ECHO", END], request, &["ECHO", END]] {
        pipeline.push(request);
    }
    stream.write_all(&pipeline.bytes).expect("the server reads");
    let (mut text, mut buffer) = (Vec::new(), [0; 65_536]);
    let end = format!("{END}\r\n");
    loop {
        let so_far = String::from_utf8_lossy(&text);
        if let [_, reply, ""] = so_far.split(&end).collect::<Vec<_>>()[..] {
            return reply.strip_suffix("$20\r\n").expect("the length of the end").to_string();
        }
        let count = stream.read(&mut buffer).expect("the server replies");
        assert!(count > 0, "the connection ended after {so_far}");
        text.extend(&buffer[..count]);
    }
}

const PREPARE: &[&str] = &[
    "LOCK.ACQUIRE k a PX 60000",
    "SET text value",
    "SET number 7",
    "RPUSH list 1 2 3",
    "SADD set 1",
    "HSET hash f v",
    "ZADD zset 1.5 one 2.5 two",
    "XADD stream 1-1 f v",
];

#[test]
fn every_kind_of_reply_is_the_commands_own() {
    let caller = built_caller().expect("the test module is built");
    let server = Server::builder().config(format!("loadmodule {}", caller.display())).start();
    let mut client = server.client();
    for line in PREPARE {
        assert!(!client.run(line).is_error(), "{line}");
    }
    for line in [
        "PING",
        "ECHO hello",
        "GET text",
        "GET nothing",
        "STRLEN text",
        "LRANGE list 0 -1",
        "LPOP nothing 1",
        "BLPOP_NOT_THERE",
        "MGET text nothing",
        "SMEMBERS set",
        "HGETALL hash",
        "ZSCORE zset one",
        "ZRANGE zset 0 -1 WITHSCORES",
        "XRANGE stream - +",
        "XINFO STREAM stream",
        "MEMORY DOCTOR",
        "LOCK.INFO nothing",
        "LOCK.WAITERS k",
        "LPUSH text 1",
        "GET",
        "OBJECT HELP",
        "TEST.REPLIES",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        for protocol in ["2", "3"] {
            let alone = raw_reply(&server, protocol, &words);
            let exec = raw_reply(&server, protocol, &[&["LOCK.EXEC", "k", "a"], &words[..]].concat());
            assert_eq!(exec, alone, "{line}, RESP{protocol}");
        }
    }
    let all = raw_reply(&server, "3", &["LOCK.EXEC", "k", "a", "TEST.REPLIES"]);
    for kind in ["|1\r\n", "%1\r\n", "~1\r\n", ",1.5\r\n", "#t\r\n", "(12345", "=", "_\r\n", "-CODE"] {
        assert!(all.contains(kind), "{kind} is not in {all}");
    }
}

#[test]
fn a_large_reply_is_complete() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let value = "x".repeat(3_000_000);
    assert_eq!(client.cmd(&["LOCK.EXEC", "k", "a", "SET", "large", &value]), Reply::ok());
    assert_eq!(client.run("LOCK.EXEC k a GET large"), Reply::bulk(&value));
    assert_in_step(&mut client);
}

#[test]
fn errors_keep_their_code() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    client.run("SET text v");
    for (line, code) in [
        ("LPUSH text 1", "WRONGTYPE "),
        ("INCR text", "ERR value is not an integer"),
        ("XREADGROUP GROUP g c STREAMS stream >", "NOGROUP "),
        ("RESTORE text 0 payload", "BUSYKEY "),
        ("NOSUCH a b", "ERR unknown command 'NOSUCH'"),
        ("GET", "ERR wrong number of arguments for 'get' command"),
        ("OBJECT NOSUCH", "ERR "),
    ] {
        let reply = client.run(&format!("LOCK.EXEC k a {line}"));
        assert!(reply.error().starts_with(code), "{line}: {reply:?}");
    }
    for name in [&b"GET\0"[..], b"\0", b"", b"\xff\xfe"] {
        let reply = client.cmd(&[&b"LOCK.EXEC"[..], b"k", b"a", name, b"text"]);
        assert!(reply.error().starts_with("ERR unknown command"), "{reply:?}");
    }
    assert!(client.run("LOCK.EXEC k a").error().starts_with("ERR wrong number of arguments for 'lock.exec'"));
    assert_in_step(&mut client);
}

/// A command may select a database, but changes the client's no more than a script does.
#[test]
fn the_database_is_the_clients_and_stays_selected() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SELECT 3");
    hold(&mut client, "k", "a");
    assert_eq!(client.run("LOCK.EXEC k a SET x 3"), Reply::ok());
    assert_eq!(client.run("LOCK.EXEC k a SELECT 5"), Reply::ok());
    assert_eq!(client.run("LOCK.EXEC k a GET x"), Reply::bulk("3"));
    client.run("SELECT 0");
    assert_not_held(&client.run("LOCK.EXEC k a SET x 0"));
}
