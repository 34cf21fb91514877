//! All who would be stuck because a new request waits, and whether that comes back to its owner.
//!
//! It begins with the new owner, and goes from whoever is stuck to those who wait for what it holds and to those who
//! stand behind its requests. Each owner is followed once, each queue is swept once, from its first stuck place on:
//! behind that everyone is stuck but readers behind a reader, and who passes a request for several keys
//! (`precedence`). A semaphore counts its stuck holders.

use std::collections::hash_map::Entry as Slot;
use std::rc::Rc;

use super::edge::Edge;
use super::new_request::NewRequest;
use super::precedence::Passing;
use super::queues::WaitQueues;
use super::reach::{reach, Reached};
use super::request::{OwnerId, Place, QueueId, QueuedRequest};
use super::wait_queue::WaitQueue;
use crate::host::{Content, Entry, Keys};
use crate::id_map::IdMap;
use crate::key::{Key, RequestId};
use crate::value::claim::Claim;
use crate::value::outcome::{Admission, Blockers};
use crate::value::owner::Owner;
use crate::value::time::Now;

/// A key with many holders is asked for each owner that is stuck, as long as that is cheaper than to go through them.
/// Fewer in tests, so that there are such keys.
const HOLDERS_TO_ONE_QUESTION: usize = if cfg!(test) { 1 } else { 8 };

/// After so many places the other search looks ahead once more, as far, and again after four times as many.
const LOOK_AGAIN: usize = if cfg!(test) { 4 } else { 512 };

/// After so many owners the holders of a shared key that nobody waits for yet are asked for once more.
const MANY: usize = if cfg!(test) { 2 } else { 256 };

/// An owner that is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// That of the new request.
    New,
    /// Another.
    Other(OwnerId),
}

/// Why the new owner or another is stuck: by whom, on which key.
#[derive(Clone, Debug)]
struct Because {
    blocker: Who,
    key: Rc<[u8]>,
}

/// A request of the new owner: what the search is for.
#[derive(Clone, Copy, Debug)]
struct Goal {
    claim: Claim,
    place: Place,
}

/// What the stuck holders of a key have made of it.
#[derive(Clone, Copy, Debug, Default)]
enum Holders {
    /// None is known to be stuck.
    #[default]
    Moving,
    /// The new owner alone has made all others stuck whom a holder can.
    OnlyNew,
    /// Another has, or both have: no further holder makes a difference.
    Stuck,
    /// Of a semaphore, which are counted.
    Together { stuck: usize, moving: usize },
}

/// How far a queue has been swept.
#[derive(Debug, Default)]
struct Swept {
    holders: Holders,
    /// Behind this place everyone is stuck, but `passed`.
    behind: Option<Place>,
    /// Behind this place everyone is stuck who is no reader.
    behind_reader: Option<Place>,
    /// Who has passed all stuck requests ahead of it, and may be stuck by another one.
    passed: Vec<RequestId>,
}

/// Whether an owner holds a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MayHold {
    /// It does, and its lease is not over.
    Yes,
    /// As far as it is known without opening the key.
    Perhaps,
}

/// A request that keeps those behind it waiting.
struct Ahead<'a> {
    who: Who,
    claim: Claim,
    place: Place,
    /// Its queues, where it waits for several keys.
    several: Option<&'a [QueueId]>,
}

/// Who passes requests for several keys.
struct Passes<'a> {
    /// Those that wait for what it holds.
    held: Passing<'a>,
    /// The queues where it stands, and its first place there: it will hold those keys before those behind it.
    stands: IdMap<QueueId, Place>,
}

/// The search.
pub(super) struct Stuck<'a, K> {
    queues: &'a WaitQueues,
    keys: &'a mut K,
    now: &'a Now,
    new: &'a NewRequest<'a>,
    /// The number of the new owner, if it waits or holds already.
    new_id: Option<OwnerId>,
    new_queues: Vec<QueueId>,
    stuck: IdMap<OwnerId, Because>,
    /// The same, in the order in which they were found.
    order: Vec<OwnerId>,
    /// How many places it has been to.
    work: usize,
    swept: IdMap<QueueId, Swept>,
    passes: IdMap<OwnerId, Passes<'a>>,
    passes_of_new: Option<Passes<'a>>,
    /// Keys whose holders are not known by name, and how many owners have been asked for there.
    opaque: Vec<(QueueId, usize)>,
    /// Of those that were gone through instead: which of them an owner holds.
    holds_opaque: IdMap<OwnerId, Vec<QueueId>>,
    /// By the queues where they stand.
    goals: IdMap<QueueId, Vec<Goal>>,
    /// Of the keys of the new request that nobody waits for yet: those with one holder, by that, and a shared one.
    holders: IdMap<OwnerId, Key>,
    shared: Option<Key>,
}

impl<'a, K: Keys> Stuck<'a, K> {
    pub fn new(queues: &'a WaitQueues, keys: &'a mut K, now: &'a Now, new: &'a NewRequest<'a>) -> Stuck<'a, K> {
        let new_id = queues.owner_id(new.db, new.owner());
        let new_queues = new.queues(queues).collect();
        let opaque = queues.opaque(new.db).map(|id| (id, 0)).collect();
        Stuck {
            queues,
            keys,
            now,
            new,
            new_id,
            new_queues,
            stuck: IdMap::default(),
            order: Vec::new(),
            work: 0,
            swept: IdMap::default(),
            passes: IdMap::default(),
            passes_of_new: None,
            opaque,
            holds_opaque: IdMap::default(),
            goals: IdMap::default(),
            holders: IdMap::default(),
            shared: None,
        }
    }

    /// The cycle that the new request would close, beginning with its own owner.
    pub fn cycle(mut self) -> Option<Vec<Edge>> {
        self.set_goals();
        let mut found = self.follow(Who::New);
        let (mut next, mut look_again) = (0, LOOK_AGAIN);
        while found.is_none() && next < self.order.len() {
            // Whichever of both searches is the shorter one decides.
            if self.work + next > look_again {
                match reach(self.queues, self.keys, self.now, self.new, look_again) {
                    Reached::NotItself => return None,
                    Reached::Itself => look_again = usize::MAX,
                    Reached::TooMany => look_again *= 4,
                }
            }
            // Those who are stuck first may be enough.
            if next == 0 || next == MANY {
                found = self.by_holders_of_shared();
            }
            found = found.or_else(|| self.follow(Who::Other(self.order[next])));
            next += 1;
        }
        let mut because = found.or_else(|| self.by_holders_of_shared())?;
        let mut edges = vec![Edge { owner: self.new.request.owner.to_owner(), key: because.key }];
        while let Who::Other(id) = because.blocker {
            let next = self.stuck.get(&id).expect("who is stuck is so because of another");
            let owner = self.queues.owner(id).expect("it waits").clone();
            edges.push(Edge { owner, key: next.key.clone() });
            because = next.clone();
        }
        Some(edges)
    }

    fn set_goals(&mut self) {
        let NewRequest { request, place, .. } = *self.new;
        for id in self.new_queues.clone() {
            self.set_goal(id, Goal { claim: request.claim, place });
        }
        for queued in self.requests_of(Who::New) {
            for id in &queued.queues {
                let claim = self.queues.get(*id).map_or(queued.claim, |queue| queue.under_limit(queued.claim));
                self.set_goal(*id, Goal { claim, place: queued.place });
            }
        }
        for name in self.new.names {
            let key = self.new.key(name);
            if self.queues.id_of(key).is_some() {
                continue;
            }
            if let Content::Lock(lock) = self.keys.open(key).content() {
                match (lock.admission(self.new.owner(), &request.claim), lock.exclusive_owner()) {
                    (Ok(Admission::Wait), Some(holder)) => {
                        let id = self.queues.owner_id(self.new.db, holder.as_bytes());
                        self.holders.extend(id.map(|id| (id, key.to_key())));
                    }
                    (Ok(Admission::Wait), None) => self.shared = Some(key.to_key()),
                    _ => {}
                }
            }
        }
    }

    /// Where the new owner holds the key already, it waits for others.
    fn set_goal(&mut self, id: QueueId, goal: Goal) {
        let Some(queue) = self.queues.get(id) else { return };
        if self.new_id.is_none_or(|new| self.queues.may_be_held_by(id, new)) {
            if let Content::Lock(lock) = self.keys.open(queue.key.as_ref()).content() {
                if lock.admission(self.new.owner(), &goal.claim) == Ok(Admission::AlreadyHeld) {
                    return;
                }
            }
        }
        self.goals.entry(id).or_default().push(goal);
    }

    /// Finds whom this owner makes stuck. `Some`: the new owner.
    fn follow(&mut self, who: Who) -> Option<Because> {
        for (queue, hold) in self.held_by(who) {
            if let found @ Some(_) = self.holder_is_stuck(queue, who, hold) {
                return found;
            }
        }
        if let Who::Other(id) = who {
            if let Some(key) = self.holders.get(&id) {
                return Some(Because { blocker: who, key: key.name.clone() });
            }
        }
        for queued in self.requests_of(who) {
            let several = queued.has_several_keys().then_some(&queued.queues[..]);
            let ahead = Ahead { who, claim: queued.claim, place: queued.place, several };
            for queue in &queued.queues {
                if let found @ Some(_) = self.stands_ahead(*queue, &ahead) {
                    return found;
                }
            }
        }
        if who == Who::New {
            let own = std::mem::take(&mut self.new_queues);
            let several = (self.new.names.len() > 1).then_some(&own[..]);
            let ahead = Ahead { who, claim: self.new.request.claim, place: self.new.place, several };
            own.iter().for_each(|queue| _ = self.stands_ahead(*queue, &ahead));
            self.new_queues = own;
        }
        None
    }

    /// The queued requests of an owner, without the one whose place the new request takes over.
    fn requests_of(&self, who: Who) -> impl Iterator<Item = &'a QueuedRequest> {
        let (queues, place) = (self.queues, self.new.place);
        let id = self.id_of(who);
        let queued = id.into_iter().flat_map(|id| queues.waiting(id)).map(|(_, queued)| queued);
        queued.filter(move |queued| queued.place != place)
    }

    fn id_of(&self, who: Who) -> Option<OwnerId> {
        match who {
            Who::New => self.new_id,
            Who::Other(id) => Some(id),
        }
    }

    fn name_of(&self, who: Who) -> &'a [u8] {
        match who {
            Who::New => self.new.owner(),
            Who::Other(id) => self.queues.owner(id).map_or(&[], Owner::as_bytes),
        }
    }

    fn is_stuck(&self, id: OwnerId) -> bool {
        self.new_id == Some(id) || self.stuck.contains_key(&id)
    }

    fn becomes_stuck(&mut self, id: OwnerId, blocker: Who, key: &Key) {
        if self.new_id == Some(id) {
            return;
        }
        if let Slot::Vacant(slot) = self.stuck.entry(id) {
            slot.insert(Because { blocker, key: key.name.clone() });
            self.order.push(id);
        }
    }
}

/// Holders.
impl<'a, K: Keys> Stuck<'a, K> {
    /// The queues whose keys this owner holds, or may hold.
    fn held_by(&mut self, who: Who) -> Vec<(QueueId, MayHold)> {
        let id = self.id_of(who);
        let known = id.into_iter().flat_map(|id| self.queues.may_hold(id));
        let known = known.filter(|queue| !self.queues.is_opaque(*queue)).map(|queue| (queue, MayHold::Perhaps));
        let mut held: Vec<_> = known.collect();
        let opaque = id.and_then(|id| self.holds_opaque.get(&id)).into_iter().flatten();
        held.extend(opaque.map(|queue| (*queue, MayHold::Yes)));
        if self.opaque.is_empty() {
            return held;
        }
        let (name, now) = (self.name_of(who), self.now.timestamp());
        let mut still_opaque = std::mem::take(&mut self.opaque);
        still_opaque.retain_mut(|(id, asked)| {
            let Some(queue) = self.queues.get(*id) else { return false };
            let mut entry = self.keys.open(queue.key.as_ref());
            let Content::Lock(lock) = entry.content() else { return false };
            held.extend(lock.live_hold(name, now).map(|_| (*id, MayHold::Yes)));
            *asked += HOLDERS_TO_ONE_QUESTION;
            if *asked < lock.holders() {
                return true;
            }
            let live = lock.live_owners(now);
            for holder in live.filter_map(|holder| self.queues.owner_id(queue.key.db, holder.as_bytes())) {
                self.holds_opaque.entry(holder).or_default().push(*id);
            }
            false
        });
        self.opaque = still_opaque;
        held
    }

    /// Finds whom the key of this queue makes stuck by a holder that is.
    fn holder_is_stuck(&mut self, id: QueueId, who: Who, hold: MayHold) -> Option<Because> {
        let queue = self.queues.get(id)?;
        let swept = self.swept.entry(id).or_default();
        match &mut swept.holders {
            Holders::Stuck => return None,
            // One of thousands: nothing to open the key for.
            Holders::Together { stuck, moving } if hold == MayHold::Yes && *moving > 2 => {
                (*stuck, *moving) = (*stuck + 1, *moving - 1);
                return None;
            }
            _ => {}
        }
        let now = self.now.timestamp();
        let name = match who {
            Who::New => self.new.owner(),
            Who::Other(id) => self.queues.owner(id)?.as_bytes(),
        };
        let mut entry = self.keys.open(queue.key.as_ref());
        let Content::Lock(lock) = entry.content() else { return None };
        let hold = lock.live_hold(name, now)?;
        let goals = self.goals.get(&id).map_or(&[][..], Vec::as_slice).iter();
        let waits = |owner: &[u8], claim: &Claim| lock.admission(owner, claim) == Ok(Admission::Wait);
        let new = self.new.owner();
        let because = || Some(Because { blocker: who, key: queue.key.name.clone() });
        let mut found = Vec::new();
        if lock.blocks_alone() {
            let before = std::mem::replace(&mut swept.holders, Holders::Stuck);
            if goals.clone().any(|goal| hold.excludes(new, &goal.claim) && waits(new, &goal.claim)) {
                return because();
            }
            if who == Who::New {
                swept.holders = Holders::OnlyNew;
            }
            // Another holder excludes the same claims but its own, and its owner is stuck anyway.
            if let Holders::OnlyNew = before {
                return None;
            }
            for queued in waiting(self.queues, queue) {
                let owner = queued.owner.as_bytes();
                if hold.excludes(owner, &queued.claim) && waits(owner, &queued.claim) {
                    found.push(queued.owner_id);
                }
            }
        } else {
            let (stuck, moving) = match swept.holders {
                Holders::Together { stuck, moving } => (stuck + 1, moving - 1),
                _ => (1, lock.live_holders(now) - 1),
            };
            swept.holders = Holders::Together { stuck, moving };
            let others_are_stuck = |owner: &[u8]| match lock.live_hold(owner, now) {
                Some(_) => moving == 1,
                None => moving == 0,
            };
            // The new owner is stuck from the beginning: it counts as a holder that is.
            let own = usize::from(lock.live_hold(new, now).is_some());
            if moving == 0 && stuck > own && goals.clone().any(|goal| waits(new, &goal.claim)) {
                return because();
            }
            if moving > 1 {
                return None;
            }
            for queued in waiting(self.queues, queue) {
                let owner = queued.owner.as_bytes();
                if waits(owner, &queue.under_limit(queued.claim)) && others_are_stuck(owner) {
                    found.push(queued.owner_id);
                }
            }
        }
        drop(entry);
        found.into_iter().for_each(|id| self.becomes_stuck(id, who, &queue.key));
        None
    }

    /// The key of the new request is shared, and nobody waits for it yet: whether its holders are stuck.
    fn by_holders_of_shared(&mut self) -> Option<Because> {
        let key = self.shared.clone()?;
        let (new, claim, now) = (self.new.owner(), &self.new.request.claim, self.now.timestamp());
        let mut entry = self.keys.open(key.as_ref());
        let Content::Lock(lock) = entry.content() else { return None };
        let stuck = |holder: &Owner| {
            let id = self.queues.owner_id(key.db, holder.as_bytes());
            id.filter(|id| self.stuck.contains_key(id))
        };
        let blocker = match lock.blockers(new, claim, now) {
            Blockers::Each(mut holders) if self.order.len() >= lock.holders() => holders.find_map(stuck)?,
            Blockers::Each(_) => {
                let excludes = |id: &&OwnerId| {
                    let hold = self.queues.owner(**id).and_then(|owner| lock.live_hold(owner.as_bytes(), now));
                    hold.is_some_and(|hold| hold.excludes(new, claim))
                };
                *self.order.iter().find(excludes)?
            }
            Blockers::Together(holders) => {
                let mut last = None;
                for holder in holders {
                    last = Some(stuck(holder)?);
                }
                last?
            }
        };
        Some(Because { blocker: Who::Other(blocker), key: key.name.clone() })
    }
}

/// Those who stand behind.
impl<'a, K: Keys> Stuck<'a, K> {
    /// Finds whom a stuck request makes stuck that stand behind it.
    fn stands_ahead(&mut self, id: QueueId, ahead: &Ahead<'_>) -> Option<Because> {
        self.work += 1;
        let is_swept = |swept: &Swept| swept.passed.is_empty() && swept.behind.is_some_and(|from| from <= ahead.place);
        if !self.goals.contains_key(&id) && self.swept.get(&id).is_some_and(is_swept) {
            return None;
        }
        let queue = self.queues.get(id)?;
        if ahead.who != Who::New && self.makes_new_stuck(id, ahead) {
            return Some(Because { blocker: ahead.who, key: queue.key.name.clone() });
        }
        if !queue.is_anybody_behind(ahead.place) {
            return None;
        }
        let swept = self.swept.entry(id).or_default();
        let passed = std::mem::take(&mut swept.passed);
        let from = ahead.place;
        // What is behind these is swept already.
        let unswept = match ahead.claim.is_read() {
            true => [swept.behind, swept.behind_reader].into_iter().flatten().min(),
            false => swept.behind,
        };
        if unswept.is_none_or(|unswept| from < unswept) {
            let behind = if ahead.claim.is_read() { &mut swept.behind_reader } else { &mut swept.behind };
            *behind = Some(from);
        }
        let fresh = self.not_stuck_between(id, queue, from, unswept);
        let passed_before = passed.len();
        let mut still_passed = Vec::new();
        for (index, request_id) in passed.into_iter().chain(fresh).enumerate() {
            let Some(queued) = self.queues.request(request_id).filter(|queued| !self.is_stuck(queued.owner_id)) else {
                continue;
            };
            let both_read = ahead.claim.is_read() && queued.claim.is_read();
            let passes = match ahead.several {
                _ if queued.place < from => true,
                Some(several) => self.passes(queued.owner_id, several, from),
                // Fresh readers are found again by the sweep for all.
                None => both_read && index < passed_before,
            };
            if passes {
                still_passed.push(request_id);
            } else if !both_read {
                self.becomes_stuck(queued.owner_id, ahead.who, &queue.key);
            }
        }
        self.swept.entry(id).or_default().passed = still_passed;
        None
    }

    /// The requests behind `from`, up to `unswept`, that wait for this key and whose owners are not stuck.
    fn not_stuck_between(
        &mut self,
        id: QueueId,
        queue: &WaitQueue,
        from: Place,
        unswept: Option<Place>,
    ) -> Vec<RequestId> {
        let mut fresh = Vec::new();
        let mut may_hold = false;
        for (_, request_id) in queue.behind(from).take_while(|(place, _)| unswept.is_none_or(|end| *place <= end)) {
            let Some(queued) = self.queues.request(request_id) else { continue };
            if self.is_stuck(queued.owner_id) {
                continue;
            }
            may_hold = may_hold || self.queues.may_be_held_by(id, queued.owner_id);
            fresh.push(request_id);
        }
        if may_hold {
            // Who holds the key already waits for its other keys.
            if let Content::Lock(lock) = self.keys.open(queue.key.as_ref()).content() {
                let has_it = |queued: &QueuedRequest| {
                    lock.admission(queued.owner.as_bytes(), &queue.under_limit(queued.claim))
                        == Ok(Admission::AlreadyHeld)
                };
                fresh.retain(|id| !self.queues.request(*id).is_some_and(has_it));
            }
        }
        fresh
    }

    /// Whether the new owner has a request behind that has to wait for it.
    fn makes_new_stuck(&mut self, id: QueueId, ahead: &Ahead<'_>) -> bool {
        let Some(goals) = self.goals.get(&id) else { return false };
        let waits = |goal: &Goal| goal.place > ahead.place && !(goal.claim.is_read() && ahead.claim.is_read());
        goals.iter().any(waits) && !ahead.several.is_some_and(|several| self.new_passes(several, ahead.place))
    }

    /// Whether this owner passes a request for several keys.
    fn passes(&mut self, id: OwnerId, several: &[QueueId], place: Place) -> bool {
        let (queues, new) = (self.queues, self.new);
        let passes = self.passes.entry(id).or_insert_with(|| {
            let requests = queues.waiting(id).map(|(_, queued)| queued);
            Passes::new(queues, new.db, queues.owner(id).map_or(&[], Owner::as_bytes), requests)
        });
        passes.passes(self.keys, several, place)
    }

    fn new_passes(&mut self, several: &[QueueId], place: Place) -> bool {
        let mut passes = self.passes_of_new.take().unwrap_or_else(|| {
            let requests = self.requests_of(Who::New);
            let mut passes = Passes::new(self.queues, self.new.db, self.new.owner(), requests);
            self.new_queues.iter().for_each(|queue| passes.stands_at(*queue, self.new.place));
            passes
        });
        let is_passed = passes.passes(self.keys, several, place);
        self.passes_of_new = Some(passes);
        is_passed
    }
}

impl<'a> Passes<'a> {
    fn new(
        queues: &'a WaitQueues,
        db: i32,
        owner: &'a [u8],
        requests: impl Iterator<Item = &'a QueuedRequest>,
    ) -> Passes<'a> {
        let mut passes = Passes { held: Passing::new(queues, db, owner), stands: IdMap::default() };
        for queued in requests {
            queued.queues.iter().for_each(|queue| passes.stands_at(*queue, queued.place));
        }
        passes
    }

    fn stands_at(&mut self, queue: QueueId, place: Place) {
        let first = self.stands.entry(queue).or_insert(place);
        *first = place.min(*first);
    }

    /// Whether it passes a request for these keys at this place: it holds one of them, or will hold it before.
    fn passes<K: Keys>(&mut self, keys: &mut K, several: &[QueueId], place: Place) -> bool {
        let will_hold = match self.stands.len() < several.len() {
            true => self.stands.iter().any(|(queue, first)| *first < place && several.contains(queue)),
            false => several.iter().any(|queue| self.stands.get(queue).is_some_and(|first| *first < place)),
        };
        will_hold || self.held.is_waited_for(keys, several)
    }
}

fn waiting<'a>(queues: &'a WaitQueues, queue: &'a WaitQueue) -> impl Iterator<Item = &'a QueuedRequest> {
    queue.present().filter_map(|(_, id)| queues.request(id))
}
