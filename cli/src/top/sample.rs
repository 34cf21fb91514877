//! One sample of the servers, and the rates between two samples. The cost does not grow with the number of holders:
//! LOCK.TOP visits only the queues, and INFO's counters are maintained as events happen.

use std::time::{Duration, Instant, SystemTime};

use redis::cmd;
use serde::Serialize;

use crate::condition::{Condition, Info};
use crate::error::Error;
use crate::reply::Fields;
use crate::servers::{Missing, Servers};
use crate::text::Text;

pub struct Sample {
    pub taken: Instant,
    pub time: SystemTime,
    /// How long the servers took to reply.
    pub took: Duration,
    pub servers: Vec<Server>,
    /// The servers that did not reply.
    pub missing: Vec<Missing>,
    /// In the order of LOCK.TOP: most waiters first, then the longest wait.
    pub locks: Vec<Lock>,
}

/// The fields of LOCK.TOP, and the lock's server. Times are in milliseconds; `held` is -1 while the lock is free.
#[derive(Clone, Serialize)]
pub struct Lock {
    pub server: String,
    pub db: u64,
    pub key: Text,
    pub kind: String,
    pub waiters: u64,
    pub longest: u64,
    pub holder: Option<Text>,
    pub held: i64,
}

/// The fields of INFO without the prefix `lock_`.
#[derive(Clone, Serialize)]
pub struct Server {
    pub server: String,
    pub version: String,
    /// `master`, or `slave`, whose LOCK.TOP is empty.
    pub role: String,
    pub held_mutex: u64,
    pub held_reentrant: u64,
    pub held_rw: u64,
    pub held_semaphore: u64,
    pub waiters: u64,
    pub kept_places: u64,
    pub sessions: u64,
    pub grants_immediate: u64,
    pub grants_after_wait: u64,
    pub not_granted: u64,
    pub releases: u64,
    pub leases_expired: u64,
    pub deadlocks: u64,
    pub wait_ms_p50: u64,
    pub wait_ms_p99: u64,
    pub wait_ms_max: u64,
    pub longest_turn_us: u64,
    pub eviction_risk: u64,
    pub grace_remaining_ms: u64,
    #[serde(flatten)]
    pub condition: Condition,
    /// True if it is a node of a cluster whose other nodes are not queried.
    #[serde(skip)]
    pub is_one_of_many: bool,
}

/// Events per second, summed over all servers.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Rates {
    pub hand_offs: f64,
    pub grants: f64,
    pub releases: f64,
    pub leases_expired: f64,
    pub not_granted: f64,
}

impl Sample {
    /// The `count` locks with the most waiters of each server, and its counters.
    ///
    /// # Errors
    /// If no server replies.
    pub async fn take(servers: &mut Servers, count: u16) -> Result<Sample, Error> {
        let (started, time) = (Instant::now(), SystemTime::now());
        let mut locks = Vec::new();
        for (server, reply) in servers.query_all(cmd("LOCK.TOP").arg("COUNT").arg(count)).await? {
            for fields in Fields::all_of(reply)? {
                locks.push(Lock::decode(server.clone(), fields)?);
            }
        }
        let infos = Info::of_all(servers).await?;
        let taken = Instant::now();
        let mut sampled = Vec::new();
        for (server, info) in &infos {
            let is_one_of_many = info.is_of_a_node() && !servers.are_all();
            sampled.push(Server::of(server, info, is_one_of_many)?);
        }
        // Drops the locks of a server that did not reply the second time.
        locks.retain(|lock| infos.iter().any(|(server, _)| *server == lock.server));
        locks.sort_by_key(|lock| std::cmp::Reverse((lock.waiters, lock.longest)));
        locks.truncate(count.into());
        sampled.sort_by(|a, b| a.server.cmp(&b.server));
        let missing = servers.missing().to_vec();
        Ok(Sample { taken, time, took: taken - started, servers: sampled, missing, locks })
    }

    /// The rates since an earlier sample, for the servers that ran the whole time: if a counter has decreased, the
    /// server was restarted.
    pub fn rates_since(&self, before: &Sample) -> Rates {
        let seconds = (self.taken - before.taken).as_secs_f64();
        let mut rates = Rates::default();
        for now in &self.servers {
            let Some(then) = before.servers.iter().find(|then| then.server == now.server) else {
                continue;
            };
            let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            let hand_offs = per_second(now.grants_after_wait, then.grants_after_wait);
            rates.hand_offs += hand_offs;
            rates.grants += hand_offs + per_second(now.grants_immediate, then.grants_immediate);
            rates.releases += per_second(now.releases, then.releases);
            rates.leases_expired += per_second(now.leases_expired, then.leases_expired);
            rates.not_granted += per_second(now.not_granted, then.not_granted);
        }
        rates
    }

    /// True if one of the servers is a replica.
    pub fn has_replica(&self) -> bool {
        self.servers.iter().any(Server::is_replica)
    }

    /// The sum over all servers.
    pub fn sum(&self, field: impl Fn(&Server) -> u64) -> u64 {
        self.servers.iter().map(field).sum()
    }

    /// The largest value of all servers.
    pub fn worst(&self, field: impl Fn(&Server) -> u64) -> u64 {
        self.servers.iter().map(field).max().unwrap_or_default()
    }
}

impl Lock {
    pub fn decode(server: String, mut fields: Fields) -> Result<Lock, Error> {
        Ok(Lock {
            server,
            db: fields.count("db")?,
            key: fields.text("key")?,
            kind: fields.string("kind")?,
            waiters: fields.count("waiters")?,
            longest: fields.count("longest")?,
            holder: fields.optional_text("holder")?,
            held: fields.int("held")?,
        })
    }
}

impl Server {
    fn of(server: &str, info: &Info, is_one_of_many: bool) -> Result<Server, Error> {
        let text = |name: &str| {
            let missing = || Error::Reply(format!("INFO of {server} has no field {name}"));
            info.text(name).map(str::to_string).ok_or_else(missing)
        };
        let count = |name: &str| {
            let value = text(&format!("lock_{name}"))?;
            value.parse::<u64>().map_err(|_| Error::Reply(format!("INFO of {server}: lock_{name}:{value}")))
        };
        Ok(Server {
            version: text("lock_version")?,
            role: text("role")?,
            held_mutex: count("held_mutex")?,
            held_reentrant: count("held_reentrant")?,
            held_rw: count("held_rw")?,
            held_semaphore: count("held_semaphore")?,
            waiters: count("waiters")?,
            kept_places: count("kept_places")?,
            sessions: count("sessions")?,
            grants_immediate: count("grants_immediate")?,
            grants_after_wait: count("grants_after_wait")?,
            not_granted: count("not_granted")?,
            releases: count("releases")?,
            leases_expired: count("leases_expired")?,
            deadlocks: count("deadlocks")?,
            wait_ms_p50: count("wait_ms_p50")?,
            wait_ms_p99: count("wait_ms_p99")?,
            wait_ms_max: count("wait_ms_max")?,
            longest_turn_us: count("longest_turn_us")?,
            eviction_risk: count("eviction_risk")?,
            grace_remaining_ms: count("grace_remaining_ms")?,
            condition: Condition::of(info),
            is_one_of_many,
            server: server.to_string(),
        })
    }

    pub fn is_replica(&self) -> bool {
        self.role != "master"
    }

    pub fn held(&self) -> u64 {
        self.held_mutex + self.held_reentrant + self.held_rw + self.held_semaphore
    }
}
