//! Effects are replicated, never requests, and only if something changed; no client may send them.

use super::*;

/// What the server has written to its AOF since the last rewrite, command by command.
fn appended_commands(server: &Server) -> Vec<Vec<Vec<u8>>> {
    let folder = fs::read_dir(server.dir().join("appendonlydir")).expect("the AOF's folder");
    let incremental = folder
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .expect("an incremental AOF");
    let commands = decode_all(&fs::read(incremental).expect("an AOF")).expect("commands");
    let words = |command: &Reply| command.items().iter().map(|word| word.bytes().to_vec()).collect();
    commands.iter().map(words).collect()
}

/// The commands that the module has registered, in lower case.
fn module_commands(client: &mut Client) -> Vec<String> {
    let names = client.run("COMMAND LIST FILTERBY MODULE lock");
    names.items().iter().map(|name| name.text().to_lowercase()).collect()
}

/// Commands for every lock type, with every kind of change.
const CHANGES: &[&str] = &[
    "LOCK.ACQUIRE k a PX 600000",
    "LOCK.ACQUIRE k a PX 700000",
    "LOCK.RENEW k a PX 800000",
    "LOCK.RELEASE k a",
    "RLOCK.ACQUIRE nested a",
    "RLOCK.ACQUIRE nested a",
    "RLOCK.RENEW nested a",
    "RLOCK.RELEASE nested a",
    "RWLOCK.ACQUIRE rw a READ",
    "RWLOCK.ACQUIRE rw b READ",
    "RWLOCK.RENEW rw a PX 700000",
    "RWLOCK.RELEASE rw b READ",
    "RWLOCK.ACQUIRE rw a WRITE",
    "SEM.ACQUIRE sem a LIMIT 3",
    "SEM.ACQUIRE sem b LIMIT 4 PERMITS 2",
    "SEM.RENEW sem b",
    "SEM.RELEASE sem b",
    "MLOCK.ACQUIRE 2 x y a",
    "MLOCK.RENEW 2 x y a PX 700000",
    "MLOCK.RELEASE 1 y a",
];

/// The keys that are held after [`CHANGES`].
const KEYS: [&str; 4] = ["nested", "rw", "sem", "x"];

#[track_caller]
fn make_changes(client: &mut Client) {
    for line in CHANGES {
        let reply = client.run(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
    }
}

/// The effects in what the server has appended; no other module command may be there.
#[track_caller]
fn appended_effects(server: &Server) -> Vec<Vec<Vec<u8>>> {
    let of_the_module = module_commands(&mut server.client());
    let name = |command: &[Vec<u8>]| String::from_utf8_lossy(&command[0]).to_lowercase();
    let effects: Vec<_> =
        appended_commands(server).into_iter().filter(|command| of_the_module.contains(&name(command))).collect();
    for effect in &effects {
        assert_eq!(name(effect), "lock.apply", "a request was replicated");
    }
    effects
}

#[test]
fn requests_are_never_replicated() {
    let server = Server::builder().appendonly().start();
    make_changes(&mut server.client());
    assert!(appended_effects(&server).len() >= CHANGES.len(), "each of them has an effect");
}

#[test]
fn refused_and_ineffective_requests_are_not_replicated() {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    make_changes(&mut client);
    client.run("LOCK.ACQUIRE k a PERSIST").fence();
    let before = appended_commands(&server).len();
    for line in [
        "LOCK.ACQUIRE k b",
        "LOCK.ACQUIRE k b BLOCK x",
        "LOCK.RELEASE k b",
        "LOCK.RELEASE free b",
        "LOCK.RENEW k b",
        "LOCK.HELD k a",
        "LOCK.INFO k",
        "LOCK.WAITERS k",
        "LOCK.CANCEL k b",
        "RLOCK.ACQUIRE nested b",
        "RLOCK.RELEASE nested a HOLDS 9",
        "RLOCK.RELEASE k a",
        "RWLOCK.ACQUIRE rw b READ",
        "RWLOCK.RELEASE rw a READ HOLDS 5",
        "RWLOCK.RENEW rw b",
        "SEM.ACQUIRE sem c LIMIT 2 PERMITS 2",
        "SEM.RELEASE sem a PERMITS 9",
        "SEM.RELEASE sem c",
        "MLOCK.ACQUIRE 2 x y b",
        "MLOCK.RELEASE 2 x y b",
        "MLOCK.RENEW 2 x y a",
    ] {
        let reply = client.run(line);
        assert!(
            reply.is_error() || !matches!(&reply, Reply::Array(grant) if line.contains("ACQUIRE") && !grant.is_empty()),
            "{line}: {reply:?}"
        );
    }
    assert_eq!(appended_commands(&server).len(), before);
}

/// The effects that the server sends to its replicas, sent by clients, which may not send them.
#[test]
fn internal_commands_refuse_every_client() {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    make_changes(&mut client);
    let effects = appended_effects(&server);
    assert!(effects.len() >= CHANGES.len(), "{effects:?}");
    client.run("ACL SETUSER anyone on nopass ~* &* +@all");
    let before = KEYS.map(|key| client.stored(key));
    for effect in &effects {
        assert!(client.cmd(effect).is_error(), "{effect:?}");

        client.run("MULTI");
        client.cmd(effect);
        let reply = client.run("EXEC");
        assert!(reply.is_error() || reply.items()[0].is_error(), "{effect:?}");

        let script = "return redis.call(unpack(ARGV))";
        let mut in_script: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), b"0"];
        in_script.extend(effect.iter().map(Vec::as_slice));
        assert!(client.cmd(&in_script).is_error(), "{effect:?}");

        let mut another = server.client3();
        another.run("AUTH anyone any-password");
        assert!(another.cmd(effect).is_error(), "{effect:?}");
    }
    assert_eq!(KEYS.map(|key| client.stored(key)), before);

    client.run("FLUSHALL");
    for effect in &effects {
        assert!(client.cmd(effect).is_error(), "{effect:?}");
    }
    assert_eq!(client.run("DBSIZE").int(), 0);
}

#[track_caller]
fn appended_by(server: &Server, client: &mut Client, line: &str) -> Vec<Vec<Vec<u8>>> {
    let before = appended_commands(server).len();
    let reply = client.run(line);
    assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
    appended_commands(server).split_off(before)
}

/// Checks for a single effect, `LOCK.APPLY k hold`, and returns the fields of the hold.
#[track_caller]
fn only_hold(commands: &[Vec<Vec<u8>>]) -> Vec<String> {
    match commands {
        [command] if command.len() == 3 && command[..2] == [b"LOCK.APPLY".to_vec(), b"k".to_vec()] => {
            String::from_utf8_lossy(&command[2]).split(' ').map(String::from).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grant_is_one_command_with_one_argument_and_the_removal_is_a_del() {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    client.run("SET select-is-there 1");
    // The letter, and what follows the three numbers.
    let rows = [
        ("LOCK.ACQUIRE k a PX 600000", "LOCK.RENEW k a PX 700000", "LOCK.RELEASE k a", "m", "a"),
        ("RLOCK.ACQUIRE k a HOLDS 2 PX 600000", "RLOCK.RENEW k a PX 700000", "RLOCK.RELEASE k a HOLDS 0", "r", "2 a"),
        ("RWLOCK.ACQUIRE k a READ PX 600000", "RWLOCK.RENEW k a PX 700000", "RWLOCK.RELEASE k a READ", "w", "0 1 a"),
        ("RWLOCK.ACQUIRE k a WRITE PX 600000", "RWLOCK.RENEW k a PX 700000", "RWLOCK.RELEASE k a WRITE", "w", "1 0 a"),
        (
            "SEM.ACQUIRE k a LIMIT 5 HOLDS 3 PX 600000",
            "SEM.RENEW k a PX 700000",
            "SEM.RELEASE k a HOLDS 0",
            "s",
            "3 5 a",
        ),
        ("MLOCK.ACQUIRE 1 k a PX 600000", "MLOCK.RENEW 1 k a PX 700000", "MLOCK.RELEASE 1 k a", "m", "a"),
    ];
    for (acquire, renew, release, letter, rest) in rows {
        let hold = |client: &mut Client, line: &str, lease: &str| {
            let fields = only_hold(&appended_by(&server, client, line));
            let fence = client.run("LOCK.INFO k").get("fence").int().to_string();
            let until = client.run("PEXPIRETIME k").int().to_string();
            assert_eq!(fields[..4], [letter, &fence, lease, &until], "{line}");
            assert_eq!(fields[4..].join(" "), rest, "{line}");
        };
        hold(&mut client, acquire, "600000");
        hold(&mut client, renew, "700000");
        assert_eq!(appended_by(&server, &mut client, release), [[b"DEL".to_vec(), b"k".to_vec()]], "{release}");
    }
    let fields = only_hold(&appended_by(&server, &mut client, "LOCK.ACQUIRE k a PERSIST"));
    assert_eq!(fields[2..], ["-1", "-1", "a"], "it never ends");
}

#[test]
fn a_hand_off_is_one_command() {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [mut b] = line_up(&server, "k", ["b"]);
    let fields = only_hold(&appended_by(&server, &mut client, "LOCK.RELEASE k a"));
    b.granted("b");
    assert_eq!((fields[0].as_str(), fields[4].as_str()), ("m", "b"));
}

#[test]
fn save_points_count_every_change_even_without_consumers_of_effects() {
    let server = Server::start();
    let mut client = server.client();
    let changes = || server.info("persistence").number("rdb_changes_since_last_save");
    for line in
        CHANGES.iter().chain(&["SEM.ACQUIRE sem a LIMIT 7 HOLDS 1", "PEXPIRE rw 90000", "RLOCK.RELEASE nested a"])
    {
        let before = changes();
        let reply = client.run(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
        assert!(changes() > before, "{line}");
    }
}
