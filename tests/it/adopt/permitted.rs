//! Permissions: the caller needs permission for the original command as well as for LOCK.ADOPTED or LOCK.ADOPTED_RO.

use super::*;

fn user(server: &Server, rules: &str) -> Client {
    let reply = server.client().run(&format!("ACL SETUSER u reset on nopass {rules}"));
    assert_eq!(reply, Reply::ok(), "{rules}");
    let mut client = server.client();
    client.run("AUTH u any");
    client
}

#[test]
fn both_permissions_are_required_and_the_error_names_the_missing_one() {
    let server = adopting();
    let set = "SET lock:k a NX PX 60000";
    let rows = [
        ("~lock:* +set +lock.adopted", set, None),
        ("~lock:* +set", set, Some("lock.adopted|set")),
        ("~lock:* +lock.adopted", set, Some("lock.adopt")),
        ("~other:* +set +lock.adopted", set, Some("key")),
        ("%R~lock:* +set +lock.adopted", set, Some("key")),
        ("%W~lock:* +set +lock.adopted", set, None),
        ("%W~lock:* +set +lock.adopted", "SET lock:k a NX GET", Some("lock.adopt")),
        ("%W~lock:* +getset +lock.adopted", "GETSET lock:k a", Some("lock.adopt")),
        ("%R~lock:* +get +lock.adopted_ro", "GET lock:k", None),
        ("%W~lock:* +get +lock.adopted_ro", "GET lock:k", Some("key")),
        ("~lock:* +get +lock.adopted", "GET lock:k", Some("lock.adopted_ro|get")),
        ("~lock:* +lock.adopted_ro", "GET lock:k", Some("lock.adopt")),
        ("~lock:* +mget +lock.adopted_ro", "MGET lock:k other", Some("key")),
        ("~lock:* +set +lock.adopted|set", set, None),
        ("~lock:* +setnx +lock.adopted|set", "SETNX lock:k a", Some("lock.adopted|setnx")),
        ("(~lock:* +set +lock.adopted) (~lock:* +get)", set, None),
    ];
    for (rules, line, missing) in rows {
        server.client().run("DEL lock:k");
        let reply = user(&server, rules).run(line);
        match missing {
            None => assert!(!reply.is_error(), "{rules}: {line}: {reply:?}"),
            Some(word) => {
                assert!(reply.error().starts_with("NOPERM ") && reply.error().contains(word), "{rules}: {reply:?}");
                assert_eq!(server.client().run("EXISTS lock:k").int(), 0, "{rules}: {line}");
            }
        }
    }
}

#[test]
fn a_denial_is_in_the_acl_log_whichever_permission_is_missing() {
    let server = adopting();
    for (rules, object) in [("~lock:* +set", "lock.adopted|set"), ("~lock:* +lock.adopted", "SET")] {
        server.client().run("ACL LOG RESET");
        assert!(user(&server, rules).run("SET lock:k a NX PX 60000").is_error());
        let log = server.client().run("ACL LOG");
        let [entry] = log.items() else { panic!("{rules}: {log:?}") };
        assert_eq!((entry.get("reason").text(), entry.get("username").text()), ("command", "u"));
        assert_eq!(entry.get("object").text(), object, "{rules}");
    }
}

#[test]
fn it_is_the_same_in_scripts_transactions_and_lock_exec() {
    let server = adopting();
    let mut admin = server.client();
    assert!(set_nx(&mut admin, "lock:k", "a"));
    let rules = "~lock:* +get +eval +multi +exec +lock.exec";
    let get = "return redis.call('GET', KEYS[1])";
    for (rule, is_allowed) in [("+lock.adopted_ro", true), ("+ping", false), ("+lock.adopted_ro -get", false)] {
        let mut client = user(&server, &format!("{rules} {rule}"));
        let script = client.cmd(&["EVAL", get, "1", "lock:k"]);
        let inner = client.run("LOCK.EXEC lock:k a GET lock:k");
        client.run("MULTI");
        let queued = client.run("GET lock:k");
        let exec = client.run("EXEC");
        if is_allowed {
            assert_eq!((script, inner), (Reply::bulk("a"), Reply::bulk("a")));
            assert_eq!(exec, Reply::Array(vec![Reply::bulk("a")]));
        } else {
            assert!(script.is_error(), "{rule}: {script:?}");
            assert!(inner.error().starts_with("NOPERM "), "{rule}: {inner:?}");
            let is_refused = queued.is_error() || exec.items()[0].is_error();
            assert!(is_refused, "{rule}: {exec:?}");
        }
    }
}

#[test]
fn commands_that_release_a_lock_are_never_refused_for_memory() {
    let server = adopting();
    let mut client = server.client();
    assert!(set_nx(&mut client, "lock:k", "a"));
    client.run("CONFIG SET maxmemory 1");
    assert!(client.run("SET lock:l a NX").error().starts_with("OOM "));
    assert_eq!(client.run("GETDEL lock:k"), Reply::bulk("a"));
    assert!(is_null(&client.run("GET lock:k")));
}
