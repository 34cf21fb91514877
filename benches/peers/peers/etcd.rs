//! etcd, through the crate etcd-client: `etcd`. Its Lock service is the concurrency recipe, run in the server: a key
//! under the lock's name, bound to the owner's lease, which waits until the key before it is deleted.
//!
//! Only names and addresses are configured: fsync, snapshots, heartbeat (100 ms) and election timeout (1 s) are
//! defaults. Each owner has a separate lease, because requests with one lease are one acquisition. Connections are
//! HTTP/2, and owners share them as the clients' documentation recommends.

use std::cell::Cell;
use std::fs;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use etcd_client::{ConnectOptions, LockOptions};
use tokio::task::spawn_local;

use crate::servers::{Location, Node, Servers};
use crate::task::{Link, Outcome, Owner, Task, Work};

pub fn start(location: &Location, count: u16) -> io::Result<Servers> {
    let host = location.host.address();
    let peer = |number: u16| format!("http://{host}:{}", 2380 + 10 * number);
    let all: Vec<String> = (0..count).map(|number| format!("n{number}={}", peer(number))).collect();
    let mut nodes = Vec::new();
    for number in 0..count {
        let dir = location.dir.join(format!("etcd-{number}"));
        // etcd requires a directory that only it can read.
        fs::create_dir_all(&dir)?;
        let endpoint = format!("{host}:{}", 2379 + 10 * number);
        let mut node = Node::new(dir.clone(), endpoint.clone(), "etcd");
        node.args = [
            ("--name", format!("n{number}")),
            ("--data-dir", dir.join("data").display().to_string()),
            ("--listen-client-urls", format!("http://{endpoint}")),
            ("--advertise-client-urls", format!("http://{endpoint}")),
            ("--listen-peer-urls", peer(number)),
            ("--initial-advertise-peer-urls", peer(number)),
            ("--initial-cluster", all.join(",")),
        ]
        .map(|(name, value)| format!("{name}={value}"))
        .into();
        node.start(location)?;
        nodes.push(node);
    }
    Ok(Servers::of(nodes))
}

/// Which node is the leader.
pub fn leader(location: &Location, servers: &Servers) -> io::Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = location.host.run(|| {
        runtime.block_on(async {
            for (number, node) in servers.nodes.iter().enumerate() {
                let mut client = etcd_client::Client::connect([&node.endpoint], None).await?;
                let status = client.status().await?;
                if status.header().is_some_and(|header| header.member_id() == status.leader()) {
                    return Outcome::Ok(number);
                }
            }
            Ok(0)
        })
    });
    found.map_err(|error| io::Error::other(error.to_string()))
}

pub struct Channel {
    client: etcd_client::Client,
    lease: Duration,
    /// Holds that are released at once are not renewed, which saves messages in etcd's favor.
    is_renewed: bool,
}

impl Link for Channel {
    type Owner = Leased;

    async fn connect(task: &Task, _: &str) -> Outcome<Channel> {
        let endpoints: Vec<&str> = task.endpoints.split(',').collect();
        let options = ConnectOptions::new().with_connect_timeout(Duration::from_secs(2));
        let client = etcd_client::Client::connect(endpoints, Some(options)).await?;
        Ok(Channel { client, lease: task.lease, is_renewed: matches!(task.work, Work::Hold | Work::Try) })
    }

    async fn owner(&self) -> Outcome<Leased> {
        let mut client = self.client.clone();
        let lease = client.lease_grant(self.lease.as_secs() as i64, None).await?.id();
        let is_lost = Rc::new(Cell::new(false));
        if self.is_renewed {
            spawn_local(renew(client.clone(), lease, self.lease / 3, is_lost.clone()));
        }
        Ok(Leased { client, lease, is_lost })
    }
}

async fn renew(mut client: etcd_client::Client, lease: i64, pause: Duration, is_lost: Rc<Cell<bool>>) {
    loop {
        let stream = client.lease_keep_alive(lease).await;
        if let Ok((mut keeper, mut replies)) = stream {
            while keeper.keep_alive().await.is_ok() {
                match replies.message().await {
                    Ok(Some(reply)) if reply.ttl() > 0 => tokio::time::sleep(pause).await,
                    Ok(Some(_)) => return is_lost.set(true),
                    _ => break,
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub struct Leased {
    client: etcd_client::Client,
    lease: i64,
    is_lost: Rc<Cell<bool>>,
}

impl Owner for Leased {
    /// The key that the service created.
    type Held = Vec<u8>;

    async fn acquire(&mut self, lock: u64) -> Outcome<(u64, Vec<u8>)> {
        let options = LockOptions::new().with_lease(self.lease);
        let reply = self.client.lock(format!("lock-{lock}"), Some(options)).await?;
        let revision = reply.header().map_or(0, |header| header.revision());
        Ok((revision.unsigned_abs(), reply.key().to_vec()))
    }

    /// The service has no try-lock in this version, so this waits for a second.
    async fn try_acquire(&mut self, lock: u64) -> Outcome<Option<(u64, Vec<u8>)>> {
        tokio::time::timeout(Duration::from_secs(1), self.acquire(lock)).await.ok().transpose()
    }

    async fn release(&mut self, key: Vec<u8>) -> Outcome<()> {
        self.client.unlock(key).await?;
        Ok(())
    }

    fn is_lost(&self, _: &Vec<u8>) -> bool {
        self.is_lost.get()
    }
}
