//! Postgres, through tokio-postgres: `postgres:advisory`, a session's advisory lock, and `postgres:row`, `SELECT … FOR
//! UPDATE` in a transaction. One session for each owner, because in both a waiter is a session that waits.
//!
//! postgresql.conf is what initdb writes (fsync and synchronous_commit on, shared_buffers 128 MB), except for addresses
//! and max_connections, whose default of 100 is too low for five hundred waiters. Trust instead of passwords makes no
//! difference once the connection is open.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio_postgres::{NoTls, Statement};

use crate::servers::{Location, Node, Servers};
use crate::task::{Link, Outcome, Owner, Task};

const PORT: u16 = 5432;
const ROWS: u64 = 100_000;

pub fn start(location: &Location) -> io::Result<Servers> {
    let bin = programs()?;
    // Postgres refuses to run as root.
    let (user, group) = location.user("postgres")?;
    let dir = location.dir.join("postgres");
    fs::create_dir_all(&dir)?;
    chown(&dir, Some(user), Some(group))?;
    let data = dir.join("data").display().to_string();
    location.run_as(
        (user, group),
        &bin.join("initdb"),
        &["-D", &data, "-A", "trust", "-U", "postgres", "-E", "UTF8"],
    )?;
    let rules = format!("{data}/pg_hba.conf");
    fs::write(&rules, fs::read_to_string(&rules)? + "host all all 192.0.2.0/24 trust\n")?;
    let host = location.host.address().to_string();
    let mut node = Node::new(dir.clone(), format!("{host}:{PORT}"), bin.join("postgres"));
    node.user = Some((user, group));
    let sockets = format!("unix_socket_directories={}", dir.display());
    node.args =
        ["-D", &data, "-c", "listen_addresses=*", "-c", &sockets, "-c", "max_connections=700"].map(String::from).into();
    node.start(location)?;
    location.wait_for(&node.endpoint)?;
    // Postgres listens before it accepts queries.
    for _ in 0..500 {
        if location.run(bin.join("pg_isready"), &["-q", "-h", &host]).is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let rows = format!("CREATE TABLE locks AS SELECT id::int8 FROM generate_series(0, {ROWS}) id");
    for sql in [&rows, "ALTER TABLE locks ADD PRIMARY KEY (id)", "VACUUM ANALYZE locks"] {
        location.run(bin.join("psql"), &["-q", "-h", &host, "-U", "postgres", "-c", sql])?;
    }
    Ok(Servers::of(vec![node]))
}

/// The folder of the newest version in Debian.
fn programs() -> io::Result<PathBuf> {
    let mut versions: Vec<PathBuf> =
        fs::read_dir("/usr/lib/postgresql")?.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    versions.sort();
    versions.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The link has no connection: each owner opens its own.
pub struct Session {
    config: String,
    is_row: bool,
}

impl Link for Session {
    type Owner = Backend;

    async fn connect(task: &Task, kind: &str) -> Outcome<Session> {
        let (host, port) = task.endpoints.split_once(':').ok_or("host:port")?;
        let config = format!("host={host} port={port} user=postgres");
        Ok(Session { config, is_row: kind == "postgres:row" })
    }

    async fn owner(&self) -> Outcome<Backend> {
        let (client, connection) = tokio_postgres::connect(&self.config, NoTls).await?;
        spawn_local(connection);
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let try_lock = client.prepare("SELECT pg_try_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Backend { client, is_row: self.is_row, is_open: false, lock, try_lock, unlock })
    }
}

pub struct Backend {
    client: tokio_postgres::Client,
    is_row: bool,
    /// A transaction: its row locks last until it ends.
    is_open: bool,
    lock: Statement,
    try_lock: Statement,
    unlock: Statement,
}

impl Backend {
    /// Sent in one round trip with the start of the transaction.
    async fn lock_row(&mut self, lock: u64, or: &str) -> Result<(), tokio_postgres::Error> {
        let begin = if self.is_open { "" } else { "BEGIN; " };
        let done =
            self.client.batch_execute(&format!("{begin}SELECT FROM locks WHERE id = {lock} FOR UPDATE{or}")).await;
        self.is_open = done.is_ok();
        done
    }
}

impl Owner for Backend {
    type Held = u64;

    async fn acquire(&mut self, lock: u64) -> Outcome<(u64, u64)> {
        if self.is_row {
            self.lock_row(lock, "").await?;
        } else {
            self.client.query_one(&self.lock, &[&(lock as i64)]).await?;
        }
        Ok((0, lock))
    }

    async fn try_acquire(&mut self, lock: u64) -> Outcome<Option<(u64, u64)>> {
        let taken = match self.is_row {
            true => match self.lock_row(lock, " NOWAIT").await {
                Ok(()) => true,
                Err(error) if error.code() == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE) => {
                    self.client.batch_execute("ROLLBACK").await?;
                    false
                }
                Err(error) => return Err(error.into()),
            },
            false => self.client.query_one(&self.try_lock, &[&(lock as i64)]).await?.get(0),
        };
        Ok(taken.then_some((0, lock)))
    }

    async fn release(&mut self, lock: u64) -> Outcome<()> {
        if self.is_row {
            self.is_open = false;
            self.client.batch_execute("COMMIT").await?;
        } else {
            self.client.query_one(&self.unlock, &[&(lock as i64)]).await?;
        }
        Ok(())
    }

    /// The session's locks end with the session.
    fn is_lost(&self, _: &u64) -> bool {
        self.client.is_closed()
    }
}
