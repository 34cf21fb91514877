//! Redis' own recipe, without the module: `SET key token NX PX lease`, and a script that deletes the key if it still
//! holds the token: `set-lua:MS`, retried after MS milliseconds ± 50 %.
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>, "Correct implementation with a single
//! instance". redis-py's lock retries after 100 ms by default; 1 ms is a common setting for short waits.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::Script;

use crate::task::{now, Link, Outcome, Owner, Task};

const RELEASE: &str = r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0"#;

pub struct Client {
    connection: MultiplexedConnection,
    lease: Duration,
    pause: Duration,
}

impl Link for Client {
    type Owner = Asker;

    async fn connect(task: &Task, kind: &str) -> Outcome<Client> {
        let client = redis::Client::open(format!("redis://{}/", task.endpoints))?;
        let pause = kind.split_once(':').ok_or("set-lua:MS")?.1.parse()?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Client { connection, lease: task.lease, pause: Duration::from_millis(pause) })
    }

    async fn owner(&self) -> Outcome<Asker> {
        let dice = std::cell::Cell::new(now() | 1);
        Ok(Asker {
            connection: self.connection.clone(),
            lease: self.lease,
            pause: self.pause,
            release: Script::new(RELEASE),
            dice,
        })
    }
}

pub struct Asker {
    connection: MultiplexedConnection,
    lease: Duration,
    pause: Duration,
    release: Script,
    dice: std::cell::Cell<u64>,
}

impl Asker {
    fn random(&self) -> u64 {
        let mut value = self.dice.get();
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        self.dice.set(value);
        value
    }
}

impl Owner for Asker {
    /// Key and token.
    type Held = (String, String);

    async fn acquire(&mut self, lock: u64) -> Outcome<(u64, Self::Held)> {
        loop {
            if let Some(taken) = self.try_acquire(lock).await? {
                return Ok(taken);
            }
            let half = self.pause.as_micros() as u64 / 2;
            tokio::time::sleep(Duration::from_micros(half + self.random() % (2 * half + 1))).await;
        }
    }

    async fn try_acquire(&mut self, lock: u64) -> Outcome<Option<(u64, Self::Held)>> {
        let (key, token) = (format!("lock-{lock}"), format!("{:016x}{:016x}", self.random(), self.random()));
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&token).arg("NX").arg("PX").arg(self.lease.as_millis() as u64);
        let reply: Option<String> = set.query_async(&mut self.connection).await?;
        Ok(reply.map(|_| (0, (key, token))))
    }

    async fn release(&mut self, (key, token): Self::Held) -> Outcome<()> {
        let released: u64 = self.release.key(key).arg(token).invoke_async(&mut self.connection).await?;
        if released == 1 {
            Ok(())
        } else {
            Err("the lock was lost".into())
        }
    }
}
