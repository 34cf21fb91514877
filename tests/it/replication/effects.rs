//! What is replicated are effects, never requests, and only where something changed; no client may send them.

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

/// Something of everything that changes a lock, of every family.
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

/// The keys that [`CHANGES`] leave held.
const KEYS: [&str; 4] = ["nested", "rw", "sem", "x"];

#[track_caller]
fn make_changes(client: &mut Client) {
    for line in CHANGES {
        let reply = client.run(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
    }
}

/// The effects among what the server has appended: the module's only command there.
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
fn what_was_refused_or_changed_nothing_is_not_replicated() {
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

/// The very effects that the server writes for its replicas, sent by those who have no business with them.
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
