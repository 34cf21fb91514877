//! redis-lock, through its Rust client, on the installed redis-server: `redis-lock[:session|:wait|:cluster]`.
//!
//! redis.conf has its defaults, except for the settings in the row's name (save points off, appendonly, appendfsync),
//! those for the network (bind, protected-mode), and the module. Holds that are released at once are not renewed;
//! longer ones are renewed every third of the lease, by the client or, if the row says SESSION, by the server.

use std::fs;
use std::io;
use std::time::Duration;

use redis_lock_client::Guard;

use crate::servers::{Location, Memory, Node, Servers};
use crate::task::{Link, Outcome, Owner, Task};

const PORT: u16 = 6379;

/// One server with these `redis.conf` lines, and that many replicas.
pub fn start(location: &Location, lines: &str, replicas: u16) -> io::Result<Servers> {
    let mut nodes = vec![server(location, PORT, lines)?];
    for number in 1..=replicas {
        let primary = format!("{lines}\nreplicaof {} {PORT}", location.host.address());
        nodes.push(server(location, PORT + number, &primary)?);
    }
    Ok(Servers::of(nodes))
}

/// A cluster with that many primaries, without replicas.
pub fn cluster(location: &Location, primaries: u16) -> io::Result<Servers> {
    let lines = "save \"\"\ncluster-enabled yes";
    let nodes =
        (0..primaries).map(|number| server(location, PORT + number, lines)).collect::<io::Result<Vec<Node>>>()?;
    let servers = Servers::of(nodes);
    for node in &servers.nodes {
        location.wait_for(&node.endpoint)?;
    }
    let endpoints: Vec<&str> = servers.nodes.iter().map(|node| node.endpoint.as_str()).collect();
    match endpoints[..] {
        // redis-cli creates no cluster with fewer than three.
        [one] => {
            let (host, port) = one.split_once(':').unwrap_or((one, "6379"));
            location.run("redis-cli", &["-h", host, "-p", port, "CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?
        }
        _ => location.run("redis-cli", &[&["--cluster", "create"], &endpoints[..], &["--cluster-yes"]].concat())?,
    };
    Ok(servers)
}

/// Promotes the replica, as Sentinel would.
pub fn promote(location: &Location) -> io::Result<()> {
    let port = (PORT + 1).to_string();
    let host = location.host.address().to_string();
    location.run("redis-cli", &["-h", &host, "-p", &port, "REPLICAOF", "NO", "ONE"])?;
    Ok(())
}

pub fn server(location: &Location, port: u16, lines: &str) -> io::Result<Node> {
    let dir = location.dir.join(format!("redis-{port}"));
    fs::create_dir_all(&dir)?;
    let module = support::built_module().ok_or_else(|| io::Error::other("REDIS_LOCK_MODULE names no module"))?;
    let config = format!(
        "port {port}\nbind 0.0.0.0\nprotected-mode no\ndir {}\nloadmodule {}\n{lines}\n",
        dir.display(),
        std::path::absolute(module)?.display()
    );
    fs::write(dir.join("redis.conf"), config)?;
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
    let mut node = Node::new(dir.clone(), format!("{}:{port}", location.host.address()), program);
    node.args = vec![dir.join("redis.conf").display().to_string()];
    node.memory = Memory::Redis;
    node.start(location)?;
    Ok(node)
}

pub struct Client {
    client: redis_lock_client::Client,
    kind: String,
    lease: Duration,
}

impl Link for Client {
    type Owner = LockOwner;

    async fn connect(task: &Task, kind: &str) -> Outcome<Client> {
        let urls: Vec<String> = task.endpoints.split(',').map(|node| format!("redis://{node}/")).collect();
        let client = match kind {
            "redis-lock:cluster" => redis_lock_client::Client::cluster(urls.iter().map(String::as_str))?,
            _ => redis_lock_client::Client::open(urls[0].as_str())?,
        };
        Ok(Client { client, kind: kind.into(), lease: task.lease })
    }

    async fn owner(&self) -> Outcome<LockOwner> {
        Ok(LockOwner { client: self.client.clone(), kind: self.kind.clone(), lease: self.lease })
    }
}

pub struct LockOwner {
    client: redis_lock_client::Client,
    kind: String,
    lease: Duration,
}

impl LockOwner {
    fn lock(&self, lock: u64) -> redis_lock_client::Lock {
        let lock = self.client.mutex(format!("lock-{lock}")).lease(self.lease);
        match self.kind.as_str() {
            "redis-lock:session" => lock.session(),
            "redis-lock:wait" => lock.replicas(1, Duration::from_secs(1)),
            "redis-lock:renewed" => lock.auto_renew(),
            _ => lock,
        }
    }
}

impl Owner for LockOwner {
    type Held = Guard;

    async fn acquire(&mut self, lock: u64) -> Outcome<(u64, Guard)> {
        let guard = self.lock(lock).acquire().await?;
        Ok((guard.fence(), guard))
    }

    async fn try_acquire(&mut self, lock: u64) -> Outcome<Option<(u64, Guard)>> {
        Ok(self.lock(lock).try_acquire().await?.map(|guard| (guard.fence(), guard)))
    }

    async fn release(&mut self, guard: Guard) -> Outcome<()> {
        Ok(guard.release().await?)
    }

    fn is_lost(&self, guard: &Guard) -> bool {
        guard.is_lost()
    }
}
