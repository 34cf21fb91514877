//! Replicas and the AOF get a grant once, after its cause, and with the same deadline.

use super::*;

/// A way to end `k` in the selected database, and the part of its replication that must precede the grant.
type Ending = (&'static str, &'static [&'static str]);

const ENDINGS: [Ending; 10] = [
    ("FLUSHALL", &["FLUSHALL"]),
    ("FLUSHALL ASYNC", &["FLUSHALL"]),
    ("FLUSHDB", &["FLUSHDB"]),
    ("DEL k", &["DEL"]),
    ("UNLINK k", &["UNLINK"]),
    ("PEXPIRE k -1", &["DEL", "UNLINK"]),
    ("RENAME k elsewhere", &["RENAME"]),
    ("MOVE k 1", &["MOVE"]),
    ("SWAPDB 0 2", &["SWAPDB"]),
    ("SINTERSTORE k nothing here", &["SINTERSTORE", "DEL"]),
];

fn name(command: &[Vec<u8>]) -> String {
    String::from_utf8_lossy(&command[0]).to_uppercase()
}

fn mentions(command: &[Vec<u8>], what: &str) -> bool {
    command.iter().any(|arg| arg.windows(what.len()).any(|part| part == what.as_bytes()))
}

#[test]
fn a_grant_is_replicated_after_its_cause() {
    for (ending, causes) in ENDINGS {
        let server = plain_aof(quiet()).start();
        let mut client = server.client();
        hold(&mut client, "k", "a");
        let [mut b] = line_up(&server, "k", ["the-next-owner"]);
        client.run(ending);
        b.granted("the-next-owner");
        let commands = aof(&server);
        let cause = commands.iter().position(|command| causes.contains(&name(command).as_str()));
        let grant = commands.iter().position(|command| mentions(command, "the-next-owner"));
        let (Some(cause), Some(grant)) = (cause, grant) else {
            panic!("{ending}: {cause:?} {grant:?} in {commands:?}");
        };
        assert!(cause < grant, "{ending}: the grant came before its cause");
        let grants = commands.iter().filter(|command| mentions(command, "the-next-owner")).count();
        assert_eq!(grants, 1, "{ending}: one grant");
    }
}

#[test]
fn a_replica_and_an_aof_end_with_the_same_locks_as_their_master() {
    let mut server = plain_aof(quiet().config("repl-ping-replica-period 1")).start();
    let replica = Server::builder().replica_of(&server).start();
    let mut client = server.client();
    in_sync(&server, &replica);
    for (n, (ending, _)) in ENDINGS.iter().enumerate() {
        // The flushes come first, because they would remove the traces of the others.
        hold(&mut client, "k", "a");
        let [mut b, _c] = line_up(&server, "k", ["b", "c"]);
        client.run(ending);
        b.granted("b");
        in_sync(&server, &replica);
        assert_eq!(all_locks(&server), all_locks(&replica), "{ending}");
        let held = format!("kept-{n}");
        client.run("LOCK.CANCEL k c");
        assert_eq!(client.run(&format!("RENAME k {held}")), Reply::ok());
        client.run(&format!("DEL elsewhere {}", if n % 2 == 0 { held.as_str() } else { "nothing" }));
        client.pipeline(&["SELECT 1", "DEL k", "SELECT 2", "DEL k", "SELECT 0"]);
    }
    // Other ways: a release, lease expiry, the end of a session, a restored lock, an overwritten key.
    hold(&mut client, "released", "a");
    hold(&mut client, "leased", "a");
    hold(&mut client, "restored", "a");
    hold(&mut client, "overwritten", "a");
    let mut session = server.client();
    session.run("LOCK.ACQUIRE session a PX 60000 SESSION");
    let keys = ["released", "leased", "restored", "overwritten", "session"];
    let mut waiters = keys.map(|key| line_up(&server, key, ["b"]));
    client.run("LOCK.RELEASE released a");
    client.run("PEXPIRE leased 30");
    client.run("SET overwritten v");
    let dump = client.run("DUMP released");
    client.cmd(&[b"RESTORE" as &[u8], b"restored", b"30", dump.bytes(), b"REPLACE"]);
    drop(session);
    for [waiter] in &mut waiters {
        waiter.reply();
    }
    in_sync(&server, &replica);
    let locks = all_locks(&server);
    assert!(locks.len() > keys.len(), "{locks:?}");
    assert_eq!(all_locks(&replica), locks);

    server.kill();
    server.restart();
    assert_eq!(all_locks(&server), locks, "the AOF contains the same");
}

#[test]
fn leases_are_the_same_to_the_millisecond_on_a_replica() {
    let server = quiet().start();
    let replica = Server::builder().replica_of(&server).start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    hold(&mut client, "d", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let [mut c] = line_up(&server, "d", ["c"]);
    client.run("LOCK.RELEASE k a");
    client.run("DEL d");
    b.granted("b");
    c.granted("c");
    in_sync(&server, &replica);
    for key in ["k", "d"] {
        let request = format!("PEXPIRETIME {key}");
        assert_eq!(client.run(&request), replica.client().run(&request));
        assert!(client.run(&request).int() > 0);
    }
}
