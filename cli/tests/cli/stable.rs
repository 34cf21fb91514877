//! The stable interface of the command line since 1.0.0 (docs/stability.md): the options and `--json` fields of 1.0.0,
//! written out here rather than read from the program. Lines may be added. Changing or removing one breaks scripts, and
//! requires a 2.0.0.

use std::collections::BTreeSet;

use serde_json::Value;
use support::Server;

use crate::tool::{at, redis_lock};

/// Each subcommand with its options, and their values if they take one.
const OPTIONS: [(&str, &str); 11] = [
    (
        "run",
        "--wait <TIME> | --no-wait | --lease <TIME> | --session | --shared | --exclusive | --limit <N> | --slot \
         | --at-least <TIME> | --once | --kill-after <TIME> | -v, --verbose | --lost-exit-code <STATUS> \
         | --conflict-exit-code <STATUS>",
    ),
    ("top", "--count <N> | -i, --interval <TIME> | --once | --json"),
    ("graph", "--locks <N> | --waiters <N> | --dot | --json"),
    ("ls", "--json"),
    ("info", "--count <N> | --json"),
    ("waiters", "--count <N> | --json"),
    ("break", "--owner <OWNER> | --json"),
    ("cancel", "--json"),
    ("log", "--count <N> | --json"),
    ("adopt", "--json"),
    ("generate", ""),
];
/// The options of all subcommands.
const CONNECTION: &str = "-u <URI> | -h <HOST> | -p <PORT> | -s <SOCKET> | -a, --pass <PASSWORD> | --user <NAME> \
                          | -n <DB> | -c | --sentinel <HOST:PORT,…> | --master <NAME> | --tls | --cacert <FILE> \
                          | --cert <FILE> | --key <FILE> | --insecure | --help";
/// The fields of each server in `top` and `graph`.
const SERVER: &str =
    "server version role held_mutex held_reentrant held_rw held_semaphore waiters kept_places sessions \
                      grants_immediate grants_after_wait not_granted releases leases_expired deadlocks wait_ms_p50 \
                      wait_ms_p99 wait_ms_max longest_turn_us eviction_risk grace_remaining_ms";
const HOLDER: &str = "owner mode holds fence ttl lease age session slot";
const PATTERN: &str = "server pattern mode keys grant refuse renew takeover release release_without_token wait \
                       protected noperm wrongtype no_lease values_empty values_long values_time values_counter clients \
                       users nearest fits reason";
const WAITER: &str = "owner mode permits client addr waited remaining";

#[test]
fn subcommands_keep_their_options() {
    for (subcommand, options) in OPTIONS {
        let help = redis_lock(&format!("{subcommand} --help"));
        let offered: BTreeSet<&str> = help.text().lines().filter_map(option).collect();
        for option in options.split('|').chain(CONNECTION.split('|')).map(str::trim).filter(|option| !option.is_empty())
        {
            assert!(offered.contains(option), "{subcommand} has no {option}: {offered:?}");
        }
    }
}

/// `-i, --interval <TIME>` of the line of help that describes it.
fn option(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let is_first = text.starts_with('-') && line.len() - text.len() <= 6;
    is_first.then(|| text.split("  ").next().unwrap_or(text).trim_end())
}

#[test]
fn json_keeps_its_fields() {
    let server = Server::start();
    server.client().run("SEM.ACQUIRE k holder LIMIT 1 SLOT PX 3600000").fence();
    let mut waiter = server.client();
    waiter.send_line("SEM.ACQUIRE k waiter LIMIT 1 BLOCK 0");
    server.wait_blocked(1);
    let lock = "key kind limit fence ttl holders waiters holding";
    let printed = |line: &str| at(&server, &format!("{line} --json")).json();

    has("ls", &printed("ls")[0], "server key kind owner holders ttl waiters");
    let info = printed("info k");
    has("info", &info, lock);
    has("a holder of info", &info["holders"][0], HOLDER);
    has("waiters", &printed("waiters k")[0], WAITER);
    let graph = printed("graph");
    has("graph", &graph, "time servers locks cycles left_out");
    has("a server of graph", &graph["servers"][0], SERVER);
    has("a lock of graph", &graph["locks"][0], &format!("server db queue {lock}"));
    has("a holder of graph", &graph["locks"][0]["holders"][0], HOLDER);
    has("a waiter of graph", &graph["locks"][0]["queue"][0], WAITER);
    has("what graph left out", &graph["left_out"], "locks unreadable holders waiters");
    let top = printed("top --once --interval 100ms");
    has("top", &top, "time servers per_second locks");
    has("a server of top", &top["servers"][0], SERVER);
    has("the rates of top", &top["per_second"], "hand_offs grants releases leases_expired not_granted");
    has("a lock of top", &top["locks"][0], "server db key kind waiters longest holder held");
    has("cancel", &printed("cancel k waiter"), "key token cancelled");
    has("break", &printed("break k"), "key broken");
    has("log", &printed("log")[0], "server id time event key db owner ms waiters client addr");
    server.client().run("CONFIG SET lock.adopt-observe lock:*");
    has("adopt", &printed("adopt")[0], PATTERN);
}

fn has(what: &str, object: &Value, fields: &str) {
    for field in fields.split(' ').filter(|field| !field.is_empty()) {
        assert!(object.get(field).is_some(), "{what} has no field {field}: {object}");
    }
}
