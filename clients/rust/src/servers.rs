//! Routes a key's commands to a server: the only one, the primary that the sentinels name, or the node that has the
//! key's slot.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard as StdMutexGuard};
use std::time::Duration;

use redis::{cmd, Cmd, ConnectionInfo, ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::node::{moved_to, Address, Node};

/// If a node has not replied within this time, the next one is asked in parallel.
const SOON: Duration = Duration::from_millis(100);

pub(crate) enum Servers {
    Single(Arc<Node>),
    Sentinel(Sentinel),
    Cluster(Cluster),
}

impl Servers {
    /// The slot of a key; outside a cluster all keys have the same one.
    pub(crate) fn slot_of(&self, key: &[u8]) -> Slot {
        match self {
            Servers::Single(_) | Servers::Sentinel(_) => 0,
            Servers::Cluster(_) => slot_of(key),
        }
    }

    pub(crate) async fn node_of(&self, slot: Slot, limit: Duration) -> RedisResult<Arc<Node>> {
        match self {
            Servers::Single(node) => Ok(node.clone()),
            Servers::Sentinel(sentinel) => sentinel.primary(limit).await,
            Servers::Cluster(cluster) => cluster.node_of(slot, limit).await,
        }
    }

    /// The servers that may have keys: a single one, or the primaries of a cluster.
    pub(crate) async fn primaries(&self, limit: Duration) -> RedisResult<Vec<Arc<Node>>> {
        match self {
            Servers::Single(node) => Ok(vec![node.clone()]),
            Servers::Sentinel(sentinel) => Ok(vec![sentinel.primary(limit).await?]),
            Servers::Cluster(cluster) => cluster.primaries(limit).await,
        }
    }

    /// The node at an address that another node of the cluster has named.
    pub(crate) fn named(&self, address: Address) -> RedisResult<Arc<Node>> {
        match self {
            Servers::Cluster(cluster) => cluster.map().node(&cluster.node, address),
            _ => Err(RedisError::from((ErrorKind::InvalidClientConfig, "the server is a cluster node"))),
        }
    }

    /// Makes the next command query the primaries first.
    pub(crate) fn look_again(&self) {
        match self {
            Servers::Single(_) => {}
            Servers::Sentinel(sentinel) => sentinel.found().is_stale = true,
            Servers::Cluster(cluster) => cluster.map().is_stale = true,
        }
    }

    /// Records that this node could not act as a primary, so the primary is looked up again before the next command.
    pub(crate) fn suspect(&self, node: &Arc<Node>) {
        match self {
            Servers::Single(_) => {}
            Servers::Sentinel(sentinel) => {
                let mut found = sentinel.found();
                if Arc::ptr_eq(&found.node, node) {
                    found.is_stale = true;
                }
            }
            Servers::Cluster(cluster) => cluster.map().is_stale = true,
        }
    }

    /// Records the new address of a slot, which a node reported.
    pub(crate) fn moved(&self, slot: u16, address: Address) {
        if let Servers::Cluster(cluster) = self {
            cluster.map().assign(slot, slot, address);
        }
    }
}

/// The primary that sentinels watch under a name.
pub(crate) struct Sentinel {
    sentinels: Vec<Arc<Node>>,
    name: String,
    node: ConnectionInfo,
    /// Never locked during I/O.
    found: StdMutex<Found>,
    /// Held by the caller that is asking the sentinels.
    asking: Mutex<()>,
}

struct Found {
    node: Arc<Node>,
    is_stale: bool,
}

impl Sentinel {
    /// `node`: how to connect to the primary; its address is not used.
    pub(crate) fn new(sentinels: Vec<ConnectionInfo>, name: String, node: ConnectionInfo) -> RedisResult<Sentinel> {
        if sentinels.is_empty() {
            return Err(RedisError::from((ErrorKind::EmptySentinelList, "at least one sentinel is required")));
        }
        let sentinels = connected(sentinels)?;
        let found = StdMutex::new(Found { node: Arc::new(Node::new(node.clone())?), is_stale: true });
        Ok(Sentinel { sentinels, name, node, found, asking: Mutex::default() })
    }

    async fn primary(&self, limit: Duration) -> RedisResult<Arc<Node>> {
        if self.found().is_stale {
            Box::pin(self.find(limit)).await?;
        }
        Ok(self.found().node.clone())
    }

    async fn find(&self, limit: Duration) -> RedisResult<()> {
        let _asking = only_one(&self.asking, limit).await?;
        // Another caller may have asked meanwhile.
        if self.found().is_stale {
            let address = self.ask(limit).await?;
            let mut found = self.found();
            if found.node.address().as_ref() != Some(&address) {
                found.node = Arc::new(Node::new(moved_to(&self.node, address))?);
            }
            found.is_stale = false;
        }
        Ok(())
    }

    async fn ask(&self, limit: Duration) -> RedisResult<Address> {
        let mut command = cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let known = |_: &Node, reply| redis::from_redis_value::<Option<Address>>(reply).ok().flatten();
        match first_answer(self.sentinels.clone(), command, limit, known).await {
            Ok(found) => found.ok_or_else(|| self.unknown()),
            Err(error) if error.detail().is_some_and(|words| words.contains("unknown command")) => {
                let asked: Vec<String> = self.sentinels.iter().map(|sentinel| sentinel.name()).collect();
                let words = format!("{} is a server, not a Sentinel (usually on port 26379)", asked.join(", "));
                // An error of this kind, for which asking again cannot help.
                Err(io::Error::new(io::ErrorKind::InvalidData, words).into())
            }
            Err(error) => Err(error),
        }
    }

    fn found(&self) -> StdMutexGuard<'_, Found> {
        self.found.lock().expect(UNPOISONED)
    }

    fn unknown(&self) -> RedisError {
        RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "sentinel knows no such master", self.name.clone()))
    }
}

/// The nodes of a cluster, and the map of slots to nodes.
pub(crate) struct Cluster {
    seeds: Vec<Arc<Node>>,
    node: ConnectionInfo,
    /// Never locked during I/O, so that a node that does not reply does not delay callers of other nodes.
    map: StdMutex<Map>,
    /// Held by the caller that is asking for the map.
    asking: Mutex<()>,
}

/// A number below [`SLOTS`].
pub(crate) type Slot = u16;

const SLOTS: usize = 16_384;

struct Map {
    is_stale: bool,
    nodes: HashMap<Address, Arc<Node>>,
    /// The node of each slot, as an index into `addresses`.
    owners: Vec<Option<u16>>,
    addresses: Vec<Address>,
}

impl Cluster {
    /// `seeds`: one or more nodes of the cluster. The first one's credentials and TLS apply to all.
    pub(crate) fn new(seeds: Vec<ConnectionInfo>) -> RedisResult<Cluster> {
        let Some(node) = seeds.first().cloned() else {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "at least one node is required")));
        };
        let seeds = connected(seeds)?;
        let map = Map { is_stale: true, nodes: HashMap::new(), owners: vec![None; SLOTS], addresses: Vec::new() };
        Ok(Cluster { seeds, node, map: StdMutex::new(map), asking: Mutex::default() })
    }

    async fn node_of(&self, slot: Slot, limit: Duration) -> RedisResult<Arc<Node>> {
        let mut map = self.fresh_map(limit).await?;
        let Some(owner) = map.owners[usize::from(slot)] else {
            map.is_stale = true;
            let error = io::Error::new(io::ErrorKind::NotConnected, "no node of the cluster has the key's slot");
            return Err(error.into());
        };
        let address = map.addresses[usize::from(owner)].clone();
        map.node(&self.node, address)
    }

    async fn primaries(&self, limit: Duration) -> RedisResult<Vec<Arc<Node>>> {
        let mut map = self.fresh_map(limit).await?;
        let mut owners: Vec<u16> = map.owners.iter().flatten().copied().collect();
        owners.sort_unstable();
        owners.dedup();
        let addresses: Vec<Address> = owners.iter().map(|owner| map.addresses[usize::from(*owner)].clone()).collect();
        addresses.into_iter().map(|address| map.node(&self.node, address)).collect()
    }

    /// The map, refreshed first if it is stale.
    async fn fresh_map(&self, limit: Duration) -> RedisResult<StdMutexGuard<'_, Map>> {
        if self.map().is_stale {
            Box::pin(self.refresh(limit)).await?;
        }
        Ok(self.map())
    }

    /// Asks the known nodes and the seeds until one replies.
    async fn refresh(&self, limit: Duration) -> RedisResult<()> {
        let _asking = only_one(&self.asking, limit).await?;
        if !self.map().is_stale {
            // Another caller has refreshed it meanwhile.
            return Ok(());
        }
        let known: Vec<Arc<Node>> = self.map().nodes.values().chain(&self.seeds).cloned().collect();
        let mut command = cmd("CLUSTER");
        command.arg("SLOTS");
        let ranges = |node: &Node, reply| match reply {
            Value::Array(ranges) if !ranges.is_empty() => {
                let host = node.address().map(|(host, _)| host).unwrap_or_default();
                Some(ranges.iter().filter_map(|range| slot_range(range, &host)).collect::<Vec<_>>())
            }
            _ => None,
        };
        let Some(ranges) = first_answer(known, command, limit, ranges).await? else {
            let error = io::Error::new(io::ErrorKind::NotConnected, "no node of the cluster has slot information");
            return Err(error.into());
        };
        let mut map = self.map();
        map.owners.fill(None);
        map.addresses.clear();
        for (first, last, address) in ranges {
            map.assign(first, last, address);
        }
        let Map { nodes, addresses, .. } = &mut *map;
        nodes.retain(|address, _| addresses.contains(address));
        map.is_stale = false;
        Ok(())
    }

    fn map(&self) -> StdMutexGuard<'_, Map> {
        self.map.lock().expect(UNPOISONED)
    }
}

impl Map {
    fn assign(&mut self, first: u16, last: u16, address: Address) {
        let place = self.addresses.iter().position(|known| *known == address).unwrap_or_else(|| {
            self.addresses.push(address);
            self.addresses.len() - 1
        });
        let slots = usize::from(first)..=usize::from(last).min(SLOTS - 1);
        if let (Some(owners), Ok(place)) = (self.owners.get_mut(slots), u16::try_from(place)) {
            owners.fill(Some(place));
        }
    }

    fn node(&mut self, template: &ConnectionInfo, address: Address) -> RedisResult<Arc<Node>> {
        if let Some(node) = self.nodes.get(&address) {
            return Ok(node.clone());
        }
        let node = Arc::new(Node::new(moved_to(template, address.clone()))?);
        self.nodes.insert(address, node.clone());
        Ok(node)
    }
}

const UNPOISONED: &str = "nothing panics while it is locked";

fn connected(servers: Vec<ConnectionInfo>) -> RedisResult<Vec<Arc<Node>>> {
    servers.into_iter().map(|info| Ok(Arc::new(Node::new(info)?))).collect()
}

/// Waits until no other caller is asking. The limit includes this, because the other caller's node may not reply.
async fn only_one(asking: &Mutex<()>, limit: Duration) -> RedisResult<tokio::sync::MutexGuard<'_, ()>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no server reported in time which one has the key").into();
    tokio::time::timeout(limit, asking.lock()).await.map_err(late)
}

/// The first useful reply of these servers; None if there is none. A silent server delays the others for [`SOON`].
async fn first_answer<T>(
    servers: Vec<Arc<Node>>,
    command: Cmd,
    limit: Duration,
    useful: impl Fn(&Node, Value) -> Option<T>,
) -> RedisResult<Option<T>> {
    let mut failed = None;
    let mut servers = servers.into_iter();
    let mut asked = JoinSet::new();
    loop {
        let next = servers.next();
        let soon = if next.is_some() { SOON } else { Duration::MAX };
        if let Some(server) = next {
            let command = command.clone();
            asked.spawn(async move { ask(&server, &command, limit).await.map(|reply| (server, reply)) });
        }
        match tokio::time::timeout(soon, asked.join_next()).await {
            Ok(Some(Ok(Ok((server, reply))))) => {
                if let Some(answer) = useful(&server, reply) {
                    return Ok(Some(answer));
                }
            }
            Ok(Some(Ok(Err(error)))) => failed = Some(error),
            Ok(Some(Err(aborted))) => failed = Some(io::Error::other(aborted).into()),
            Ok(None) => return failed.map_or(Ok(None), Err),
            Err(_silent_so_far) => {}
        }
    }
}

/// Connects and asks within `limit`.
async fn ask(node: &Node, command: &Cmd, limit: Duration) -> RedisResult<Value> {
    let began = Instant::now();
    let (generation, mut connection) = node.shared(limit).await?;
    let left = limit.saturating_sub(began.elapsed());
    let asked = tokio::time::timeout(left, command.query_async(&mut connection)).await;
    let reply = asked.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
    if reply.is_err() {
        node.forget(generation);
    }
    reply
}

/// One range of CLUSTER SLOTS: the first and the last slot, and the address of their primary. A node that does not know
/// its own host sends none; `asked_host`, to which CLUSTER SLOTS was sent, replaces it.
fn slot_range(range: &Value, asked_host: &str) -> Option<(u16, u16, Address)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice() else { return None };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = redis::from_redis_value_ref::<Option<String>>(host).ok()?.unwrap_or_default();
    let host = if host.is_empty() || host == "?" { asked_host.to_string() } else { host };
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, (host, u16::try_from(*port).ok()?)))
}

/// `host:port` of a redirection. An empty host stands for that of the node that replied.
pub(crate) fn redirected(target: &str, asked_host: &str) -> Option<Address> {
    let (host, port) = target.rsplit_once(':')?;
    let host = if host.is_empty() || host == "?" { asked_host } else { host };
    Some((host.to_string(), port.parse().ok()?))
}

/// The slot of a key, by its hash tag if it has one.
fn slot_of(key: &[u8]) -> Slot {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_is_that_of_the_hash_tag() {
        // Replies of a real CLUSTER KEYSLOT.
        let known =
            [("foo", 12_182), ("k", 7629), ("{k}1", 7629), ("a{}b", 13_694), ("a{k", 9525), ("x{k}{foo}", 7629)];
        for (key, slot) in known {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn a_redirection_may_leave_out_the_host() {
        assert_eq!(redirected("127.0.0.1:7000", "h"), Some(("127.0.0.1".into(), 7000)));
        assert_eq!(redirected(":7000", "h"), Some(("h".into(), 7000)));
        assert_eq!(redirected("?:7000", "h"), Some(("h".into(), 7000)));
        assert_eq!(redirected("::1:7000", "h"), Some(("::1".into(), 7000)));
        assert_eq!(redirected("nowhere", "h"), None);
    }
}
