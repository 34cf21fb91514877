//! A lock: its keys, its options, and its acquire.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue};
use tokio::sync::watch;

use crate::connector::Connector;
use crate::error::{Error, Result};
use crate::family::{integer, Family, Lease, Work};
use crate::guard::Guard;
use crate::hold::{Granted, Hold, NextRenewal};
use crate::info::Info;
use crate::observer::{Attempt, EventKind};
use crate::pause::Wait;
use crate::protocol::{self, Acquired, Cleanup, Coalesce, Ownership, Request, Session};
use crate::renewal::{renewal_loop, session_loop};
use crate::token::new_token;
use crate::transport::Transport;
use crate::turn::Turn;

const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// What to lock, and how. [`Client`](crate::Client) creates it, its methods set options, and it can be acquired any
/// number of times.
///
/// A clone is another owner, unless [`Lock::token`] is set. Options apply in order: a later one replaces an earlier one
/// and turns off the options that it excludes, so a lock can serve as a template for others.
pub struct Lock {
    connector: Arc<Connector>,
    family: Arc<Family>,
    lease: Lease,
    at_least: Option<Duration>,
    renewal: Renewal,
    replicas: Option<(u32, Duration)>,
    poll: Option<Duration>,
    tells_holder: bool,
    owner: Owner,
    /// The current hold, for lock types that count the holds of an owner.
    held: Turn<Weak<Hold>>,
}

/// Who renews the lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Renewal {
    None,
    Client,
    Server,
}

#[derive(Clone)]
enum Owner {
    New,
    Token(Arc<[u8]>),
    Of(Arc<Hold>),
}

/// How an acquire ended.
pub(crate) enum Taken {
    Granted(Guard),
    /// The work was done under the grant with this fence.
    Done {
        fence: u64,
    },
    NotGranted,
}

impl Taken {
    fn guard(self) -> Option<Guard> {
        match self {
            Taken::Granted(guard) => Some(guard),
            Taken::Done { .. } | Taken::NotGranted => None,
        }
    }
}

impl Clone for Lock {
    fn clone(&self) -> Lock {
        Lock {
            connector: self.connector.clone(),
            family: self.family.clone(),
            owner: self.owner.clone(),
            held: Turn::default(),
            ..*self
        }
    }
}

impl Lock {
    pub(crate) fn new(connector: Arc<Connector>, family: Arc<Family>) -> Lock {
        Lock {
            connector,
            family,
            lease: Some(DEFAULT_LEASE),
            at_least: None,
            renewal: Renewal::None,
            replicas: None,
            poll: None,
            tells_holder: false,
            owner: Owner::New,
            held: Turn::default(),
        }
    }

    /// Sets how long the lock is held without a renewal: more than zero, up to `lock.max-lease`, rounded up to whole
    /// milliseconds. None: no deadline (PERSIST), which excludes [`Lock::auto_renew`], [`Lock::session`] and
    /// [`Lock::at_least`]; each of these sets the default lease again. Default: 30 s.
    pub fn lease(mut self, lease: impl Into<Option<Duration>>) -> Lock {
        self.lease = lease.into();
        if self.lease.is_none() {
            (self.renewal, self.at_least) = (Renewal::None, None);
        }
        self
    }

    /// Restores a lease for an option that needs one.
    fn leased(mut self) -> Lock {
        self.lease = self.lease.or(Some(DEFAULT_LEASE));
        self
    }

    /// Limits work to once per interval: a release within this time of the grant does not free the lock, but sets its
    /// lease to the rest of that time, longer or shorter than before. So a job that takes a second does not run again
    /// on a host with a different clock. The time is counted by a monotonic clock from the reply with the grant. None:
    /// no minimum. Default: None.
    ///
    /// Dropping a guard has the same effect; for an owner with multiple holds, only the last release counts. An acquire
    /// that fails or is cancelled leaves nothing held, and [`Guard::release_failed`] frees the lock. If the process
    /// dies, the lock expires with its [`Lock::lease`], which may be shorter or longer.
    ///
    /// [`Lock::replicas`] confirm the grant, not the release, so if a failover must not end the time early, make the
    /// lease as long. With a time above `lock.max-lease` the acquire fails before the lock is requested. It excludes
    /// [`Lock::session`], which ends with its connection, and [`Lock::token`], because that owner would be granted the
    /// lock again.
    pub fn at_least(mut self, time: impl Into<Option<Duration>>) -> Lock {
        self.at_least = time.into();
        if self.at_least.is_none() {
            return self;
        }
        if self.renewal == Renewal::Server {
            self.renewal = Renewal::None;
        }
        if let Owner::Token(_) = self.owner {
            self.owner = Owner::New;
        }
        self.leased()
    }

    /// Renews the lease after each third of it, in a background task, until the guard is released or dropped.
    ///
    /// It excludes [`Lock::session`].
    pub fn auto_renew(mut self) -> Lock {
        self.renewal = Renewal::Client;
        self.leased()
    }

    /// Binds the lock to a dedicated connection: the server renews the lease while the connection lives, and releases
    /// the lock when it ends.
    ///
    /// It excludes [`Lock::auto_renew`], [`Lock::at_least`] and [`Lock::mixed`].
    pub fn session(mut self) -> Lock {
        (self.renewal, self.at_least, self.poll) = (Renewal::Server, None, None);
        self.leased()
    }

    /// Holds the lock for its lease and no longer. Undoes [`Lock::auto_renew`] and [`Lock::session`].
    pub fn no_renewal(mut self) -> Lock {
        self.renewal = Renewal::None;
        self
    }

    /// Requires that this many replicas confirm the grant within this time. If fewer do, the lock is released and the
    /// acquire fails with [`Error::NotReplicated`]. Default: 0.
    pub fn replicas(mut self, replicas: u32, within: Duration) -> Lock {
        self.replicas = (replicas > 0).then_some((replicas, within));
        self
    }

    /// Shares the key with clients that hold it as a string (`SET key … NX`), for a migration: polls at 0.5 to 1.5
    /// times the interval `poll`, and never waits in the server's queue, so that both sides make progress. Locks are
    /// not granted in order of arrival, so remove this option when the last old client is gone. None: wait in the
    /// queue. Default: None. It excludes [`Lock::session`].
    pub fn mixed(mut self, poll: impl Into<Option<Duration>>) -> Lock {
        self.poll = poll.into();
        if self.poll.is_some() && self.renewal == Renewal::Server {
            self.renewal = Renewal::None;
        }
        self
    }

    /// Makes an acquire that is not granted fail with [`Error::NotGranted`], which names the holder, instead of
    /// returning None. That takes one LOCK.INFO after the refusal.
    pub fn tell_holder(mut self) -> Lock {
        self.tells_holder = true;
        self
    }

    /// Sets the owner ID, 1 to 1,024 arbitrary bytes. One owner must be one thread, task or request, because two
    /// concurrent acquires with the same token share one hold. Default: a new one for each acquire (`host:pid:random`).
    /// It excludes [`Lock::at_least`] and [`Lock::as_owner_of`].
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Lock {
        (self.owner, self.at_least) = (Owner::Token(token.into().into()), None);
        self
    }

    /// Acquires as the owner of an existing guard on the same key, for lock types that an owner may acquire again: the
    /// writer of a read/write lock may also acquire the read side, and keep it; the only reader may acquire the write
    /// side.
    pub fn as_owner_of(mut self, guard: &Guard) -> Lock {
        self.owner = Owner::Of(guard.hold().clone());
        self
    }

    /// Sets the number of permits of one guard of a semaphore, from 1 to its limit. Has no effect on other lock types.
    /// Default: 1.
    pub fn permits(mut self, count: u32) -> Lock {
        if let Family::Semaphore { permits, .. } = Arc::make_mut(&mut self.family) {
            *permits = count;
        }
        self
    }

    /// The lock type and its keys.
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Acquires the lock. Waits in the server's queue indefinitely, first come, first served. A broken connection, a
    /// failover or a moved slot does not end the wait.
    ///
    /// Dropping the future leaves neither a queued request nor a hold behind, if the runtime lives long enough to send
    /// the cleanup; otherwise the hold ends with its lease.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Client, Result};
    /// # async fn pay(client: &Client, user: &str) -> Result<()> {
    /// let lock = client.mutex(format!("user:{user}")).auto_renew();
    /// let guard = lock.acquire().await?;
    /// // … work …
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Deadlock`], [`Error::WrongType`], [`Error::WrongKind`] or [`Error::MaxWaiters`] if waiting cannot help;
    /// [`Error::Cancelled`] by an operator; [`Error::NotReplicated`], [`Error::NoModule`], [`Error::Usage`];
    /// [`Error::LockLost`] if the owner acquires again after a loss, including the loss of its hold in the other mode
    /// of a read/write lock; [`Error::Redis`] for other errors that are not transient.
    pub async fn acquire(&self) -> Result<Guard> {
        match self.take(Wait::Unlimited, Coalesce::Off).await? {
            Taken::Granted(guard) => Ok(guard),
            Taken::Done { .. } | Taken::NotGranted => unreachable!("it ends with a grant or an error"),
        }
    }

    /// Acquires the lock like [`Lock::acquire`], but waits for at most this time. None: it was not granted in time. If
    /// no server replies, it takes at most two seconds longer: one for the last attempt, one for the cleanup.
    ///
    /// # Errors
    /// The errors of [`Lock::acquire`], and [`Error::Redis`] if the server could not be reached in time.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>> {
        Ok(self.take(Wait::within(wait), Coalesce::Off).await?.guard())
    }

    /// Acquires the lock if that is possible at once. None: another owner holds it, or an acquire of this owner is
    /// waiting for it.
    ///
    /// # Errors
    /// The errors of [`Lock::acquire`], and [`Error::Redis`] if the server could not be reached for a second.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(self.take(Wait::Not, Coalesce::Off).await?.guard())
    }

    /// Acquires the lock, runs one command on the server, and releases the lock, all in one packet and as a new owner.
    /// Returns the command's reply. Waits in the server's queue indefinitely, as [`Lock::acquire`] does; the packet has
    /// been sent meanwhile.
    ///
    /// With [`Lock::session`] the server releases the lock even if the connection ends before the whole packet has
    /// arrived. A lock without a lease gets one of 30 s here.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Client, Result};
    /// # async fn pay(client: &Client) -> Result<i64> {
    /// let command = redis::cmd("INCRBY").arg("account:7").arg(-30).to_owned();
    /// let balance = client.mutex("account:7:lock").run::<i64>(&command).await?;
    /// # Ok(balance)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Redis`] is either the command's own error, or that of a connection that ended before the replies, even
    /// while the request waited: the command may have run, and is not sent again. After any other error the command did
    /// not run: [`Error::LockLost`] if the lock was lost before the command, [`Error::NotRun`] if the command could not
    /// be sent, [`Error::Usage`] with [`Lock::token`], [`Lock::as_owner_of`], [`Lock::at_least`], [`Lock::replicas`] or
    /// slots, or while this `Lock` of a reentrant mutex is held, and the errors of [`Lock::acquire`]. While the slot of
    /// its keys moves, the command is sent again until the wait ends, because neither node runs a command on multiple
    /// keys if one of them is missing.
    pub async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let ran = self.run_in_turn(command, Wait::Unlimited).await?;
        Ok(ran.expect("it ends with a grant or an error"))
    }

    /// Runs a command like [`Lock::run`], if the lock is granted within this time. None: it was not granted, and the
    /// command did not run.
    ///
    /// # Errors
    /// The errors of [`Lock::run`] and [`Lock::acquire_within`].
    pub async fn run_within<T: FromRedisValue>(&self, command: &Cmd, wait: Duration) -> Result<Option<T>> {
        self.run_in_turn(command, Wait::within(wait)).await
    }

    /// Runs a command like [`Lock::run`], if the lock is granted at once. None: it was not granted, and the command did
    /// not run.
    ///
    /// # Errors
    /// The errors of [`Lock::run`] and [`Lock::try_acquire`].
    pub async fn try_run<T: FromRedisValue>(&self, command: &Cmd) -> Result<Option<T>> {
        self.run_in_turn(command, Wait::Not).await
    }

    /// Asks the server whether any owner holds the lock, or any of its keys.
    ///
    /// # Errors
    /// [`Error::Redis`] if the server could not be asked for a second.
    pub async fn is_locked(&self) -> Result<bool> {
        self.check()?;
        let transport = Transport::pooled(&self.connector, self.family.key());
        let found = protocol::query(&transport, &self.family.exists()).await?;
        Ok(integer(&found)? > 0)
    }

    /// Asks the server for the holders, with age and remaining time, and the number of waiters (LOCK.INFO). None: the
    /// lock is free and has no waiters. For multiple keys, reports the first one that is held.
    ///
    /// # Errors
    /// [`Error::WrongType`] if the key holds a value that is not a lock; [`Error::Redis`] if the server could not be
    /// reached for a second.
    pub async fn info(&self) -> Result<Option<Info>> {
        self.check()?;
        protocol::ask_info(&Transport::pooled(&self.connector, self.family.key()), &self.family).await
    }

    pub(crate) async fn take(&self, wait: Wait, coalesce: Coalesce) -> Result<Taken> {
        self.check()?;
        if coalesce == Coalesce::On {
            self.check_coalesced()?;
        }
        let attempt = Attempt::new(&self.connector.observed, &self.family);
        let taken = {
            // Pinned here, not moved into the select.
            let taking = pin!(self.take_as_owner(wait, coalesce, &attempt));
            tokio::select! {
                biased;
                taken = taking => taken,
                () = attempt.queued(), if !matches!(wait, Wait::Not) => unreachable!("it goes on until the end"),
            }
        };
        match taken {
            Ok(Taken::Granted(guard)) => {
                attempt.granted(guard.fence());
                Ok(Taken::Granted(guard))
            }
            Ok(Taken::NotGranted) if self.tells_holder => Err(Box::pin(self.not_granted()).await),
            end => end,
        }
    }

    /// The error that names the holder.
    async fn not_granted(&self) -> Error {
        // If the user may not ask, the refusal has no holder.
        let info = self.info().await.ok().flatten();
        let holder = info.and_then(|info| info.holders.into_iter().next()).map(|holder| holder.owner);
        Error::NotGranted { key: self.family.name(), holder }
    }

    /// Acquires the lock, runs a command and releases the lock; None: not granted in time.
    async fn run_in_turn<T: FromRedisValue>(&self, command: &Cmd, wait: Wait) -> Result<Option<T>> {
        self.check()?;
        self.check_run()?;
        let observed = &self.connector.observed;
        let attempt = Attempt::new(observed, &self.family);
        let request = Request {
            family: self.family.clone(),
            token: new_token(),
            before: 0,
            holds: self.family.step(),
            other_fence: None,
            // Without a lease, a process that dies meanwhile would leave the lock behind.
            lease: self.lease.or(Some(DEFAULT_LEASE)),
            at_least: None,
            session: if self.renewal == Renewal::Server { Session::Bound } else { Session::None },
            coalesce: Coalesce::Off,
        };
        attempt.asks_as(&request.token);
        let transport = Transport::pooled(&self.connector, self.family.key());
        let mut cleanup = Cleanup::of(&self.connector, &request, None);
        let ended = tokio::select! {
            biased;
            ended = protocol::acquire(&transport, &request, Some(command), wait, self.poll, &mut cleanup) => ended,
            () = attempt.queued(), if !matches!(wait, Wait::Not) => unreachable!("it goes on until the end"),
        };
        let (granted, ran) = match ended {
            // If its release failed, dropping the cleanup releases the hold.
            Ok(Acquired::Ran(granted, ran)) => (granted, ran),
            Ok(_) if self.tells_holder => return Err(Box::pin(self.not_granted()).await),
            Ok(_) => return Ok(None),
            Err(error) => {
                Box::pin(cleanup.run(0)).await;
                return Err(error);
            }
        };
        attempt.granted(granted.fence);
        let hold = granted.received.elapsed();
        let kind = match ran {
            Err(Error::LockLost) => EventKind::Lost { hold },
            _ => EventKind::Released { hold },
        };
        observed.notify(kind, &self.family, &request.token, Some(granted.fence));
        Ok(Some(redis::from_redis_value(ran?).map_err(redis::RedisError::from)?))
    }

    fn check_run(&self) -> Result<()> {
        if self.replicas.is_some() {
            return Err(Error::Usage("run cannot be combined with replicas: its command cannot wait for them"));
        }
        if !matches!(self.owner, Owner::New) || self.at_least.is_some() {
            return Err(Error::Usage("run has its own owner, for one command only: omit token and at_least"));
        }
        if matches!(*self.family, Family::Slot { .. }) {
            return Err(Error::Usage("run cannot be combined with a slot, which its command cannot know"));
        }
        match self.held.peek().and_then(|held| held.upgrade()) {
            Some(hold) if !hold.is_over() => {
                Err(Error::Usage("run would wait for the guard of this lock: use the guard's exec"))
            }
            _ => Ok(()),
        }
    }

    async fn take_as_owner(&self, wait: Wait, coalesce: Coalesce, attempt: &Attempt<'_>) -> Result<Taken> {
        match &self.owner {
            Owner::Of(hold) => self.take_as(hold, wait, coalesce, attempt).await,
            Owner::New if matches!(*self.family, Family::Reentrant { .. }) => {
                Box::pin(self.take_again(wait, new_token(), attempt)).await
            }
            Owner::New => self.take_as(&self.new_hold(new_token()), wait, coalesce, attempt).await,
            // The holds of one owner add up, so a second `Hold` with a separate count would end the first.
            Owner::Token(token) if self.family.counts() => {
                Box::pin(self.take_again(wait, token.clone(), attempt)).await
            }
            Owner::Token(token) => self.take_as(&self.new_hold(token.clone()), wait, coalesce, attempt).await,
        }
    }

    /// Acquires as the owner that already holds the lock, or as a new one with this token.
    async fn take_again(&self, wait: Wait, token: Arc<[u8]>, attempt: &Attempt<'_>) -> Result<Taken> {
        attempt.asks_as(&token);
        // One at a time, because the count of holds must be known before the next request.
        let Some(mut held) = self.held.take_to_acquire(wait).await? else { return Ok(Taken::NotGranted) };
        if let Some(hold) = held.upgrade() {
            match self.take_as(&hold, wait, Coalesce::Off, attempt).await {
                // The last guard was released meanwhile.
                Err(Error::LockLost) if hold.is_over() => {}
                end => return end,
            }
        }
        let hold = self.new_hold(token);
        *held = Arc::downgrade(&hold);
        self.take_as(&hold, wait, Coalesce::Off, attempt).await
    }

    async fn take_as(&self, hold: &Arc<Hold>, wait: Wait, coalesce: Coalesce, attempt: &Attempt<'_>) -> Result<Taken> {
        attempt.asks_as(&hold.token);
        loop {
            if let Some(taken) = self.take_in_turn(hold, wait, coalesce).await? {
                return Ok(taken);
            }
        }
    }

    /// None: the request has left the queue to let a release of its owner pass, and must be sent again.
    async fn take_in_turn(&self, hold: &Arc<Hold>, wait: Wait, coalesce: Coalesce) -> Result<Option<Taken>> {
        let mode = self.family.mode();
        let Some(turn) = hold.turn(mode).take_to_acquire(wait).await? else { return Ok(Some(Taken::NotGranted)) };
        if hold.is_lost() || hold.is_over() {
            return Err(Error::LockLost);
        }
        let before = hold.held(mode);
        let is_new = before == 0 && hold.holds_only(mode);
        let other_holds = hold.kept(mode.other());
        let request = Request {
            family: self.family.clone(),
            token: hold.token.clone(),
            before,
            holds: before + self.family.step(),
            other_fence: (other_holds > 0).then(|| hold.fence()),
            lease: self.lease,
            at_least: self.at_least,
            session: if is_new && self.renewal == Renewal::Server { Session::Bound } else { Session::None },
            coalesce,
        };
        let transport = match (request.session, self.replicas) {
            (Session::Bound, _) => Transport::watched(&self.connector, self.family.key()),
            (Session::None, Some(_)) => Transport::own(&self.connector, self.family.key()),
            (Session::None, None) => Transport::pooled(&self.connector, self.family.key()),
        };
        let mut cleanup = Cleanup::of(&self.connector, &request, Some(hold));
        let acquired = {
            let acquiring = pin!(protocol::acquire(&transport, &request, None, wait, self.poll, &mut cleanup));
            tokio::select! {
                biased;
                acquired = acquiring => Some(acquired),
                // Releases of other owners do not share this turn.
                () = turn.yields(), if self.family.counts() && !matches!(wait, Wait::Not) => None,
            }
        };
        let granted = match acquired {
            Some(Ok(Acquired::Granted(granted))) => granted,
            Some(Ok(Acquired::Done { fence })) => return Ok(Some(Taken::Done { fence })),
            Some(Ok(Acquired::NotGranted)) => return Ok(Some(Taken::NotGranted)),
            Some(Ok(Acquired::Ran(..))) => unreachable!("it has no command"),
            None => {
                Box::pin(cleanup.run(before)).await;
                return Ok(None);
            }
            Some(Err(error)) => {
                Box::pin(cleanup.run(before)).await;
                return Err(error);
            }
        };
        // Holds in the other mode may have been released meanwhile.
        let kept = other_holds.min(hold.kept(mode.other()));
        let is_short = kept > 0 && granted.holds.is_some_and(|holds| holds < request.holds.saturating_add(kept));
        if is_short || (before > 0 && (hold.fence() != granted.fence || hold.is_lost())) {
            // It is a new grant, or the loss of the earlier holds was reported meanwhile: all of them are released.
            hold.lose(&self.family);
            Box::pin(cleanup.run(0)).await;
            return Err(Error::LockLost);
        }
        if let Some((replicas, limit)) = self.replicas {
            // WAIT only covers the writes of its own connection; on a new one it would count all replicas at once.
            transport.pin().await;
            if let Err(error) = Box::pin(protocol::replicated(&transport, replicas, limit)).await {
                Box::pin(cleanup.run(before)).await;
                return Err(error);
            }
            if request.session == Session::None {
                transport.return_connection().await;
            }
        }
        // The owner's holds in the other mode may have been released meanwhile.
        let is_new = is_new || hold.is_over();
        let hold = if hold.is_over() { self.new_hold(request.token) } else { hold.clone() };
        hold.granted(mode, request.holds, granted, self.at_least);
        if is_new {
            self.start_renewal(&hold, transport).await;
        }
        cleanup.disarm();
        let guard = Guard::new(hold, self.family.clone(), granted, self.family.step(), coalesce.work_of_none());
        Ok(Some(Taken::Granted(guard)))
    }

    async fn start_renewal(&self, hold: &Arc<Hold>, transport: Transport) {
        let Some(lease) = self.lease else { return };
        let (weak, family) = (Arc::downgrade(hold), self.family.clone());
        let (next, given) = watch::channel(NextRenewal::after_third_of(lease));
        let task = match self.renewal {
            Renewal::Client => tokio::spawn(renewal_loop(weak, family, given)),
            Renewal::Server => {
                let ended = transport.pin().await;
                hold.bind(transport);
                tokio::spawn(session_loop(weak, family, given, ended))
            }
            Renewal::None => return,
        };
        hold.renewed_by(task.abort_handle(), next);
    }

    /// COALESCE needs a mutex that waits in the queue and is freed by its release.
    fn check_coalesced(&self) -> Result<()> {
        match &*self.family {
            Family::Mutex { .. } if self.poll.is_none() && self.at_least.is_none() => Ok(()),
            _ => Err(Error::Usage("coalescing needs a mutex, without mixed and at_least")),
        }
    }

    pub(crate) fn check_once(&self) -> Result<()> {
        match self.lease {
            Some(_) => Ok(()),
            None => {
                Err(Error::Usage("once needs a lease: without one, a caller that dies would keep all others waiting"))
            }
        }
    }

    fn new_hold(&self, token: Arc<[u8]>) -> Arc<Hold> {
        Arc::new(Hold::new(self.connector.clone(), token))
    }

    fn check(&self) -> Result<()> {
        self.family.check()?;
        let times = [self.lease, self.at_least, self.poll, self.replicas.map(|(_, within)| within)];
        if times.into_iter().flatten().any(|time| time.is_zero()) {
            return Err(Error::Usage(
                "the lease and the times of at_least, mixed and replicas must be greater than zero",
            ));
        }
        match &self.owner {
            Owner::Of(_) if !self.family.is_reentrant() => {
                Err(Error::Usage("only a reentrant or read/write lock can be acquired again by its owner"))
            }
            _ => Ok(()),
        }
    }
}

impl Guard {
    /// Returns a guard for a lock that was acquired elsewhere, by its token: for a job that one process enqueues and
    /// another one runs. Asks the server at once (LOCK.HELD). The guard releases everything that the token holds: every
    /// hold of a reentrant lock, all permits of a semaphore. With [`Lock::auto_renew`] it is renewed from now on, with
    /// the lease of `lock`.
    ///
    /// The first guard hands off the lock with [`Guard::into_token`]. If it is kept instead, its next release, renewal
    /// or `exec` after the release of this one reports the loss; if it is dropped, it releases the lock.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Client, Guard, Result};
    /// # async fn both(client: Client) -> Result<()> {
    /// let token = client.mutex("report").acquire().await?.into_token();
    /// // In another process, within the lease:
    /// let guard = Guard::from_token(&client.mutex("report").auto_renew(), token).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LockLost`] if the token does not hold the lock. [`Error::Usage`] with [`Lock::session`] and
    /// [`Lock::at_least`], which start at the grant; to take over the lock of a session, acquire it with its
    /// [`Lock::token`]. [`Error::Redis`] if the server could not be reached for a second.
    pub async fn from_token(lock: &Lock, token: impl Into<Vec<u8>>) -> Result<Guard> {
        lock.check()?;
        if lock.renewal == Renewal::Server || lock.at_least.is_some() {
            return Err(Error::Usage(
                "session and at_least start at the grant: from_token cannot be combined with them",
            ));
        }
        let (family, hold) = (&lock.family, lock.new_hold(token.into().into()));
        let transport = Transport::pooled(&lock.connector, family.key());
        let asked = Instant::now();
        let Some(held) = protocol::ask_held(&transport, family, &hold.token).await? else {
            return Err(Error::LockLost);
        };
        // With automatic renewal the first renewal sets it: a lease that expires locally before the reply is renewed.
        let renews = lock.renewal == Renewal::Client;
        let deadline = held.left.filter(|_| !renews).map(|left| asked + left);
        let slot = match **family {
            Family::Slot { .. } => protocol::ask_slot(&transport, family, &hold.token).await?,
            _ => None,
        };
        let granted = Granted { fence: held.fence, slot, deadline, received: Instant::now(), holds: Some(held.holds) };
        hold.granted(family.mode(), held.holds, granted, None);
        if renews {
            // Renew now: the lease may expire before the first renewal, which is due after a third of it.
            if protocol::renew(&transport, family, &hold, lock.lease).await? == Ownership::Lost {
                return Err(Error::LockLost);
            }
            lock.start_renewal(&hold, transport).await;
        }
        Ok(Guard::new(hold, family.clone(), granted, held.holds, Work::Done))
    }
}
