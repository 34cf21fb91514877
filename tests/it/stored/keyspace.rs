//! TYPE, SCAN, RENAME, MOVE, RESTORE under another name, COPY, and commands that read any key.

use super::*;

#[test]
fn the_type_has_a_name_and_scan_finds_it() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET string v");
    take_locks(&mut client);
    for key in KEYS {
        assert_eq!(client.cmd(&["TYPE", key]).text(), "redislock");
    }
    let page = client.run("SCAN 0 COUNT 1000 TYPE redislock");
    let mut found: Vec<&str> = page.items()[1].items().iter().map(Reply::text).collect();
    found.sort_unstable();
    let mut expected = KEYS.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn a_restored_lock_exists_alongside_the_original() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.run("LOCK.ACQUIRE k a").fence();
    let payload = client.run("DUMP k");
    let busy = client.cmd(&[&b"RESTORE"[..], b"k", b"0", payload.bytes()]);
    assert!(busy.error().starts_with("BUSYKEY "));
    client.run("LOCK.RELEASE k a");
    assert_eq!(client.cmd(&[&b"RESTORE"[..], b"k2", b"60000", payload.bytes()]), Reply::ok());
    assert_eq!(client.run("LOCK.HELD k2 a").items()[0].int(), fence);
    assert!(client.run("LOCK.ACQUIRE k b").fence() > fence);
    assert_eq!(client.run("LOCK.RELEASE k2 a").int(), 1);
}

#[test]
fn rename_and_move_keep_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a PX 600000");
    let (value, deadline) = client.stored("k");
    assert_eq!(client.run("RENAME k renamed"), Reply::ok());
    assert_eq!(client.stored("renamed"), (value.clone(), deadline.clone()));
    let next = client.run("LOCK.ACQUIRE k b").fence();

    assert_eq!(client.run("MOVE renamed 1").int(), 1);
    client.run("LOCK.ACQUIRE renamed c").fence();
    client.run("SELECT 1");
    assert_eq!(client.stored("renamed"), (value, deadline));
    assert!(client.run("LOCK.ACQUIRE renamed c").is_nil());
    assert_eq!(client.run("LOCK.RELEASE renamed a").int(), 1);
    client.run("SELECT 0");
    assert_eq!(client.run("LOCK.HELD k b").items()[0].int(), next);
}

#[test]
fn rename_over_a_lock_ends_it() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a");
    client.run("LOCK.ACQUIRE other b");
    assert_eq!(client.run("RENAME other k"), Reply::ok());
    assert!(client.run("LOCK.HELD k a").is_nil());
    assert!(!client.run("LOCK.HELD k b").is_nil());
}

#[test]
fn copy_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    take_locks(&mut client);
    let before = stored(&mut client);
    for key in KEYS {
        for line in [format!("COPY {key} copy"), format!("COPY {key} copy REPLACE"), format!("COPY {key} {key} DB 1")] {
            assert!(client.run(&line).is_error(), "two keys must not carry one grant: {line}");
        }
    }
    assert_eq!(client.run("EXISTS copy").int(), 0);
    assert_eq!(stored(&mut client), before);
    client.run("SELECT 1");
    assert_eq!(client.run("DBSIZE").int(), 0);
}

#[test]
fn rename_and_move_there_and_back_change_no_lock_of_any_type() {
    let server = Server::start();
    let mut client = server.client();
    take_locks(&mut client);
    let before = stored(&mut client);
    for key in KEYS {
        let lines = [
            format!("RENAME {key} elsewhere"),
            "MOVE elsewhere 1".into(),
            "SELECT 1".into(),
            "MOVE elsewhere 0".into(),
            "SELECT 0".into(),
            format!("RENAMENX elsewhere {key}"),
        ];
        for (line, reply) in lines.iter().zip(client.pipeline(&lines)) {
            assert!(reply == Reply::ok() || reply == Reply::Int(1), "{line}: {reply:?}");
        }
    }
    assert_eq!(stored(&mut client), before);
    assert_locks_still_work(&mut client);
}

#[test]
fn generic_commands_accept_a_lock_and_commands_of_other_types_refuse_it() {
    let server = Server::start();
    let mut client = server.client();
    client.run("LOCK.ACQUIRE k a");
    for line in [
        "OBJECT ENCODING k",
        "OBJECT REFCOUNT k",
        "OBJECT IDLETIME k",
        "DEBUG OBJECT k",
        "DEBUG DIGEST",
        "DEBUG DIGEST-VALUE k",
        "TOUCH k",
    ] {
        assert!(!client.run(line).is_error(), "{line}");
    }
    for line in ["STRLEN k", "APPEND k v", "SORT k", "LPUSH k v", "GET k", "BITCOUNT k"] {
        assert!(client.run(line).error().starts_with("WRONGTYPE "), "{line}");
    }
    assert!(!client.run("LOCK.HELD k a").is_nil());
}
