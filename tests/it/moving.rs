//! docs/operations.md, "Moving to another server": which methods keep the locks, and which lose them.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::support::waiting::hold;
use crate::support::{in_sync, Server};

/// Two locks and a string.
fn filled() -> (Server, i64) {
    let server = Server::builder().appendonly().start();
    let mut client = server.client();
    client.run("SET string 1");
    client.run("SEM.ACQUIRE s a LIMIT 2").fence();
    let fence = hold(&mut client, "k", "a");
    (server, fence)
}

#[track_caller]
fn assert_there(server: &Server, fence: i64) {
    let mut client = server.client();
    assert_eq!(client.run("LOCK.HELD k a").items()[0].int(), fence);
    assert_eq!(client.run("GET string").text(), "1");
}

#[test]
fn files_replicas_and_dumps_keep_locks() {
    let (mut from, fence) = filled();
    let replica = Server::builder().replica_of(&from).start();
    in_sync(&from, &replica);
    replica.client().run("REPLICAOF NO ONE");
    assert_there(&replica, fence);

    let dump = from.client().run("DUMP k");
    let restored = Server::start();
    restored.client().run("SET string 1");
    restored.client().cmd(&[&b"RESTORE"[..], b"k", b"60000", dump.bytes()]);
    assert_there(&restored, fence);

    from.stop();
    let mut other = Server::builder().appendonly().start();
    other.kill();
    let folders = [&from, &other].map(|server| server.dir().join("appendonlydir"));
    for file in fs::read_dir(&folders[0]).expect("its files") {
        let file = file.expect("a file");
        fs::copy(file.path(), folders[1].join(file.file_name())).expect("copied");
    }
    other.restart();
    assert_there(&other, fence);
}

#[test]
fn a_client_that_replays_the_append_only_file_loses_the_locks_and_gets_errors() {
    let (from, _) = filled();
    let to = Server::start();
    let files = fs::read_dir(from.dir().join("appendonlydir")).expect("its files").map(|file| file.expect("a file"));
    let file = files.map(|file| file.path()).find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let file = File::open(file.expect("the file with what was appended")).expect("it opens");
    let port = to.port().to_string();
    let sent = Command::new("redis-cli").args(["-p", &port, "--pipe"]).stdin(file).stderr(Stdio::piped()).output();
    let sent = sent.expect("redis-cli");
    let printed = String::from_utf8_lossy(&[sent.stdout, sent.stderr].concat()).into_owned();
    assert!(printed.contains("errors: 2"), "{printed}");
    let mut client = to.client();
    assert_eq!(client.run("GET string").text(), "1");
    assert_eq!(client.run("EXISTS k s").int(), 0);
}
