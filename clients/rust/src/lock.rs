//! A lock: what is locked, with which options, and how it is acquired.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::family::{integer, Family, Lease};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::keeper::{keep_renewed, keep_session};
use crate::line::{Answer, Line};
use crate::protocol::{self, Patience, Request, Session, Undo};
use crate::token::make_token;

const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// What to lock, and how: made by [`Client`], changed by its methods, and acquired as often as one likes.
///
/// A clone is another owner, but for the same [`Lock::token`].
pub struct Lock {
    client: Client,
    family: Family,
    lease: Lease,
    keeping: Keeping,
    replicas: Option<(u32, Duration)>,
    poll: Option<Duration>,
    owner: Owner,
    /// Of a reentrant lock: what this value holds.
    held: Mutex<Weak<Hold>>,
}

/// Who keeps the lease from running out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    Nobody,
    Client,
    Server,
    Both,
}

#[derive(Clone)]
enum Owner {
    New,
    Token(Vec<u8>),
    Of(Arc<Hold>),
}

impl Clone for Lock {
    fn clone(&self) -> Lock {
        Lock {
            client: self.client.clone(),
            family: self.family.clone(),
            owner: self.owner.clone(),
            held: Mutex::default(),
            ..*self
        }
    }
}

impl Lock {
    pub(crate) fn new(client: Client, family: Family) -> Lock {
        Lock {
            client,
            family,
            lease: Some(DEFAULT_LEASE),
            keeping: Keeping::Nobody,
            replicas: None,
            poll: None,
            owner: Owner::New,
            held: Mutex::default(),
        }
    }

    /// How long the lock is held without a renewal: 30 s if left out; 1 ms to `lock.max-lease`. None: without a
    /// deadline (PERSIST), not with [`Lock::auto_renew`] and [`Lock::session`].
    pub fn lease(mut self, lease: impl Into<Option<Duration>>) -> Lock {
        self.lease = lease.into();
        self
    }

    /// A task of the client renews the lease after each third of it, until the guard goes.
    pub fn auto_renew(mut self) -> Lock {
        self.keeping = match self.keeping {
            Keeping::Nobody | Keeping::Client => Keeping::Client,
            Keeping::Server | Keeping::Both => Keeping::Both,
        };
        self
    }

    /// Binds the lock to a connection of its own: the server renews it while that lives, and releases it when it ends.
    pub fn session(mut self) -> Lock {
        self.keeping = match self.keeping {
            Keeping::Nobody | Keeping::Server => Keeping::Server,
            Keeping::Client | Keeping::Both => Keeping::Both,
        };
        self
    }

    /// So many replicas must confirm the grant within this time, or it is given back and the acquire fails with
    /// [`Error::NotReplicated`]. 0 if left out.
    pub fn replicas(mut self, replicas: u32, within: Duration) -> Lock {
        self.replicas = (replicas > 0).then_some((replicas, within));
        self
    }

    /// Beside old clients that hold the key as a string (`SET key … NX`): asks again after each `poll`, half of it more
    /// or less, and never waits in the server's queue, so that both sides progress. This polls, and turns are not in
    /// order: take it away when the last old client is gone. Not with [`Lock::session`].
    pub fn mixed(mut self, poll: Duration) -> Lock {
        self.poll = Some(poll);
        self
    }

    /// The owner, in place of a new one for each acquire (`host:pid:random`): 1 to 1,024 bytes, any bytes. One owner is
    /// one line of execution: two that acquire at the same time with one token hold one lock.
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Lock {
        self.owner = Owner::Token(token.into());
        self
    }

    /// The owner is that of a guard on the same key, for locks that an owner may take again: the writer of a read/write
    /// lock may also take the readers' side, and keep it; the only reader may take the writers'.
    pub fn as_owner_of(mut self, guard: &Guard) -> Lock {
        self.owner = Owner::Of(guard.hold().clone());
        self
    }

    /// Of a semaphore: how many permits one guard has, 1 to its limit; 1 if left out. No other family has permits.
    pub fn permits(mut self, count: u32) -> Lock {
        if let Family::Semaphore { permits, .. } = &mut self.family {
            *permits = count;
        }
        self
    }

    /// What is locked.
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Takes the lock, and waits for as long as that takes, in the server's queue: first come, first served. A broken
    /// connection, a failover, a moved slot do not end the wait.
    ///
    /// A future that is dropped leaves neither a queued request nor a hold behind, as long as the runtime lives to send
    /// that; otherwise the lease ends it.
    ///
    /// # Errors
    /// [`Error::Deadlock`], [`Error::WrongType`], [`Error::WrongKind`], [`Error::MaxWaiters`] where waiting cannot help,
    /// [`Error::Cancelled`] by an operator, [`Error::NotReplicated`], [`Error::NoModule`], [`Error::Usage`];
    /// [`Error::LockLost`] when the owner takes again what it has lost; [`Error::Redis`] for what does not heal.
    pub async fn acquire(&self) -> Result<Guard> {
        match self.take(Patience::ForEver).await? {
            Some(guard) => Ok(guard),
            None => unreachable!("patience without an end ends with a grant or an error"),
        }
    }

    /// [`Lock::acquire`] within this time; None: not granted in time.
    ///
    /// # Errors
    /// As [`Lock::acquire`], and [`Error::Redis`] when the server could not be asked in time.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>> {
        let now = Instant::now();
        // A wait of ages is one for ever.
        self.take(now.checked_add(wait).map_or(Patience::ForEver, Patience::Until)).await
    }

    /// Takes the lock if that is possible at once; None: it is held by another.
    ///
    /// # Errors
    /// As [`Lock::acquire`], and [`Error::Redis`] when the server could not be asked for a second.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.take(Patience::None).await
    }

    /// Whether anybody holds it, or any of its keys.
    ///
    /// # Errors
    /// [`Error::Redis`] when the server could not be asked for a second.
    pub async fn is_locked(&self) -> Result<bool> {
        self.check()?;
        let line = Line::pooled(&self.client, self.family.key());
        let found = protocol::ask(&line, &self.family.exists(), Answer::AtOnce).await?;
        Ok(integer(&found)? > 0)
    }

    async fn take(&self, patience: Patience) -> Result<Option<Guard>> {
        self.check()?;
        match &self.owner {
            Owner::New if matches!(self.family, Family::Reentrant { .. }) => self.take_again(patience).await,
            Owner::New => self.take_as(&self.new_hold(make_token()), patience).await,
            Owner::Token(token) => self.take_as(&self.new_hold(token.clone()), patience).await,
            Owner::Of(hold) => self.take_as(hold, patience).await,
        }
    }

    /// As the owner that holds it already, or a new one.
    async fn take_again(&self, patience: Patience) -> Result<Option<Guard>> {
        // One at a time: what is held is known when the next one asks.
        let Some(mut held) = within(patience, self.held.lock()).await else { return Ok(None) };
        if let Some(hold) = held.upgrade() {
            match self.take_as(&hold, patience).await {
                // The last guard went meanwhile.
                Err(Error::LockLost) if hold.is_over() => {}
                end => return end,
            }
        }
        let hold = self.new_hold(make_token());
        *held = Arc::downgrade(&hold);
        self.take_as(&hold, patience).await
    }

    async fn take_as(&self, hold: &Arc<Hold>, patience: Patience) -> Result<Option<Guard>> {
        let mode = self.family.mode();
        let Some(_turn) = within(patience, hold.turn(mode)).await else { return Ok(None) };
        if hold.is_lost() || hold.is_over() {
            return Err(Error::LockLost);
        }
        let before = hold.held(mode);
        let is_new = before == 0 && hold.holds_only(mode);
        let request = Request {
            family: self.family.clone(),
            token: hold.token.clone(),
            before,
            holds: before + self.family.step(),
            lease: self.lease,
            session: if is_new && self.keeping == Keeping::Server { Session::Bound } else { Session::None },
        };
        let line = match (request.session, self.replicas) {
            (Session::Bound, _) => Line::watched(&self.client, self.family.key()),
            (Session::None, Some(_)) => Line::own(&self.client, self.family.key()),
            (Session::None, None) => Line::pooled(&self.client, self.family.key()),
        };
        let mut undo = Undo::of(&self.client, &request);
        let granted = match protocol::acquire(&line, &request, patience, self.poll, &mut undo).await {
            Ok(Some(granted)) => granted,
            Ok(None) => return Ok(None),
            Err(error) => {
                undo.run(before).await;
                return Err(error);
            }
        };
        if before > 0 && hold.fence() != granted.fence {
            // A new grant: what was held is lost, and the new one is nobody's.
            hold.lose();
            undo.run(0).await;
            return Err(Error::LockLost);
        }
        if let Some((replicas, wait)) = self.replicas {
            if let Err(error) = protocol::replicated(&line, replicas, wait).await {
                undo.run(before).await;
                return Err(error);
            }
        }
        // What its owner held in the other mode may have been given back meanwhile.
        let is_new = is_new || hold.is_over();
        let hold = if hold.is_over() { self.new_hold(request.token) } else { hold.clone() };
        hold.granted(mode, request.holds, granted);
        if is_new {
            self.keep(&hold, line).await;
        }
        undo.disarm();
        Ok(Some(Guard::new(hold, self.family.clone(), granted.fence)))
    }

    async fn keep(&self, hold: &Arc<Hold>, line: Line) {
        let Some(lease) = self.lease else { return };
        let kept = Arc::downgrade(hold);
        match self.keeping {
            Keeping::Client => {
                let keeper = tokio::spawn(keep_renewed(kept, self.family.clone(), lease));
                hold.keep_by(keeper.abort_handle());
            }
            Keeping::Server => {
                let ended = line.pin().await;
                hold.bind(line);
                let keeper = tokio::spawn(keep_session(kept, self.family.clone(), lease, ended));
                hold.keep_by(keeper.abort_handle());
            }
            Keeping::Nobody | Keeping::Both => {}
        }
    }

    fn new_hold(&self, token: Vec<u8>) -> Arc<Hold> {
        Arc::new(Hold::new(self.client.clone(), token))
    }

    fn check(&self) -> Result<()> {
        self.family.check()?;
        if self.keeping == Keeping::Both {
            return Err(Error::Usage("with session the server renews: leave auto_renew out"));
        }
        if self.keeping != Keeping::Nobody && self.lease.is_none() {
            return Err(Error::Usage("session and auto_renew need a lease: it is what is renewed"));
        }
        if self.keeping == Keeping::Server && self.poll.is_some() {
            return Err(Error::Usage("mixed polls, and a session is bound while waiting: use one of them"));
        }
        match &self.owner {
            Owner::Of(_) if !self.family.is_reentrant() => {
                Err(Error::Usage("only a reentrant or read/write lock is taken again by its owner"))
            }
            _ => Ok(()),
        }
    }
}

/// None: the time was over before.
async fn within<T>(patience: Patience, future: impl std::future::Future<Output = T>) -> Option<T> {
    match patience.ends() {
        Some(ends) => tokio::time::timeout_at(ends.into(), future).await.ok(),
        None => Some(future.await),
    }
}
