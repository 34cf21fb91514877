//! An incident at night: the operator has redis-cli and docs/inspecting.md, and knows none of the keys.

use crate::support::waiting::*;
use crate::support::{until, Reply};

#[test]
fn the_most_contended_lock_is_found_with_its_holder_and_next_waiter_and_released() {
    let server = quiet().start();
    let mut client = server.client();
    // The situation: many locks, a few with waiters, one of them held by a session that hangs.
    let mut hanging = server.client();
    hanging.run("SELECT 2");
    hanging.run("LOCK.ACQUIRE orders:7 billing-1 PX 30000 SESSION").fence();
    let address = hanging.address();
    for number in 0..50 {
        hold(&mut client, &format!("quiet:{number}"), "someone");
    }
    hold(&mut client, "busy", "someone");
    let _busy = line_up(&server, "busy", ["x"]);
    let mut waiting = Vec::new();
    for owner in ["billing-2", "billing-3", "billing-4"] {
        let mut client = server.client();
        client.run("SELECT 2");
        waiting.push(Waiter::park_over(client, &server, &format!("LOCK.ACQUIRE orders:7 {owner} {LONG} BLOCK 0")));
    }
    until("they have waited for a while", || client.run("LOCK.TOP").items()[0].get("longest").int() >= 20);

    let mut night = server.client();
    // Which commands exist?
    let help = night.run("LOCK.HELP");
    for command in ["LOCK.TOP", "LOCK.INFO", "LOCK.WAITERS", "LOCK.BREAK", "LOCK.SCAN"] {
        assert!(help.items().iter().any(|line| matches!(line, Reply::Status(line) if line.starts_with(command))));
    }
    // Which lock has the most waiters, which owner holds it, and for how long?
    let top = night.run("LOCK.TOP COUNT 1");
    let [worst] = top.items() else { panic!("{top:?}") };
    assert_eq!((worst.get("db").int(), worst.get("key").text(), worst.get("waiters").int()), (2, "orders:7", 3));
    assert_eq!(worst.get("holder").text(), "billing-1");
    assert!(worst.get("held").int() >= worst.get("longest").int());
    // From which address?
    night.run(&format!("SELECT {}", worst.get("db").int()));
    let info = night.cmd(&["LOCK.INFO", worst.get("key").text()]);
    let holder = &info.get("holders").items()[0];
    assert_eq!(holder.get("owner").text(), "billing-1");
    assert!(holder.get("age").int() >= worst.get("held").int());
    let session = holder.get("session").int();
    let list = night.run(&format!("CLIENT LIST ID {session}"));
    assert_eq!(client_field(list.text().trim_end(), "addr"), Some(address.as_str()));
    // Which waiter is next, from which address, and how long has it waited?
    let next = night.run("LOCK.WAITERS orders:7 COUNT 1");
    let [next] = next.items() else { panic!("{next:?}") };
    assert_eq!(next.get("owner").text(), "billing-2");
    assert_eq!(next.get("client").int(), waiting[0].id);
    assert_eq!(next.get("addr").text(), waiting[0].client.address());
    assert!(next.get("waited").int() >= 20);
    // How is the lock released?
    assert_eq!(night.run("LOCK.BREAK orders:7"), Reply::Int(1));
    let fence = waiting[0].granted("billing-2");
    assert_eq!(night.run("LOCK.INFO orders:7").get("fence"), &Reply::Int(fence));
    // The client that hung finds out with its next command.
    assert_eq!(hanging.run("LOCK.RENEW orders:7 billing-1"), Reply::Int(0));
    // Or kill the connection that hangs, which releases all holds bound to it.
    let mut bound = server.client();
    bound.run("SELECT 2");
    night.run("LOCK.BREAK orders:7");
    waiting[1].granted("billing-3");
    let waits = Waiter::park_over(bound, &server, &format!("LOCK.ACQUIRE orders:7 billing-5 {LONG} SESSION BLOCK 0"));
    night.run("LOCK.BREAK orders:7");
    waiting[2].granted("billing-4");
    night.run("LOCK.BREAK orders:7");
    until("the session holds it", || {
        night.run("LOCK.INFO orders:7").get("holders").items()[0].get("session").int() > 0
    });
    night.run(&format!("CLIENT KILL ID {}", waits.id));
    until("it is free", || night.run("LOCK.INFO orders:7").is_nil());
    // Which locks exist at all?
    night.run("SELECT 0");
    assert_eq!(super::scanned_keys(&mut night, "MATCH quiet:*").len(), 50);
}
