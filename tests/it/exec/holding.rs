//! Whoever holds may, whatever the family and mode; nobody else.

use super::*;
use crate::support::families::each_way;
use crate::support::waiting::*;
use crate::support::{Clocks, Server};
use std::time::Duration;

#[test]
fn the_holder_may_and_nobody_else_in_every_family() {
    each_way(Server::builder, |way, server, client| {
        assert_not_held(&client.run("LOCK.EXEC k a SET x 1"));
        way.hold(client, "k", "a");
        assert_eq!(client.run("LOCK.EXEC k a SET x 1"), Reply::ok(), "{way:?}");
        assert_not_held(&client.run("LOCK.EXEC k b SET x 2"));
        let waiter = crate::support::families::wait_for(way, server, "k", "b");
        assert_not_held(&client.run("LOCK.EXEC k b SET x 3"));
        assert!(client.run("GET x").is_bulk("1"), "{way:?}");
        drop(waiter);
        way.give_back(client, "k", "a");
        assert_not_held(&client.run("LOCK.EXEC k a SET x 4"));
        assert!(client.run("GET x").is_bulk("1"), "{way:?}");
    });
}

#[test]
fn any_mode_of_holding_suffices() {
    let server = Server::start();
    let mut client = server.client();
    for line in [
        "RWLOCK.ACQUIRE rw a READ PX 60000",
        "RWLOCK.ACQUIRE rw b READ PX 60000",
        "SEM.ACQUIRE sem a LIMIT 3 PX 60000",
        "SEM.ACQUIRE sem b LIMIT 3 PERMITS 2 PX 60000",
    ] {
        client.run(line).fence();
    }
    for key in ["rw", "sem"] {
        for owner in ["a", "b"] {
            assert!(!client.run(&format!("LOCK.EXEC {key} {owner} INCR x")).is_error(), "{key}, {owner}");
        }
        assert_not_held(&client.run(&format!("LOCK.EXEC {key} c INCR x")));
    }
    assert_eq!(client.run("GET x"), Reply::bulk("4"));
}

#[test]
fn a_queued_upgrade_is_still_a_reader() {
    let server = Server::start();
    let mut client = server.client();
    client.run("RWLOCK.ACQUIRE k a READ PX 60000").fence();
    client.run("RWLOCK.ACQUIRE k b READ PX 60000").fence();
    let _waiter = Waiter::park(&server, "RWLOCK.ACQUIRE k a WRITE PX 60000 BLOCK 0");
    assert_eq!(client.run("LOCK.EXEC k a SET x 1"), Reply::ok());
}

#[test]
fn a_key_of_another_type_is_the_wrong_type() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SET k v");
    assert!(client.run("LOCK.EXEC k a SET x 1").error().starts_with("WRONGTYPE "));
    assert_eq!(client.run("EXISTS x"), Reply::Int(0));
}

#[test]
fn a_token_of_any_bytes_is_asked_for() {
    let server = Server::start();
    let mut client = server.client();
    let owner: Vec<u8> = (0..=255).cycle().take(1024).collect();
    client.cmd(&[&b"LOCK.ACQUIRE"[..], b"key\0", &owner]).fence();
    assert_eq!(client.cmd(&[&b"LOCK.EXEC"[..], b"key\0", &owner, b"SET", b"x\0y", b"\xff"]), Reply::ok());
    assert_eq!(client.cmd(&[&b"GET"[..], b"x\0y"]), Reply::bulk(b"\xff"));
    for token in [&b""[..], &owner[..1023], &[b'x'; 3000]] {
        assert_not_held(&client.cmd(&[&b"LOCK.EXEC"[..], b"key\0", token, b"SET", b"x", b"1"]));
    }
}

/// The timer, by which the module ends leases, stands still here.
#[test]
fn a_lease_that_has_ended_holds_nothing_each_holder_by_its_own() {
    let at = |wall_ms| Clocks { wall: Duration::from_millis(wall_ms), monotonic: Duration::from_secs(1_000) };
    let start = 1_800_000_000_000;
    let mut server = Server::builder().clocks(at(start)).start();
    let mut client = server.client();
    for line in [
        "LOCK.ACQUIRE mutex a PX 5000",
        "SEM.ACQUIRE sem a LIMIT 3 PX 5000",
        "SEM.ACQUIRE sem b LIMIT 3 PX 60000",
        "RWLOCK.ACQUIRE rw a READ PX 5000",
        "RWLOCK.ACQUIRE rw b READ PX 60000",
    ] {
        client.run(line).fence();
    }
    for key in ["mutex", "sem", "rw"] {
        assert_eq!(client.run(&format!("LOCK.EXEC {key} a SET x 1")), Reply::ok(), "{key}");
    }
    server.put_clocks(at(start + 5_002));
    // Its reply comes out of the next turn of the server.
    assert_in_step(&mut client);
    for key in ["mutex", "sem", "rw"] {
        assert_not_held(&client.run(&format!("LOCK.EXEC {key} a SET x 2")));
    }
    for key in ["sem", "rw"] {
        assert_eq!(client.run(&format!("LOCK.EXEC {key} b SET x 3")), Reply::ok(), "{key}");
    }
}

/// EXPIRE takes effect at once for all holders, also within the transaction.
#[test]
fn a_key_that_ends_sooner_ends_its_holders() {
    let server = Server::start();
    let mut client = server.client();
    client.run("SEM.ACQUIRE sem a LIMIT 3 PX 60000").fence();
    client.run("SEM.ACQUIRE sem b LIMIT 3 PX 60000").fence();
    let replies = multi(&mut client, &["LOCK.EXEC sem b SET x 1", "PEXPIRE sem -1", "LOCK.EXEC sem b SET x 2"]);
    assert_eq!(replies[0], Reply::ok());
    assert_not_held(&replies[2]);
}

/// As after LOCK.HELD: whoever was told that it holds keeps the lock, though the connection of its grant has gone.
#[test]
fn an_owner_that_has_run_a_command_keeps_a_grant_that_was_not_delivered() {
    let server = Server::start();
    let mut client = server.client();
    hold(&mut client, "k", "a");
    let [b, mut c] = line_up(&server, "k", ["b", "c"]);
    let replies =
        multi(&mut client, &["LOCK.RELEASE k a", "LOCK.EXEC k b SET x 1", &format!("CLIENT KILL ID {}", b.id)]);
    assert_eq!(replies[1], Reply::ok(), "{replies:?}");
    assert_in_step(&mut client);
    c.assert_silent_for(A_WHILE);
    assert_eq!(holders(&mut client, "k"), ["b"]);
}
