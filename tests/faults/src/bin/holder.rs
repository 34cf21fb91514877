//! A client in a separate process, for scenarios that stop it: `holder <port> <key> <owner> <lease in ms>` acquires a
//! mutex, waiting indefinitely, prints `fence <n>`, and renews the lease every third of it. Each line on stdin is a
//! command, as typed into redis-cli; the reply is printed. It ends with stdin.
//!
//! When stopped and continued, it carries on where it was, believing that it holds the lock: it sends what was on stdin
//! before the next renewal.

use std::env;
use std::io::stdin;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use support::Client;

fn main() {
    let mut args = env::args().skip(1);
    let mut next = || args.next().expect("usage: holder <port> <key> <owner> <lease in ms>");
    let (port, key, owner, lease) = (next().parse().expect("a port"), next(), next(), next());
    let (lines, commands) = channel();
    thread::spawn(move || {
        for line in stdin().lines() {
            let sent = lines.send(line.expect("stdin is text"));
            sent.expect("the commands are read until stdin ends");
        }
    });

    let mut client = Client::connect(port);
    client.send(&["LOCK.ACQUIRE", &key, &owner, "PX", &lease, "BLOCK", "0"]);
    let grant = client.try_read(Duration::MAX / 4).expect("the lock is granted in the end");
    println!("fence {}", grant.fence());
    let third = Duration::from_millis(lease.parse().expect("a lease in ms")) / 3;
    loop {
        match commands.recv_timeout(third) {
            Ok(line) => println!("{:?}", client.run(&line)),
            Err(RecvTimeoutError::Timeout) => {
                client.cmd(&["LOCK.RENEW", &key, &owner, "PX", &lease]);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
