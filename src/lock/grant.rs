//! What the desk does to stored locks: settles, grants, hands over, renews and binds them.

use super::claim::{Ask, AskRef};
use super::desk::{Acquire, Acquired, Alarm, Desk, Error, InFlight};
use super::fence::Fence;
use super::outcome::{Receipt, Verdict};
use super::owner::Owner;
use super::queue::{ClientId, KeyRef, LineId, Place, Rank, RequestId};
use super::state::{First, Lock};
use super::time::{Lease, Now};
use super::world::{Effect, Found, World};

impl Desk {
    /// What the lock under the key says of the claim, the queue left aside.
    pub(super) fn weigh<W: World>(
        &mut self,
        world: &mut W,
        now: &Now,
        key: KeyRef<'_>,
        ask: &Ask,
    ) -> Result<Verdict, Error> {
        self.settle(world, now, key);
        match world.find(key) {
            Found::Foreign => Err(Error::WrongType),
            Found::Lock(lock) => Ok(lock.weigh(ask.owner.as_bytes(), &ask.claim)?),
            Found::Free => {
                self.check_kind_of_line(key, ask.claim.kind())?;
                Ok(Lock::Vacant.weigh(ask.owner.as_bytes(), &ask.claim)?)
            }
        }
    }

    /// Takes out of the lock what has ended by itself: leases of a crowd, and the holds of connections that are gone.
    pub(super) fn settle<W: World>(&mut self, world: &mut W, now: &Now, key: KeyRef<'_>) {
        let is_crowd = matches!(world.find(key), Found::Lock(Lock::Crowd(_)));
        if !is_crowd && self.ended.is_empty() {
            return;
        }
        let mut gone = Vec::new();
        if is_crowd {
            let until = world.until(key);
            let Found::Lock(lock) = world.find(key) else { return };
            if lock.clamp(until) {
                world.update(key, Effect::Clamp, None);
            }
            let Found::Lock(lock) = world.find(key) else { return };
            gone = lock.settle(now.at());
        }
        if !self.ended.is_empty() {
            for (owner, client) in self.sessions.owners_of(key) {
                let Found::Lock(lock) = world.find(key) else { break };
                if self.ended.contains(&client) && lock.evict(owner.as_bytes()) {
                    gone.push(owner);
                }
            }
        }
        for owner in &gone {
            self.unbind(key, owner.as_bytes());
        }
        if gone.is_empty() {
            return;
        }
        let Found::Lock(lock) = world.find(key) else { return };
        let (is_vacant, last) = (lock.is_vacant(), lock.last_deadline());
        match is_vacant {
            true => world.remove(key),
            false => gone.iter().for_each(|owner| world.update(key, Effect::Drop(owner.as_bytes()), last)),
        }
        if let Some(line) = self.queue.line_of(key.db, key.name) {
            self.pending.insert(line);
        }
    }

    /// Grants what is admissible: all names, with one fence.
    pub(super) fn grant<W: World>(
        &mut self,
        world: &mut W,
        now: &Now,
        db: i32,
        names: &[&[u8]],
        ask: &Ask,
        session: Option<ClientId>,
    ) -> Result<Grants, Error> {
        let fence = match self.common_fence(world, db, names, ask) {
            Some(fence) => fence,
            None => self.fences.next(now.us()).ok_or(Error::NoFence)?,
        };
        let mut grants = Grants::default();
        for name in names {
            let key = KeyRef { db, name };
            let until = match world.find(key) {
                Found::Lock(lock) if lock.is_held_by(ask.owner.as_bytes()) => Some(world.until(key)),
                _ => None,
            };
            let receipt = match world.find(key) {
                Found::Free => {
                    let first = First::new(ask.as_ref(), fence, now.at())?;
                    world.create(key, first);
                    first.receipt()
                }
                Found::Lock(lock) => {
                    let asked = ask.lease.from(now.at());
                    let before = lock.kept_fence(ask.owner.as_bytes(), &ask.claim);
                    let (receipt, until) = lock.admit(ask, fence, now.at(), until.unwrap_or(asked));
                    // A request sent again changes nothing but the deadline.
                    let is_same = before == Some(fence) && receipt.before == receipt.holds;
                    let effect =
                        if is_same { Effect::Renew(ask.owner.as_bytes()) } else { Effect::Hold(ask.owner.as_bytes()) };
                    world.update(key, effect, Some(until));
                    receipt
                }
                Found::Foreign => return Err(Error::WrongType),
            };
            grants.push(receipt);
            if let Some(client) = session {
                self.bind(client, key, &ask.owner, fence);
            }
            if !self.sessions.is_empty() {
                self.renew_after_a_third(now, key, ask.owner.as_bytes(), ask.lease);
            }
        }
        if !self.in_flight.is_empty() || !self.unheard.is_empty() {
            self.confirm(db, names, &ask.owner);
        }
        Ok(grants)
    }

    /// A free key, and nobody waits anywhere: all that an uncontended request is.
    pub(super) fn create<W: World>(
        &mut self,
        world: &mut W,
        now: &Now,
        key: KeyRef<'_>,
        ask: AskRef<'_>,
        session: Option<ClientId>,
    ) -> Result<Acquired, Error> {
        let fence = self.fences.next(now.us()).ok_or(Error::NoFence)?;
        let first = First::new(ask, fence, now.at())?;
        world.create(key, first);
        if let Some(client) = session {
            self.bind(client, key, &ask.owner.to_owner(), fence);
            self.renew_after_a_third(now, key, ask.owner.as_bytes(), ask.lease);
        }
        Ok(Acquired::Granted(first.receipt()))
    }

    /// The fence that the owner has on every one of the keys already, where the grant is not a new one.
    pub(super) fn common_fence<W: World>(
        &mut self,
        world: &mut W,
        db: i32,
        names: &[&[u8]],
        ask: &Ask,
    ) -> Option<Fence> {
        let mut fences = names.iter().map(|name| match world.find(KeyRef { db, name }) {
            Found::Lock(lock) => lock.kept_fence(ask.owner.as_bytes(), &ask.claim),
            _ => None,
        });
        let first = fences.next()??;
        fences.all(|fence| fence == Some(first)).then_some(first)
    }

    /// Whether nobody is ahead whom the request may not pass, on each of its keys that it does not hold yet.
    pub(super) fn is_its_turn<W: World>(&mut self, world: &mut W, request: &Acquire<'_>, ask: &Ask) -> bool {
        let retried = request.wait.and_then(|_| self.queue.find_retried(request.db, request.names, ask));
        let place = retried.and_then(|id| self.queue.request(id)).map(|request| request.place);
        request.names.iter().all(|name| {
            let key = KeyRef { db: request.db, name };
            let Some(line) = self.queue.line_of(key.db, key.name) else { return true };
            let (held, upgrade) = match world.find(key) {
                Found::Lock(lock) => (
                    lock.is_held_by(ask.owner.as_bytes()) && request.names.len() > 1,
                    lock.is_upgrade(ask.owner.as_bytes(), &ask.claim),
                ),
                _ => (false, false),
            };
            let rank = if upgrade { Rank::Upgrade } else { Rank::Normal };
            let place = place.unwrap_or_else(|| self.queue.last_place(rank));
            held || self.has_turn(world, line, place, &ask.owner)
        })
    }

    /// Whether everyone ahead of `place` in the line waits for this very owner, who may therefore pass.
    pub(super) fn has_turn<W: World>(&self, world: &mut W, line: LineId, place: Place, owner: &Owner) -> bool {
        let Some(line) = self.queue.line(line) else { return true };
        line.present().take_while(|(other, _)| *other < place).all(|(_, id)| self.may_pass(world, id, owner))
    }

    /// A request for several keys that waits for this owner does not stand in its way.
    pub(super) fn may_pass<W: World>(&self, world: &mut W, ahead: RequestId, owner: &Owner) -> bool {
        let Some(request) = self.queue.request(ahead) else { return true };
        let holds = |world: &mut W, line: &LineId| {
            self.queue.line(*line).is_some_and(|line| match world.find(line.key.as_ref()) {
                Found::Lock(lock) => lock.is_held_by(owner.as_bytes()),
                _ => false,
            })
        };
        request.lines.len() > 1 && request.ask.owner != *owner && request.lines.iter().any(|line| holds(world, line))
    }

    /// The owner's hold was taken out of the lock in place: hands over, or ends the key.
    pub(super) fn after_drop<W: World>(&mut self, world: &mut W, now: &Now, key: KeyRef<'_>, owner: &[u8]) {
        let Found::Lock(lock) = world.find(key) else { return };
        let (is_vacant, is_crowd, last) = (lock.is_vacant(), matches!(lock, Lock::Crowd(_)), lock.last_deadline());
        let line = self.queue.line_of(key.db, key.name);
        let is_waited_for = line.and_then(|line| self.queue.line(line)).is_some_and(|line| line.waiters() > 0);
        if is_vacant && !is_waited_for {
            return world.remove(key);
        }
        // In a mutex the next hold replaces this one, in one effect.
        if is_crowd {
            world.update(key, Effect::Drop(owner), last);
        }
        if let Some(line) = line {
            self.serve(world, now, line);
        }
        if matches!(world.find(key), Found::Lock(lock) if lock.is_vacant()) {
            world.remove(key);
        }
    }

    pub(super) fn renew_one<W: World>(
        &mut self,
        world: &mut W,
        now: &Now,
        key: KeyRef<'_>,
        owner: &[u8],
        lease: Option<Lease>,
    ) -> bool {
        let Found::Lock(lock) = world.find(key) else { return false };
        let Some(until) = lock.renew(owner, lease, now.at()) else { return false };
        let lease = lock.hold(owner, until).map(|hold| hold.lease);
        world.update(key, Effect::Renew(owner), Some(until));
        if let Some(line) = self.queue.line_of(key.db, key.name) {
            self.watch(world, line);
        }
        if let Some(lease) = lease {
            self.renew_after_a_third(now, key, owner, lease);
        }
        true
    }

    /// A hold that is bound to a connection is renewed when a third of its lease is over.
    pub(super) fn renew_after_a_third(&mut self, now: &Now, key: KeyRef<'_>, owner: &[u8], lease: Lease) {
        let Some(id) = self.sessions.binding_of(key, owner) else { return };
        match lease.third_ms() {
            Some(third) => self.alarms.set(Alarm::Renew(id), now.at().plus_ms(third)),
            None => self.alarms.clear(Alarm::Renew(id)),
        }
    }

    pub(super) fn bind(&mut self, client: ClientId, key: KeyRef<'_>, owner: &Owner, fence: Fence) {
        self.unbind(key, owner.as_bytes());
        self.sessions.bind(client, key, owner, fence);
    }

    pub(super) fn unbind(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(id) = self.sessions.unbind(key, owner) {
            self.alarms.clear(Alarm::Renew(id));
        }
    }

    /// The owner has asked again and was told that it holds the keys: whatever became of the earlier grant, it was heard.
    pub(super) fn confirm(&mut self, db: i32, names: &[&[u8]], owner: &Owner) {
        let is_same = |flight: &InFlight| {
            flight.ask.owner == *owner
                && flight.grants.iter().any(|(key, _)| key.db == db && names.contains(&&*key.name))
        };
        self.in_flight.retain(|_, flight| !is_same(flight));
        self.unheard.retain(|flight| !is_same(flight));
    }
}

/// The receipts of one grant; a single one needs no heap.
#[derive(Debug, Default)]
pub(super) struct Grants {
    first: Option<Receipt>,
    more: Vec<Receipt>,
}

impl Grants {
    fn push(&mut self, receipt: Receipt) {
        match self.first {
            None => self.first = Some(receipt),
            Some(_) => self.more.push(receipt),
        }
    }

    pub fn first(&self) -> Receipt {
        self.first.expect("a request names at least one key")
    }

    pub fn iter(&self) -> impl Iterator<Item = Receipt> + '_ {
        self.first.into_iter().chain(self.more.iter().copied())
    }
}
