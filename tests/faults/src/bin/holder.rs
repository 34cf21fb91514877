//! A client process of its own, for scenarios that stop it: `holder <port> <key> <owner> <lease in ms>` takes a mutex,
//! waits for it as long as it takes, prints `fence <n>`, and renews the lease after each third of it. Each line on
//! stdin is a command, as redis-cli takes it; the reply is printed. It ends with stdin.
//!
//! Stopped and continued it carries on where it was, in the belief that it holds the lock: what was on stdin comes
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
