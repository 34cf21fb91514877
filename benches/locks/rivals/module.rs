//! The module's locks: one command to acquire, one to release; waiting happens in the server.

use std::io;

use support::{Connection, Reply};

use super::locker::{lost, ClientConfig, Locker, Step};
use super::names::Names;
use super::rival::Rival;

pub const LOCK: Rival = rival::<Mutex>();
pub const RLOCK: Rival = rival::<Reentrant>();
pub const RWLOCK_READ: Rival = rival::<Read>();
pub const RWLOCK_WRITE: Rival = rival::<Write>();
pub const SEM: Rival = rival::<Semaphore>();
pub const MLOCK: Rival = rival::<Several>();

pub const LOCK_SESSION: Rival = Rival {
    name: "LOCK, SESSION",
    how: "LOCK.ACQUIRE … SESSION; LOCK.RELEASE",
    pair: |pair, names| {
        pair.acquire.push(&["LOCK.ACQUIRE", &names.key, &names.token, "PX", &names.lease_ms, "SESSION"]);
        pair.release.push(&Mutex::release(names));
    },
    open: None,
    ..LOCK
};

/// The differences between the lock types.
trait LockType: 'static {
    const NAME: &'static str;
    const HOW: &'static str;
    /// A command that fails only if the module does not have this lock type.
    const PROBE: &'static [&'static str];
    /// The reply to a release that freed the lock.
    const FREED: Reply;

    fn acquire(names: &Names) -> Vec<&str>;
    fn release(names: &Names) -> Vec<&str>;
}

struct Mutex;

impl LockType for Mutex {
    const NAME: &'static str = "LOCK";
    const HOW: &'static str = "LOCK.ACQUIRE, with BLOCK 0 where it waits; LOCK.RELEASE";
    const PROBE: &'static [&'static str] = &["LOCK.RELEASE", "probe", "nobody"];
    const FREED: Reply = Reply::Int(1);

    fn acquire(names: &Names) -> Vec<&str> {
        vec!["LOCK.ACQUIRE", &names.key, &names.token, "PX", &names.lease_ms]
    }

    fn release(names: &Names) -> Vec<&str> {
        vec!["LOCK.RELEASE", &names.key, &names.token]
    }
}

struct Reentrant;

impl LockType for Reentrant {
    const NAME: &'static str = "RLOCK";
    const HOW: &'static str = "RLOCK.ACQUIRE, with BLOCK 0 where it waits; RLOCK.RELEASE";
    const PROBE: &'static [&'static str] = &["RLOCK.RELEASE", "probe", "nobody"];
    const FREED: Reply = Reply::Int(0);

    fn acquire(names: &Names) -> Vec<&str> {
        vec!["RLOCK.ACQUIRE", &names.key, &names.token, "PX", &names.lease_ms]
    }

    fn release(names: &Names) -> Vec<&str> {
        vec!["RLOCK.RELEASE", &names.key, &names.token]
    }
}

struct Read;

impl LockType for Read {
    const NAME: &'static str = "RWLOCK READ";
    const HOW: &'static str = "RWLOCK.ACQUIRE … READ; RWLOCK.RELEASE … READ";
    const PROBE: &'static [&'static str] = &["RWLOCK.RELEASE", "probe", "nobody", "READ"];
    const FREED: Reply = Reply::Int(0);

    fn acquire(names: &Names) -> Vec<&str> {
        vec!["RWLOCK.ACQUIRE", &names.key, &names.token, "READ", "PX", &names.lease_ms]
    }

    fn release(names: &Names) -> Vec<&str> {
        vec!["RWLOCK.RELEASE", &names.key, &names.token, "READ"]
    }
}

struct Write;

impl LockType for Write {
    const NAME: &'static str = "RWLOCK WRITE";
    const HOW: &'static str = "RWLOCK.ACQUIRE … WRITE; RWLOCK.RELEASE … WRITE";
    const PROBE: &'static [&'static str] = &["RWLOCK.RELEASE", "probe", "nobody", "WRITE"];
    const FREED: Reply = Reply::Int(0);

    fn acquire(names: &Names) -> Vec<&str> {
        vec!["RWLOCK.ACQUIRE", &names.key, &names.token, "WRITE", "PX", &names.lease_ms]
    }

    fn release(names: &Names) -> Vec<&str> {
        vec!["RWLOCK.RELEASE", &names.key, &names.token, "WRITE"]
    }
}

struct Semaphore;

impl LockType for Semaphore {
    const NAME: &'static str = "SEM";
    const HOW: &'static str = "SEM.ACQUIRE … LIMIT 1; SEM.RELEASE";
    const PROBE: &'static [&'static str] = &["SEM.RELEASE", "probe", "nobody"];
    const FREED: Reply = Reply::Int(0);

    fn acquire(names: &Names) -> Vec<&str> {
        vec!["SEM.ACQUIRE", &names.key, &names.token, "LIMIT", "1", "PX", &names.lease_ms]
    }

    fn release(names: &Names) -> Vec<&str> {
        vec!["SEM.RELEASE", &names.key, &names.token]
    }
}

struct Several;

impl LockType for Several {
    const NAME: &'static str = "MLOCK of one key";
    const HOW: &'static str = "MLOCK.ACQUIRE 1 …; MLOCK.RELEASE 1 …";
    const PROBE: &'static [&'static str] = &["MLOCK.RELEASE", "1", "probe", "nobody"];
    const FREED: Reply = Reply::Int(1);

    fn acquire(names: &Names) -> Vec<&str> {
        vec!["MLOCK.ACQUIRE", "1", &names.key, &names.token, "PX", &names.lease_ms]
    }

    fn release(names: &Names) -> Vec<&str> {
        vec!["MLOCK.RELEASE", "1", &names.key, &names.token]
    }
}

const fn rival<F: LockType>() -> Rival {
    Rival {
        name: F::NAME,
        how: F::HOW,
        probe: F::PROBE,
        scripts: &[],
        pair: |pair, names| {
            pair.acquire.push(&F::acquire(names));
            pair.release.push(&F::release(names));
        },
        freed: |reply| *reply == F::FREED,
        open: Some(|config| Box::pin(open::<F>(config))),
    }
}

struct Waiter<F> {
    client: Connection,
    config: ClientConfig,
    lock_type: std::marker::PhantomData<F>,
}

async fn open<F: LockType>(config: ClientConfig) -> io::Result<Box<dyn Locker>> {
    Ok(Box::new(Waiter::<F> { client: config.connect().await?, config, lock_type: std::marker::PhantomData }))
}

impl<F: LockType> Locker for Waiter<F> {
    fn acquire(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let mut acquire = F::acquire(&self.config.names);
            acquire.extend(["BLOCK", "0"]);
            match self.client.call(&acquire).await? {
                Reply::Array(_) => Ok(()),
                other => Err(io::Error::other(format!("{} answered {other:?}", F::NAME))),
            }
        })
    }

    fn release(&mut self) -> Step<'_, ()> {
        Box::pin(async {
            let reply = self.client.call(&F::release(&self.config.names)).await?;
            if reply == F::FREED {
                Ok(())
            } else {
                Err(lost(F::NAME, &reply))
            }
        })
    }
}
