//! Inspecting and force-releasing locks: LOCK.SCAN, LOCK.TOP, LOCK.BREAK, LOCK.HELP, and all of them together in an
//! incident. LOCK.INFO and LOCK.WAITERS are compared with the contract, field by field, in `model` and `lock_types`.

mod breaking;
mod help;
mod night;
mod scan;
mod top;

use crate::support::{Client, Reply};

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// The results of a full LOCK.SCAN iteration, each key once, sorted by name.
#[track_caller]
fn scan_all(client: &mut Client, options: &str) -> Vec<Reply> {
    let mut found: Vec<Reply> = Vec::new();
    let mut cursor = "0".to_string();
    loop {
        let reply = client.run(&format!("LOCK.SCAN {cursor} {options}"));
        let [next, locks] = reply.items() else { panic!("{reply:?}") };
        found.extend(locks.items().iter().cloned());
        cursor = next.text().to_string();
        if cursor == "0" {
            break;
        }
    }
    found.sort_by_key(|lock| lock.get("key").text().to_string());
    found.dedup_by_key(|lock| lock.get("key").text().to_string());
    found
}

/// The keys that a full LOCK.SCAN iteration returns.
#[track_caller]
fn scanned_keys(client: &mut Client, options: &str) -> Vec<String> {
    scan_all(client, options).iter().map(|lock| lock.get("key").text().to_string()).collect()
}
