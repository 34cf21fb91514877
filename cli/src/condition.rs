//! Conditions that the output must mention: a server grants nothing at the moment, takes no new requests, or is one
//! node of many. All are read from INFO, where the module reports the code of a refusal and the server most of the
//! details.

use std::collections::HashMap;

use redis::{cmd, Cmd};
use serde::Serialize;

use crate::connection::Node;
use crate::duration::human;
use crate::error::Error;
use crate::message::say;
use crate::reply::decode;
use crate::servers::Servers;

/// Whether a server grants locks.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    /// The error codes for requests for free locks; `PAUSED` if they get no reply.
    refusals: Vec<String>,
    held_back_ms: u64,
    /// Sentences for people; each is printed after the server's name.
    #[serde(skip)]
    pub sentences: Vec<String>,
}

impl Condition {
    pub fn of(info: &Info) -> Condition {
        let refused = info.text("lock_acquires_refused").filter(|code| *code != "no");
        // The grace period of a primary has not begun on a replica.
        let grace = (refused != Some("READONLY") && info.number("lock_grace_remaining_ms") > 0).then_some("GRACE");
        let refusals: Vec<&str> = refused.into_iter().chain(grace).collect();
        let mut sentences: Vec<String> = refusals.iter().map(|code| sentence(code, info)).collect();
        let held_back_ms = info.number("lock_held_back_ms");
        if held_back_ms > 0 {
            sentences.push(format!("has held back hand-offs for {}", human(held_back_ms)));
        }
        Condition { refusals: refusals.into_iter().map(String::from).collect(), held_back_ms, sentences }
    }

    /// None: this user may not run INFO.
    pub async fn at(node: &Node) -> Option<Condition> {
        let info = node.query(&Info::command()).await.and_then(decode::<String>).ok()?;
        Some(Condition::of(&Info::parse(&info)))
    }

    /// Prints the problems on stderr.
    pub fn report(&self, server: &str) {
        for sentence in &self.sentences {
            say(format_args!("{server} {sentence}"));
        }
    }
}

fn sentence(code: &str, info: &Info) -> String {
    let is_failing_over = || info.text("master_failover_state").is_some_and(|state| state != "no-failover");
    let why = match code {
        "READONLY" => return "is a replica, which has no waiters: ask its primary".to_string(),
        "OOM" => {
            let used = info.number("used_memory").saturating_sub(info.number("mem_not_counted_for_evict"));
            let (used, limit) = (bytes(used), bytes(info.number("maxmemory")));
            return format!("rejects new requests: OOM, it uses {used} and maxmemory is {limit}");
        }
        "GRACE" => {
            return format!("grants nothing for another {}: lock.grace", human(info.number("lock_grace_remaining_ms")));
        }
        "PAUSED" if is_failing_over() => "it is failing over to a replica (FAILOVER)".to_string(),
        "PAUSED" => match info.text("paused_reason").filter(|reason| *reason != "none") {
            // Only Valkey reports it.
            Some(reason) => {
                let left_ms = info.number("paused_timeout_milliseconds");
                return format!("grants nothing for another {}: it is paused ({reason})", human(left_ms));
            }
            None => "it is paused, for example by CLIENT PAUSE".to_string(),
        },
        "CLUSTERDOWN" => "CLUSTERDOWN, some slots have no primary".to_string(),
        "MISCONF" if info.is("aof_enabled", "1") && info.is("aof_last_write_status", "err") => {
            "MISCONF, it cannot write its append-only file (see its log)".to_string()
        }
        "MISCONF" => "MISCONF, its last save failed (see its log), and stop-writes-on-bgsave-error is yes".to_string(),
        "NOREPLICAS" => {
            let good = info.number("min_slaves_good_slaves");
            format!("NOREPLICAS, {good} good replicas, fewer than min-replicas-to-write")
        }
        code => format!("{code}, it refuses writes (see its log)"),
    };
    format!("grants nothing: {why}")
}

/// Mentions the other nodes if a single node of a cluster is queried, because its list looks like that of a server.
pub async fn report_other_nodes(servers: &Servers) {
    if servers.are_all() {
        return;
    }
    for server in servers.names() {
        // A user without permission for this still gets the list.
        let reply = servers.query_at(&server, cmd("INFO").arg("cluster")).await.and_then(decode::<String>);
        if reply.is_ok_and(|info| Info::parse(&info).is_of_a_node()) {
            say(format_args!("{}", other_nodes(&server)));
        }
    }
}

/// The sentence for people.
pub fn other_nodes(server: &str) -> String {
    format!("{server} is a node of a cluster: the locks of other nodes are not shown (use -c to query all primaries)")
}

/// The fields of INFO.
pub struct Info(HashMap<String, String>);

impl Info {
    pub fn parse(text: &str) -> Info {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Info(fields.map(|(name, value)| (name.to_string(), value.trim_end().to_string())).collect())
    }

    /// Requests all the sections that a [`Condition`] needs.
    fn command() -> Cmd {
        cmd("INFO").arg(&["lock", "replication", "cluster", "persistence", "memory", "clients"]).to_owned()
    }

    /// The INFO of all servers, with all the sections that a [`Condition`] needs.
    ///
    /// # Errors
    /// See [`Servers::query_all`].
    pub async fn of_all(servers: &mut Servers) -> Result<Vec<(String, Info)>, Error> {
        let replies = servers.query_all(&Info::command()).await?;
        replies.into_iter().map(|(server, reply)| Ok((server, Info::parse(&decode::<String>(reply)?)))).collect()
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// 0 if the server has no such field.
    fn number(&self, name: &str) -> u64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.text(name) == Some(value)
    }

    pub fn is_of_a_node(&self) -> bool {
        self.is("cluster_enabled", "1")
    }
}

/// `1.5MB`, like the human-readable fields of INFO.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut unit = 0;
    let mut shown = count as f64;
    while shown >= 1024.0 && unit + 1 < UNITS.len() {
        (shown, unit) = (shown / 1024.0, unit + 1);
    }
    format!("{shown:.1}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(info: &str) -> Vec<String> {
        Condition::of(&Info::parse(info)).sentences
    }

    #[test]
    fn misconf_names_the_unwritable_file() {
        let sentences_for =
            |aof: &str| sentences(&format!("lock_acquires_refused:MISCONF\naof_last_write_status:err\n{aof}"));
        assert!(sentences_for("aof_enabled:1")[0].contains("append-only file"));
        // Redis keeps the status of a file that is no longer in use.
        assert!(sentences_for("aof_enabled:0")[0].contains("its last save failed"));
    }

    #[test]
    fn a_pause_shows_what_the_server_reports() {
        let info = "lock_acquires_refused:PAUSED\r\npaused_reason:client_pause\r\npaused_timeout_milliseconds:1993\r\n";
        assert_eq!(sentences(info), ["grants nothing for another 1.9s: it is paused (client_pause)"]);
        assert_eq!(
            sentences("lock_acquires_refused:PAUSED"),
            ["grants nothing: it is paused, for example by CLIENT PAUSE"]
        );
        let info = "lock_acquires_refused:PAUSED\nmaster_failover_state:waiting-for-sync";
        assert_eq!(sentences(info), ["grants nothing: it is failing over to a replica (FAILOVER)"]);
    }

    #[test]
    fn an_unknown_code_of_a_newer_module_is_shown_verbatim() {
        assert_eq!(
            sentences("lock_acquires_refused:LATER"),
            ["grants nothing: LATER, it refuses writes (see its log)"]
        );
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        assert_eq!([0, 1023, 1536, 1 << 20].map(bytes), ["0.0B", "1023.0B", "1.5KB", "1.0MB"]);
    }
}
