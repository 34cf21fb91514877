//! What happens at the desk with no request: hand-offs, ends of waiting, alarms, broken connections, surprises of the keyspace.

use super::claim::{Claim, Kind};
use super::desk::{Alarm, Desk, Error, InFlight};
use super::fence::Fence;
use super::outcome::{Released, Verdict};
use super::owner::Owner;
use super::queue::{ClientId, Key, KeyRef, LineId, RequestId};
use super::sessions::BindingId;
use super::shrink;
use super::time::{At, Now};
use super::world::{holds_all, Delivery, Effect, Found, Gate, News, World};

/// Milliseconds after which a closed gate is looked at again. No event of the server says that a pause has ended.
pub const GATE_RETRY_MS: u64 = 10;

/// What became of an attempt to serve a waiter.
enum Tried {
    Granted,
    /// It was told that its turn will never come.
    Dismissed,
    /// It has to wait; so have those behind it.
    Stuck,
}

/// How a client stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Its time ran out or its connection ended: it may come back to its place.
    MayComeBack,
    ForGood,
}

impl Desk {
    /// Grants the key to the waiters that it admits, first come first served.
    pub(super) fn serve<W: World>(&mut self, world: &mut W, now: &Now, line: LineId) {
        if !self.may_serve(world, line) {
            return;
        }
        while let Some((_, id)) = self.queue.line(line).and_then(|line| line.next_after(None)) {
            let owner = self.queue.request(id).map(|request| request.ask.owner.clone());
            match self.try_grant(world, now, line, id) {
                // In its line the same owner may stand once more: it goes deeper now, past everyone.
                Tried::Granted => {
                    self.serve_owners(world, now, line, owner);
                    // What has one holder has one now.
                    if self.queue.line(line).is_some_and(|line| matches!(line.kind, Kind::Mutex | Kind::Reentrant)) {
                        break;
                    }
                }
                Tried::Dismissed => {}
                Tried::Stuck => {
                    let passing = self.who_may_pass(world, id);
                    self.serve_owners(world, now, line, passing);
                    break;
                }
            }
        }
        self.watch(world, line);
    }

    /// The owners that a stuck request for several keys waits for: they need not wait for it.
    fn who_may_pass<W: World>(&self, world: &mut W, id: RequestId) -> Vec<Owner> {
        let Some(request) = self.queue.request(id).filter(|request| request.lines.len() > 1) else { return Vec::new() };
        let keys = request.lines.iter().filter_map(|line| self.queue.line(*line)).map(|line| line.key.as_ref());
        keys.filter_map(|key| match world.find(key) {
            Found::Lock(lock) => lock.sole_owner().cloned(),
            _ => None,
        })
        .collect()
    }

    /// Serves the requests of these owners that stand in the line, wherever they stand, if everyone ahead may be passed.
    fn serve_owners<W: World>(
        &mut self,
        world: &mut W,
        now: &Now,
        line: LineId,
        owners: impl IntoIterator<Item = Owner>,
    ) {
        let Some(db) = self.queue.line(line).map(|line| line.key.db) else { return };
        for owner in owners {
            let stands_here = |id: &RequestId| {
                self.queue.request(*id).is_some_and(|request| request.is_present() && request.lines.contains(&line))
            };
            for id in self.queue.requests_of(db, &owner).filter(stands_here).collect::<Vec<_>>() {
                self.try_grant(world, now, line, id);
            }
        }
    }

    fn try_grant<W: World>(&mut self, world: &mut W, now: &Now, line: LineId, id: RequestId) -> Tried {
        let Some(request) = self.queue.request(id) else { return Tried::Dismissed };
        let (mut ask, lines, place, session) =
            (request.ask.clone(), request.lines.clone(), request.place, request.session);
        let keys: Vec<Key> = lines.iter().filter_map(|id| self.queue.line(*id)).map(|line| line.key.clone()).collect();
        if keys.len() > 1 {
            // Each of them has a slot that may be on its way, though they share one.
            match self.gate_of(world, &keys) {
                Gate::Open => {}
                Gate::Closed => {
                    self.pending.insert(line);
                    return Tried::Stuck;
                }
                Gate::Elsewhere => {
                    self.dismiss(world, id, News::TryAgain);
                    return Tried::Dismissed;
                }
            }
        }
        if let (Claim::Permits { limit, .. }, Some(line)) = (&mut ask.claim, self.queue.line(line)) {
            *limit = line.limit;
        }
        for (key, other) in keys.iter().zip(&lines) {
            match self.weigh(world, now, key.as_ref(), &ask) {
                Ok(Verdict::Wait) => return Tried::Stuck,
                Ok(Verdict::Admit) => {
                    if !self.has_turn(world, *other, place, &ask.owner) {
                        return Tried::Stuck;
                    }
                }
                Ok(Verdict::Deeper) => {}
                Err(error) => {
                    self.dismiss(world, id, news_of(&error));
                    return Tried::Dismissed;
                }
            }
        }
        let db = keys.first().map_or(0, |key| key.db);
        let names: Vec<&[u8]> = keys.iter().map(|key| &*key.name).collect();
        if self.is_in_grace(now) && !holds_all(world, db, &names, ask.owner.as_bytes()) {
            return Tried::Stuck;
        }
        match self.grant(world, now, db, &names, &ask, session) {
            Err(error) => {
                self.dismiss(world, id, news_of(&error));
                Tried::Dismissed
            }
            Ok(grants) => {
                self.remove(id);
                // On its other keys the same owner may stand in line once more: it goes deeper there now.
                self.pending
                    .extend(lines.into_iter().filter(|other| *other != line && self.queue.line(*other).is_some()));
                let receipt = grants.first();
                let news = News::Granted { fence: receipt.fence, holds: receipt.holds };
                if world.answer(id, news) == Delivery::Pending {
                    let grants = keys.into_iter().zip(grants.iter()).collect();
                    self.in_flight.insert(id, InFlight { ask, grants });
                }
                Tried::Granted
            }
        }
    }

    fn gate_of<W: World>(&self, world: &mut W, keys: &[Key]) -> Gate {
        keys.iter().map(|key| world.gate(key.as_ref())).find(|gate| *gate != Gate::Open).unwrap_or(Gate::Open)
    }

    /// Sees to it that the line is served when the lease of its key ends, and notes who holds it.
    pub(super) fn watch<W: World>(&mut self, world: &mut W, line: LineId) {
        let Some(key) = self.queue.line(line).filter(|line| line.waiters() > 0).map(|line| line.key.clone()) else {
            return;
        };
        if let Some((_, grace_until)) = self.grace {
            self.alarms.set_no_later(Alarm::LeaseEnd(line), grace_until);
        }
        let until = world.until(key.as_ref());
        match world.find(key.as_ref()) {
            Found::Lock(lock) => {
                let end = lock.first_deadline(until);
                self.queue.note_holders(line, Some(lock));
                if let Some(at) = end.at() {
                    self.alarms.set_no_later(Alarm::LeaseEnd(line), at.plus_ms(1));
                }
            }
            _ => self.queue.note_holders(line, None),
        }
    }

    /// The client of a queued request waits no more. Nothing is written: [`Desk::drain`] follows.
    pub fn leave(&mut self, now: &Now, id: RequestId, leaving: Leaving) {
        let Some(request) = self.queue.request(id) else { return };
        let keeps = leaving == Leaving::MayComeBack && request.may_come_back && self.limits.keep_place_ms > 0;
        let lines = request.lines.clone();
        if !keeps {
            self.remove(id);
        } else {
            self.alarms.clear(Alarm::WaitOver(id));
            self.queue.step_out(id);
            self.alarms.set(Alarm::PlaceLost(id), now.at().plus_ms(self.limits.keep_place_ms));
            while self.queue.kept_places() > self.limits.max_waiters {
                let Some(oldest) = self.queue.longest_away() else { break };
                self.remove(oldest);
            }
        }
        // Those behind it may be admissible without it: readers behind a writer, for one.
        self.pending.extend(lines);
    }

    /// A waiter was told that it has the lock, and heard it.
    pub fn delivered(&mut self, id: RequestId) {
        self.in_flight.remove(&id);
        shrink::map(&mut self.in_flight);
    }

    /// A waiter was granted the lock, but its client has gone. Nothing is written: [`Desk::drain`] passes the grant on.
    pub fn undelivered(&mut self, id: RequestId) {
        if let Some(flight) = self.in_flight.remove(&id) {
            self.unheard.push(flight);
        }
    }

    /// A connection has ended. Nothing is written: [`Desk::drain`] takes its holds from it.
    pub fn end_session(&mut self, client: ClientId) {
        if !self.sessions.of_client(client).is_empty() {
            self.ended.insert(client);
        }
    }

    /// A lock whose latest fence was `last` is gone from the key, outside the module's commands.
    pub fn key_removed(&mut self, key: KeyRef<'_>, last: Fence) {
        for id in self.sessions.unbind_key(key, last) {
            self.alarms.clear(Alarm::Renew(id));
        }
        self.key_touched(key);
    }

    /// Something happened to the key outside the module's commands.
    pub fn key_touched(&mut self, key: KeyRef<'_>) {
        if let Some(line) = self.queue.line_of(key.db, key.name) {
            self.pending.insert(line);
        }
    }

    /// Every key of the database, or of all, may have changed.
    pub fn db_changed(&mut self, db: Option<i32>) {
        for id in self.sessions.unbind_db(db) {
            self.alarms.clear(Alarm::Renew(id));
        }
        let here = |key: &Key| db.is_none_or(|db| db == key.db);
        self.pending.extend(self.queue.lines().filter(|(_, line)| here(&line.key)).map(|(id, _)| id));
    }

    /// The server is no master any more: nobody waits here, nothing is bound.
    pub fn demote<W: World>(&mut self, world: &mut W) {
        let ids: Vec<_> = self.queue.requests().map(|(id, _)| id).collect();
        for id in ids {
            self.dismiss(world, id, News::Demoted);
        }
        self.db_changed(None);
        self.pending.clear();
        self.ended.clear();
        self.in_flight.clear();
        self.unheard.clear();
    }

    /// Whether [`Desk::drain`] has something to do.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty() || !self.ended.is_empty() || !self.unheard.is_empty()
    }

    /// When [`Desk::tick`] has something to do.
    pub fn next_alarm(&self) -> Option<At> {
        self.alarms.next()
    }

    /// Decides all that was put down. What a closed gate holds up stays.
    pub fn drain<W: World>(&mut self, world: &mut W, now: &Now) {
        for flight in std::mem::take(&mut self.unheard) {
            self.take_back(world, now, flight);
        }
        for client in std::mem::take(&mut self.ended) {
            self.release_session(world, now, client);
        }
        for line in std::mem::take(&mut self.pending) {
            self.serve(world, now, line);
        }
    }

    /// Hears the alarms whose time has come, at most `most` of them, so that the server is not held up.
    pub fn tick<W: World>(&mut self, world: &mut W, now: &Now, most: usize) {
        for _ in 0..most {
            let Some(alarm) = self.alarms.pop_due(now.at()) else { break };
            match alarm {
                Alarm::WaitOver(id) => {
                    world.answer(id, News::TimedOut);
                    self.leave(now, id, Leaving::MayComeBack);
                }
                Alarm::PlaceLost(id) => self.remove(id),
                Alarm::LeaseEnd(line) => _ = self.pending.insert(line),
                Alarm::Renew(id) => self.renew_session(world, now, id),
            }
        }
    }

    fn renew_session<W: World>(&mut self, world: &mut W, now: &Now, id: BindingId) {
        let Some(binding) = self.sessions.get(id).cloned() else { return };
        if self.ended.contains(&binding.client) {
            return;
        }
        let key = binding.key.as_ref();
        if world.gate(key) != Gate::Open {
            return self.alarms.set(Alarm::Renew(id), now.at().plus_ms(GATE_RETRY_MS));
        }
        self.settle(world, now, key);
        if !self.renew_one(world, now, key, binding.owner.as_bytes(), None) {
            self.unbind(key, binding.owner.as_bytes());
        }
    }

    fn release_session<W: World>(&mut self, world: &mut W, now: &Now, client: ClientId) {
        for binding in self.sessions.of_client(client) {
            let key = binding.key.as_ref();
            match world.gate(key) {
                Gate::Closed => {
                    self.ended.insert(client);
                    continue;
                }
                Gate::Elsewhere => {
                    self.unbind(key, binding.owner.as_bytes());
                    continue;
                }
                Gate::Open => {}
            }
            self.unbind(key, binding.owner.as_bytes());
            self.settle(world, now, key);
            let evicted = match world.find(key) {
                Found::Lock(lock) => lock.evict(binding.owner.as_bytes()),
                _ => false,
            };
            if evicted {
                self.after_drop(world, now, key, binding.owner.as_bytes());
            }
        }
    }

    fn take_back<W: World>(&mut self, world: &mut W, now: &Now, flight: InFlight) {
        let is_open = |world: &mut W| flight.grants.iter().all(|(key, _)| world.gate(key.as_ref()) == Gate::Open);
        if !is_open(world) {
            return self.unheard.push(flight);
        }
        let owner = flight.ask.owner.as_bytes();
        for (key, receipt) in &flight.grants {
            let key = key.as_ref();
            self.settle(world, now, key);
            let Found::Lock(lock) = world.find(key) else { continue };
            match lock.take_back(owner, &flight.ask.claim, receipt) {
                Released::NotHeld | Released::Same(_) => {}
                Released::Fewer(_) => {
                    let last = lock.last_deadline();
                    world.update(key, Effect::Hold(owner), last);
                    if let Some(line) = self.queue.line_of(key.db, key.name) {
                        self.serve(world, now, line);
                    }
                }
                Released::Gone => {
                    self.unbind(key, owner);
                    self.after_drop(world, now, key, owner);
                }
            }
        }
    }

    /// Takes a request out and tells its client why.
    pub(super) fn dismiss<W: World>(&mut self, world: &mut W, id: RequestId, news: News) {
        let Some(request) = self.queue.request(id) else { return };
        let lines = request.lines.clone();
        if request.is_present() {
            world.answer(id, news);
        }
        self.remove(id);
        self.pending.extend(lines);
    }

    /// Takes out everyone who stands in a line.
    pub(super) fn dismiss_line<W: World>(&mut self, world: &mut W, line: LineId, news: News) {
        let here = |lines: &[LineId]| lines.contains(&line);
        let ids: Vec<_> = self.queue.requests().filter(|(_, request)| here(&request.lines)).map(|(id, _)| id).collect();
        for id in ids {
            self.dismiss(world, id, news);
        }
    }

    /// Takes a request out of the queue, with its alarms and those of lines that nobody stands in any more.
    pub(super) fn remove(&mut self, id: RequestId) {
        let Some(request) = self.queue.leave(id) else { return };
        if request.until.is_some() {
            self.alarms.clear(Alarm::WaitOver(id));
        }
        self.alarms.clear(Alarm::PlaceLost(id));
        for line in request.lines {
            if self.queue.line(line).is_none() {
                self.alarms.clear(Alarm::LeaseEnd(line));
                self.pending.remove(&line);
            }
        }
    }
}

/// What a waiter is told when the key has become something that it cannot have.
fn news_of(error: &Error) -> News {
    match error {
        Error::WrongType => News::WrongType,
        Error::Refused(refusal) => News::Refused(*refusal),
        Error::NoFence => News::NoFence,
        Error::Deadlock(_) | Error::MaxWaiters | Error::Grace => News::Cancelled,
    }
}
