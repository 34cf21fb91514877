//! A token may be any bytes, and an expired lease holds nothing even if the timer does not run.

use super::*;
use crate::support::{Clocks, Server};
use std::time::Duration;

#[test]
fn a_token_may_be_any_bytes() {
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

/// The timer with which the module ends leases does not run here.
#[test]
fn an_expired_lease_holds_nothing_separately_for_each_holder() {
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
    // Its reply comes in the next event-loop iteration.
    assert_in_step(&mut client);
    for key in ["mutex", "sem", "rw"] {
        assert_not_held(&client.run(&format!("LOCK.EXEC {key} a SET x 2")));
    }
    for key in ["sem", "rw"] {
        assert_eq!(client.run(&format!("LOCK.EXEC {key} b SET x 3")), Reply::ok(), "{key}");
    }
}
