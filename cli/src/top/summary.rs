//! The lines above the table: the number of locks and waiters, the rates per second, and the problems.

use super::sample::{Rates, Sample, Server};
use crate::condition;
use crate::duration::human;

/// The totals of all servers. Percentiles are the maximum over the servers.
pub fn lines(sample: &Sample, rates: Option<Rates>) -> Vec<String> {
    let sum = |field: fn(&Server) -> u64| sample.sum(field);
    let worst = |field: fn(&Server) -> u64| human(sample.worst(field));
    vec![
        format!(
            "locks {} (mutex {}, reentrant {}, rw {}, semaphore {})   waiters {}   sessions {}",
            sum(Server::held),
            sum(|server| server.held_mutex),
            sum(|server| server.held_reentrant),
            sum(|server| server.held_rw),
            sum(|server| server.held_semaphore),
            sum(|server| server.waiters),
            sum(|server| server.sessions),
        ),
        match rates {
            Some(rates) => format!(
                "each second: hand-offs {}   grants {}   releases {}   leases expired {}   refused {}",
                rate(rates.hand_offs),
                rate(rates.grants),
                rate(rates.releases),
                rate(rates.leases_expired),
                rate(rates.not_granted),
            ),
            None => "each second: counting".to_string(),
        },
        format!(
            "waits p50 {} p99 {} max {}",
            worst(|server| server.wait_ms_p50),
            worst(|server| server.wait_ms_p99),
            worst(|server| server.wait_ms_max),
        ),
    ]
}

/// What limits the meaning of the table, to be read first.
pub fn warnings(sample: &Sample) -> Vec<String> {
    let mut warnings = Vec::new();
    for server in &sample.servers {
        let name = &server.server;
        warnings.extend(server.condition.sentences.iter().map(|sentence| format!("{name} {sentence}")));
        if server.eviction_risk > 0 {
            warnings.push(format!("{name} may evict locks: its maxmemory-policy should be noeviction"));
        }
    }
    warnings
}

/// The other nodes of a cluster, which are not queried.
pub fn other_nodes(sample: &Sample) -> Vec<String> {
    let alone = sample.servers.iter().filter(|server| server.is_one_of_many);
    alone.map(|server| condition::other_nodes(&server.server)).collect()
}

/// The servers by address, and the module's version.
pub fn servers(sample: &Sample) -> String {
    let mut versions: Vec<&str> = sample.servers.iter().map(|server| server.version.as_str()).collect();
    versions.sort();
    versions.dedup();
    let versions = versions.join(", ");
    match (sample.servers.as_slice(), sample.missing.len()) {
        ([server], 0) => format!("{}   module {versions}", server.server),
        (servers, 0) => format!("{} primaries   module {versions}", servers.len()),
        (servers, missing) => {
            format!("{} of {} primaries   module {versions}", servers.len(), servers.len() + missing)
        }
    }
}

/// A rate with significant digits: `0`, `0.3`, `17`, `1234`.
fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_string(),
        ..10.0 => format!("{per_second:.1}"),
        _ => format!("{per_second:.0}"),
    }
}
