//! Where requests arrive: decides each of them, with the locks of the world and the queue.
//!
//! Nothing is done here but to decide: the [`World`] stores, replicates and answers. What cannot be decided at once, because no
//! write is allowed where it was noticed, is put down in `pending` and decided by [`Desk::drain`]. One road for every surprise.

use super::alarms::Alarms;
use super::circle;
use super::claim::{Ask, AskRef, Claim, Kind, Refusal};
use super::fence::FenceClock;
use super::numbered::{Numbered, Numbers};
use super::outcome::{Receipt, Released, Verdict};
use super::owner::Owner;
use super::queue::{Arrival, ClientId, Key, KeyRef, LineId, Queue, Rank, RequestId};
use super::sessions::{BindingId, Sessions};
use super::time::{At, Lease, Now};
use super::world::{holds_all, Effect, Found, Gate, News, World};

/// Everything of the rules that is not stored with a key.
#[derive(Debug, Default)]
pub struct Desk {
    pub fences: FenceClock,
    pub limits: Limits,
    /// The start or promotion after which the grace runs, and until when: so long only owners that hold a key already are granted it.
    pub(super) grace: Option<(At, At)>,
    pub(super) queue: Queue,
    pub(super) sessions: Sessions,
    pub(super) alarms: Alarms<Alarm>,
    /// Lines to be served as soon as somebody may write.
    pub(super) pending: Numbers<LineId>,
    /// Connections that ended and whose holds are still to be taken from them.
    pub(super) ended: Numbers<ClientId>,
    /// Grants of which it is not yet known whether they were heard.
    pub(super) in_flight: Numbered<RequestId, InFlight>,
    /// Grants that were not heard and are to be taken back.
    pub(super) unheard: Vec<InFlight>,
}

/// The settings that the rules know.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that may wait, and places that may be kept.
    pub max_waiters: usize,
    /// Milliseconds that a place is kept; 0: not at all.
    pub keep_place_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_waiters: 10_000, keep_place_ms: 1_000 }
    }
}

/// What happens by itself at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// A client has waited long enough.
    WaitOver(RequestId),
    /// A client stayed away too long.
    PlaceLost(RequestId),
    /// A lease may have ended on a key that is waited for.
    LeaseEnd(LineId),
    /// A third of a lease that is bound to a connection is over.
    Renew(BindingId),
}

/// A grant on its way to a client.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub ask: Ask,
    pub grants: Vec<(Key, Receipt)>,
}

/// How long a request may wait, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// `None`: for ever.
    pub until: Option<At>,
    pub may_come_back: bool,
}

/// A request to acquire one or several locks of one database.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    pub db: i32,
    /// Distinct; more than one only for mutexes.
    pub names: &'a [&'a [u8]],
    pub ask: AskRef<'a>,
    /// `None`: no waiting.
    pub wait: Option<Wait>,
    pub session: Option<ClientId>,
}

/// A request to renew the leases of one or several locks of one database.
#[derive(Debug)]
pub struct Renew<'a> {
    pub db: i32,
    pub names: &'a [&'a [u8]],
    pub owner: &'a [u8],
    pub kind: Kind,
    /// `None`: of the length last given.
    pub lease: Option<Lease>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    Granted(Receipt),
    Queued(RequestId),
    /// Held by another, or others wait.
    No,
}

/// Why a request cannot be answered otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    WrongType,
    Refused(Refusal),
    /// Waiting would never end: who waits for whom, on which key.
    Deadlock(Vec<circle::Link>),
    MaxWaiters,
    /// The server has just started or become the master: nobody knows yet who held what.
    Grace,
    /// No fence is left below 2^53.
    NoFence,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused(refusal)
    }
}

impl Desk {
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The server has started or become the master, and may have lost locks whose holders still work: for so long nobody new is
    /// granted anything.
    pub fn begin_grace(&mut self, since: At, grace_ms: u64) {
        self.grace = (grace_ms > 0).then(|| (since, since.plus_ms(grace_ms)));
    }

    /// The setting was changed while a grace may run: it ends sooner or later then, but none begins.
    pub fn change_grace(&mut self, grace_ms: u64) {
        if let Some((since, _)) = self.grace {
            self.begin_grace(since, grace_ms);
            self.pending.extend(self.queue.lines().map(|(id, _)| id));
        }
    }

    pub(super) fn is_in_grace(&mut self, now: &Now) -> bool {
        if self.grace.is_some_and(|(_, until)| now.at() >= until) {
            self.grace = None;
        }
        self.grace.is_some()
    }

    /// Decides a request to acquire.
    pub fn acquire<W: World>(&mut self, world: &mut W, now: &Now, request: Acquire<'_>) -> Result<Acquired, Error> {
        if let [name] = request.names {
            if self.queue.is_empty() && self.grace.is_none() {
                let key = KeyRef { db: request.db, name };
                if let Found::Free = world.find(key) {
                    return self.create(world, now, key, request.ask, request.session);
                }
            }
        }
        self.acquire_among_others(world, now, request, &request.ask.to_ask())
    }

    /// The same where others hold or wait, or may.
    fn acquire_among_others<W: World>(
        &mut self,
        world: &mut W,
        now: &Now,
        request: Acquire<'_>,
        ask: &Ask,
    ) -> Result<Acquired, Error> {
        let Acquire { db, names, .. } = request;
        let mut all = Verdict::Deeper;
        for name in names {
            let key = KeyRef { db, name };
            match self.weigh(world, now, key, ask)? {
                Verdict::Wait => all = Verdict::Wait,
                Verdict::Admit if all == Verdict::Deeper => all = Verdict::Admit,
                _ => {}
            }
        }
        if all == Verdict::Admit && !self.queue.is_empty() && !self.is_its_turn(world, &request, ask) {
            all = Verdict::Wait;
        }
        if all == Verdict::Admit && self.is_in_grace(now) && !holds_all(world, db, names, ask.owner.as_bytes()) {
            match request.wait {
                Some(_) => all = Verdict::Wait,
                None => return Err(Error::Grace),
            }
        }
        if all == Verdict::Wait {
            return match request.wait {
                Some(wait) => self.enqueue(world, now, request, ask, wait),
                None => Ok(Acquired::No),
            };
        }
        let grants = self.grant(world, now, db, names, ask, request.session)?;
        if self.queue.is_empty() {
            return Ok(Acquired::Granted(grants.first()));
        }
        if request.wait.is_some() {
            if let Some(retried) = self.queue.find_retried(db, names, ask) {
                self.supersede(world, retried);
            }
        }
        for name in names {
            let Some(line) = self.queue.line_of(db, name) else { continue };
            if let Claim::Permits { limit, .. } = ask.claim {
                if self.queue.set_limit(line, limit) {
                    self.refuse_over_limit(world, line);
                }
            }
            self.serve(world, now, line);
        }
        Ok(Acquired::Granted(grants.first()))
    }

    /// Gives back what `claim` names.
    pub fn release<W: World>(
        &mut self,
        world: &mut W,
        now: &Now,
        key: KeyRef<'_>,
        owner: &[u8],
        claim: &Claim,
    ) -> Result<Released, Error> {
        self.settle(world, now, key);
        let lock = match world.find(key) {
            Found::Free => {
                self.check_kind_of_line(key, claim.kind())?;
                return Ok(Released::NotHeld);
            }
            Found::Foreign => return Err(Error::WrongType),
            Found::Lock(lock) => lock,
        };
        let released = lock.release(owner, claim)?;
        match released {
            Released::NotHeld | Released::Same(_) => {}
            Released::Fewer(_) => {
                let last = lock.last_deadline();
                world.update(key, Effect::Hold(owner), last);
                self.serve_key(world, now, key);
            }
            Released::Gone => {
                self.unbind(key, owner);
                self.after_drop(world, now, key, owner);
            }
        }
        Ok(released)
    }

    /// Starts a lease again on all of the keys, or on none: false, when the owner does not hold all of them.
    pub fn renew<W: World>(&mut self, world: &mut W, now: &Now, request: Renew<'_>) -> Result<bool, Error> {
        let Renew { db, names, owner, kind, lease } = request;
        let mut holds_all = true;
        for name in names {
            let key = KeyRef { db, name };
            self.settle(world, now, key);
            match world.find(key) {
                Found::Foreign => return Err(Error::WrongType),
                Found::Lock(lock) if lock.kind().is_some_and(|other| other != kind) => {
                    return Err(Refusal::WrongKind(lock.kind().unwrap_or(kind)).into());
                }
                Found::Lock(lock) => holds_all &= lock.is_held_by(owner),
                Found::Free => {
                    self.check_kind_of_line(key, kind)?;
                    holds_all = false;
                }
            }
        }
        if holds_all {
            for name in names {
                self.renew_one(world, now, KeyRef { db, name }, owner, lease);
            }
        }
        Ok(holds_all)
    }

    /// Refuses keys that hold something else than a lock of this family, before anything is changed.
    pub fn check<W: World>(&self, world: &mut W, db: i32, names: &[&[u8]], kind: Kind) -> Result<(), Error> {
        names.iter().try_for_each(|name| match world.find(KeyRef { db, name }) {
            Found::Foreign => Err(Error::WrongType),
            Found::Lock(lock) => match lock.kind() {
                Some(other) if other != kind => Err(Refusal::WrongKind(other).into()),
                _ => Ok(()),
            },
            Found::Free => self.check_kind_of_line(KeyRef { db, name }, kind),
        })
    }

    /// Refuses a key that holds no lock at all.
    pub fn check_type<W: World>(&self, world: &mut W, key: KeyRef<'_>) -> Result<(), Error> {
        match world.find(key) {
            Found::Foreign => Err(Error::WrongType),
            Found::Free | Found::Lock(_) => Ok(()),
        }
    }

    /// Takes the queued requests of this owner out of the key's line; whether there was one.
    pub fn cancel<W: World>(&mut self, world: &mut W, now: &Now, key: KeyRef<'_>, owner: &Owner) -> bool {
        let Some(line) = self.queue.line_of(key.db, key.name) else { return false };
        let here = |id: &RequestId| self.queue.request(*id).is_some_and(|request| request.lines.contains(&line));
        let ids: Vec<_> = self.queue.requests_of(key.db, owner).filter(here).collect();
        let lines: Vec<_> =
            ids.iter().filter_map(|id| self.queue.request(*id)).flat_map(|request| request.lines.clone()).collect();
        for id in &ids {
            self.dismiss(world, *id, News::Cancelled);
        }
        for line in lines {
            self.serve(world, now, line);
        }
        !ids.is_empty()
    }

    /// Puts the request in the lines of its keys, if that ends at some time.
    fn enqueue<W: World>(
        &mut self,
        world: &mut W,
        now: &Now,
        request: Acquire<'_>,
        ask: &Ask,
        wait: Wait,
    ) -> Result<Acquired, Error> {
        let Acquire { db, names, session, .. } = request;
        let retried = self.queue.find_retried(db, names, ask);
        let retried_waits = retried.and_then(|id| self.queue.request(id)).is_some_and(|request| request.is_present());
        if !retried_waits && self.queue.waiters() >= self.limits.max_waiters {
            return Err(Error::MaxWaiters);
        }
        let is_upgrade = match world.find(KeyRef { db, name: names[0] }) {
            Found::Lock(lock) => lock.is_upgrade(ask.owner.as_bytes(), &ask.claim),
            _ => false,
        };
        let rank = if is_upgrade { Rank::Upgrade } else { Rank::Normal };
        let place = retried.and_then(|id| self.queue.request(id)).map(|request| request.place);
        let stand = circle::Stand { db, names, ask, place: place.unwrap_or_else(|| self.queue.last_place(rank)) };
        if let Some(links) = circle::find(&self.queue, world, now, &stand) {
            return Err(Error::Deadlock(links));
        }
        if let Some(retried) = retried {
            self.supersede(world, retried);
        }
        let claim = ask.claim;
        let arrival = Arrival {
            ask: ask.clone(),
            db,
            rank,
            since: now.at(),
            until: wait.until,
            session,
            may_come_back: wait.may_come_back,
        };
        let id = self.queue.enter(arrival, names, place);
        if let Some(until) = wait.until {
            self.alarms.set(Alarm::WaitOver(id), until);
        }
        let lines = self.queue.request(id).map(|request| request.lines.clone()).unwrap_or_default();
        for line in lines {
            self.take_limit(world, now, line, claim);
            self.watch(world, line);
        }
        Ok(Acquired::Queued(id))
    }

    /// The LIMIT of a queued request counts from now on: a larger one admits waiters, a smaller one refuses some.
    fn take_limit<W: World>(&mut self, world: &mut W, now: &Now, line: LineId, claim: Claim) {
        let Claim::Permits { limit, .. } = claim else { return };
        let Some(key) = self.queue.line(line).map(|line| line.key.clone()) else { return };
        let Found::Lock(lock) = world.find(key.as_ref()) else { return };
        if !lock.set_limit(limit) {
            return;
        }
        world.update(key.as_ref(), Effect::Limit, None);
        self.refuse_over_limit(world, line);
        self.serve(world, now, line);
    }

    /// Refuses those that ask for more permits than the line's limit.
    fn refuse_over_limit<W: World>(&mut self, world: &mut W, line: LineId) {
        let Some(line) = self.queue.line(line) else { return };
        let never_fits =
            |id: &RequestId| self.queue.request(*id).is_some_and(|request| request.ask.claim.amount() > line.limit);
        let ids: Vec<_> = line.present().map(|(_, id)| id).filter(never_fits).collect();
        for id in ids {
            self.dismiss(world, id, News::Refused(Refusal::OverLimit));
        }
    }

    /// While anyone waits, a free key keeps the queue's family.
    pub(super) fn check_kind_of_line(&self, key: KeyRef<'_>, kind: Kind) -> Result<(), Error> {
        if self.queue.is_empty() {
            return Ok(());
        }
        let line = self.queue.line_of(key.db, key.name).and_then(|line| self.queue.line(line));
        match line.filter(|line| line.waiters() > 0 && line.kind != kind) {
            Some(line) => Err(Refusal::WrongKind(line.kind).into()),
            None => Ok(()),
        }
    }

    fn supersede<W: World>(&mut self, world: &mut W, id: RequestId) {
        if self.queue.request(id).is_some_and(|request| request.is_present()) {
            world.answer(id, News::Superseded);
        }
        self.remove(id);
    }

    fn serve_key<W: World>(&mut self, world: &mut W, now: &Now, key: KeyRef<'_>) {
        if let Some(line) = self.queue.line_of(key.db, key.name) {
            self.serve(world, now, line);
        }
    }

    /// Whether waiters of this key may be granted it now; a closed gate puts the line down for later.
    pub(super) fn may_serve<W: World>(&mut self, world: &mut W, line: LineId) -> bool {
        let Some(key) = self.queue.line(line).filter(|line| line.waiters() > 0).map(|line| line.key.clone()) else {
            return false;
        };
        match world.gate(key.as_ref()) {
            Gate::Open => true,
            Gate::Closed => {
                self.pending.insert(line);
                false
            }
            Gate::Elsewhere => {
                self.dismiss_line(world, line, News::TryAgain);
                false
            }
        }
    }
}
