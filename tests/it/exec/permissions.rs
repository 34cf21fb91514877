//! The inner command runs with the caller's own permissions, by itself, in transactions and in scripts.

use super::*;
use crate::support::waiting::*;
use crate::support::{built_caller, Server};

/// A user with permission for everything except INCR, with access to few keys and one channel; and `k`, held by `a`.
fn restricted() -> (Server, Client) {
    let caller = built_caller().expect("the test module is built");
    let server = Server::builder().config(format!("loadmodule {}", caller.display())).start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "other", "a");
    let rules = "on nopass +@all -incr -config|get %R~k ~mine:* %R~shown:* %W~sunk:* resetchannels &news";
    assert_eq!(client.run(&format!("ACL SETUSER worker {rules}")), Reply::ok());
    assert_eq!(client.run("AUTH worker any"), Reply::ok());
    (server, client)
}

/// Commands, and whether the worker may run them.
const COMMANDS: &[(&str, bool)] = &[
    ("SET mine:x 1", true),
    ("GET mine:x", true),
    ("GET shown:x", true),
    ("SET shown:x 1", false),
    ("SET sunk:x 1", true),
    ("GET sunk:x", false),
    ("SET sunk:x 1 GET", false),
    ("GET hidden", false),
    ("SET hidden 1", false),
    ("MSET mine:x 1 mine:y 2", true),
    ("MSET mine:x 1 hidden 2", false),
    ("COPY shown:x mine:y", true),
    ("COPY mine:x shown:y", false),
    ("SORT shown:l STORE mine:l", true),
    ("SORT mine:l STORE shown:l", false),
    ("LOCK.HELD k a", true),
    ("LOCK.RENEW k a", false),
    ("MLOCK.ACQUIRE 2 mine:x:l mine:y:l a", true),
    ("MLOCK.ACQUIRE 2 mine:x:l hidden a", false),
    ("INCR mine:x", false),
    ("PUBLISH news x", true),
    ("PUBLISH other x", false),
    ("PING", true),
];

#[test]
fn its_name_keys_and_channels_are_checked() {
    let (_server, mut client) = restricted();
    for (line, may) in COMMANDS {
        let reply = client.run(&format!("LOCK.EXEC k a {line}"));
        if *may {
            assert!(!reply.is_error(), "{line}: {reply:?}");
        } else {
            assert!(reply.error().starts_with("NOPERM "), "{line}: {reply:?}");
        }
    }
    let reply = client.run("LOCK.EXEC other a PING");
    assert!(reply.error().starts_with("NOPERM "), "{reply:?}");
    // Not every server knows the inner command's keys before it runs.
    let reply = client.run("LOCK.EXEC mine:none a GET hidden");
    assert!(["NOPERM ", "NOTHELD "].iter().any(|code| reply.error().starts_with(code)), "{reply:?}");
}

#[test]
fn permissions_apply_in_transactions_and_scripts() {
    let (_server, mut client) = restricted();
    for (line, may) in COMMANDS {
        let line = format!("LOCK.EXEC k a {line}");
        let replies = client.pipeline(&["MULTI", &line, "EXEC"]);
        let reply = match (&replies[1], &replies[2]) {
            (Reply::Status(_), Reply::Array(replies)) => &replies[0],
            (refused, _) => refused,
        };
        assert_eq!(!reply.is_error(), *may, "{line} in MULTI: {reply:?}");
        let mut request = vec!["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
        request.extend(line.split(' '));
        let reply = client.cmd(&request);
        assert_eq!(!reply.is_error(), *may, "{line} in a script: {reply:?}");
        if !may {
            let error = reply.error().to_lowercase();
            // If the server refuses LOCK.EXEC because of its keys, a script gets a different message.
            let words = ["noperm", "permissions", "can't"];
            assert!(words.iter().any(|word| error.contains(word)), "{line}: {error}");
        }
    }
}

#[test]
fn a_denial_is_in_the_acl_log() {
    let (server, mut client) = restricted();
    assert!(client.run("LOCK.EXEC k a INCR mine:x").error().starts_with("NOPERM "));
    let log = server.client().run("ACL LOG 1");
    assert_eq!(log.items()[0].get("object").text(), "incr");
    assert_eq!(log.items()[0].get("username").text(), "worker");
}

/// RM_Call without a user is unrestricted, like everything that the other module does: it could call the command
/// directly.
#[test]
fn a_module_without_a_user_is_not_restricted() {
    let (_server, mut client) = restricted();
    assert!(client.run("LOCK.EXEC k a GET hidden").error().starts_with("NOPERM "));
    assert_eq!(client.run("TEST.CALL LOCK.EXEC k a SET hidden 1"), Reply::ok());
    assert_not_held(&client.run("TEST.CALL LOCK.EXEC k b SET hidden 1"));
}
