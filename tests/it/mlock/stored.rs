//! Replication, persistence and sessions: all of the keys or none.

use super::*;
use crate::support::in_sync;

#[test]
fn replicas_and_the_aof_get_all_of_it_or_nothing() {
    let server = plain_aof(Server::builder()).start();
    let replica = Server::builder().replica_of(&server).start();
    let mut client = server.client();
    let start = aof(&server).len();
    take(&mut client, "x y z a");
    let mut b = wait_for(&server, "x y z b");
    release(&mut client, "x y z a", 3);
    b.granted("b");
    assert_eq!(client.run("MLOCK.RENEW 3 x y z b PX 90000"), Reply::Int(1));
    // And one that no command causes: the leases expire.
    let mut c = wait_for(&server, "x y z c");
    assert_eq!(client.run("MLOCK.RENEW 3 x y z b PX 50"), Reply::Int(1));
    c.granted("c");
    in_sync(&server, &replica);
    assert_eq!(all_locks(&server), all_locks(&replica));

    let mut open = false;
    let mut changes = 0;
    for command in &aof(&server)[start..] {
        match command[0].to_ascii_uppercase().as_slice() {
            b"MULTI" => open = true,
            b"EXEC" => open = false,
            b"SELECT" => {}
            _ => {
                assert!(open, "{command:?} stands alone");
                changes += 1;
            }
        }
    }
    assert!(changes >= 15, "{changes}");
}

#[test]
fn they_survive_a_power_failure_with_their_common_fence() {
    let mut server = Server::builder().appendonly().start();
    let mut client = server.client();
    let fence = take(&mut client, "x y a");
    hold(&mut client, "z", "a");
    let wider = take(&mut client, "y z a");
    server.kill();
    server.restart();
    let mut client = server.client();
    assert_eq!(held(&mut client, "x", "a").map(|held| held.0), Some(fence));
    for key in ["y", "z"] {
        assert_eq!(held(&mut client, key, "a").map(|held| held.0), Some(wider), "{key}");
    }
    assert_eq!(take(&mut client, "y z a"), wider, "a retry finds them");
}

#[test]
fn a_session_releases_all_of_them() {
    let server = quiet().start();
    let mut client = server.client();
    let mut session = server.client();
    session.run("MLOCK.ACQUIRE 3 x y z a PX 60000 SESSION").fence();
    let mut b = wait_for(&server, "y x b");
    drop(session);
    b.granted("b");
    until("z is free", || client.run("EXISTS z") == Reply::Int(0));
}
