//! Who waits for which key, in which order.
//!
//! Every key that is waited for has a `Line`. A request stands in the line of each of its keys, at the place that its arrival gave it;
//! one number for all lines, so that requests for several keys cannot cross. A request whose client is away for a moment keeps
//! its place, but is passed over. Requests and their order are all that is here: who is admitted is decided in `desk`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;

use super::claim::{Ask, Claim, Kind};
use super::numbered::Numbered;
use super::owner::Owner;
use super::shrink;
use super::state::Lock;
use super::time::At;

/// A key of a database. Copies share the name: a hand-off makes several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub db: i32,
    pub name: Rc<[u8]>,
}

impl Key {
    pub fn new(db: i32, name: &[u8]) -> Key {
        Key { db, name: name.into() }
    }

    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef { db: self.db, name: &self.name }
    }
}

/// A key of a database, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRef<'a> {
    pub db: i32,
    pub name: &'a [u8],
}

impl KeyRef<'_> {
    pub fn to_key(self) -> Key {
        Key::new(self.db, self.name)
    }
}

/// Names a request for as long as the process lives; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names a line for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub u64);

/// A client connection, by the server's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Where a request stands: a reader that wants to write stands before all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub rank: Rank,
    pub arrival: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Upgrade,
    Normal,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Request {
    pub ask: Ask,
    pub lines: Vec<LineId>,
    pub place: Place,
    pub since: At,
    /// When the client stops waiting; `None`: never.
    pub until: Option<At>,
    /// The connection that asked, to which SESSION binds the grant.
    pub session: Option<ClientId>,
    /// Whether it may keep its place when it goes away: not for a token that the server made up.
    pub may_come_back: bool,
    /// Since which departure (a running number) it is away.
    away: Option<u64>,
}

impl Request {
    pub fn is_present(&self) -> bool {
        self.away.is_none()
    }
}

/// What is known of a key that is waited for.
#[derive(Debug)]
pub struct Line {
    pub key: Key,
    pub kind: Kind,
    /// The LIMIT of the newest request; 0 for what is no semaphore.
    pub limit: u32,
    present: BTreeMap<Place, RequestId>,
    away: usize,
    /// The holders when last looked at, as entered in `holders` of the queue; empty where there are many.
    holders: Vec<Owner>,
}

impl Line {
    /// The requests whose clients are there, first come first.
    pub fn present(&self) -> impl DoubleEndedIterator<Item = (Place, RequestId)> + '_ {
        self.present.iter().map(|(place, id)| (*place, *id))
    }

    /// The first one behind `place`, or of all.
    pub fn next_after(&self, place: Option<Place>) -> Option<(Place, RequestId)> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        self.present.range((from, Bound::Unbounded)).next().map(|(place, id)| (*place, *id))
    }

    /// The nearest requests ahead of `place`, nearest first.
    pub fn ahead_of(&self, place: Place) -> impl Iterator<Item = RequestId> + '_ {
        self.present.range(..place).rev().map(|(_, id)| *id)
    }

    /// How many wait; who is away does not count.
    pub fn waiters(&self) -> usize {
        self.present.len()
    }
}

/// Of so many holders of a waited-for key each is entered by name; where there are more, the key is looked at instead.
const FEW_HOLDERS: usize = 16;

/// All lines of one server.
#[derive(Debug, Default)]
pub struct Queue {
    lines: Numbered<LineId, Line>,
    by_key: Numbered<i32, HashMap<Rc<[u8]>, LineId>>,
    requests: Numbered<RequestId, Request>,
    /// By the first of its lines, so that a retry is found among thousands.
    by_owner: HashMap<(i32, Owner), BTreeSet<(LineId, RequestId)>>,
    /// Away, the one gone longest first.
    away: BTreeMap<u64, RequestId>,
    /// How many waited-for keys an owner holds, those with many holders left out.
    holders: HashMap<(i32, Owner), u32>,
    /// The waited-for keys with many holders, and their databases.
    crowded: Numbered<LineId, i32>,
    next_number: u64,
}

/// A request that is about to queue.
pub struct Arrival {
    pub ask: Ask,
    pub db: i32,
    pub rank: Rank,
    pub since: At,
    pub until: Option<At>,
    pub session: Option<ClientId>,
    pub may_come_back: bool,
}

impl Queue {
    /// Nobody waits and nobody has a place.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How many requests wait; who is away does not count.
    pub fn waiters(&self) -> usize {
        self.requests.len() - self.away.len()
    }

    /// How many places are kept.
    pub fn kept_places(&self) -> usize {
        self.away.len()
    }

    pub fn line_of(&self, db: i32, name: &[u8]) -> Option<LineId> {
        self.by_key.get(&db).and_then(|names| names.get(name)).copied()
    }

    pub fn line(&self, id: LineId) -> Option<&Line> {
        self.lines.get(&id)
    }

    pub fn lines(&self) -> impl Iterator<Item = (LineId, &Line)> + '_ {
        self.lines.iter().map(|(id, line)| (*id, line))
    }

    pub fn request(&self, id: RequestId) -> Option<&Request> {
        self.requests.get(&id)
    }

    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &Request)> + '_ {
        self.requests.iter().map(|(id, request)| (*id, request))
    }

    /// The queued requests of an owner, whether their clients are there or away.
    pub fn requests_of(&self, db: i32, owner: &Owner) -> impl Iterator<Item = RequestId> + '_ {
        self.by_owner.get(&(db, owner.clone())).into_iter().flatten().map(|(_, id)| *id)
    }

    /// The queued request of which this one is a retry: same owner, keys, mode and number.
    pub fn find_retried(&self, db: i32, names: &[&[u8]], ask: &Ask) -> Option<RequestId> {
        let line_of = |name: &&[u8]| self.line_of(db, name);
        let (one, others) = names.split_first()?;
        let first = others.iter().try_fold(line_of(one)?, |first, name| line_of(name).map(|line| first.min(line)))?;
        let has_same_lines = |request: &Request| match request.lines[..] {
            [line] => names.len() == 1 && line == first,
            _ => {
                request.lines.len() == names.len()
                    && names.iter().filter_map(line_of).all(|line| request.lines.contains(&line))
            }
        };
        let is_same = |id: &RequestId| {
            self.requests.get(id).is_some_and(|request| {
                request.ask.claim.kind() == ask.claim.kind()
                    && ask.claim.is_retry_of(&request.ask.claim)
                    && has_same_lines(request)
            })
        };
        let there = self.by_owner.get(&(db, ask.owner.clone()))?;
        there.range((first, RequestId(0))..=(first, RequestId(u64::MAX))).map(|(_, id)| *id).find(is_same)
    }

    /// A place behind everyone who is there now.
    pub fn last_place(&self, rank: Rank) -> Place {
        Place { rank, arrival: self.next_number }
    }

    /// Puts a request in the lines of its keys, at `place` (that of the request it takes over) or behind everyone.
    pub fn enter(&mut self, arrival: Arrival, names: &[&[u8]], place: Option<Place>) -> RequestId {
        let place = place.unwrap_or_else(|| self.last_place(arrival.rank));
        let id = RequestId(self.number());
        let kind = arrival.ask.claim.kind();
        let lines: Vec<_> = names.iter().map(|name| self.line_for(arrival.db, name, kind)).collect();
        for line in &lines {
            let line = self.lines.get_mut(line).expect("line_for made it");
            line.present.insert(place, id);
            if let Claim::Permits { limit, .. } = arrival.ask.claim {
                line.limit = limit;
            }
        }
        let first = lines.iter().min().copied().unwrap_or(LineId(0));
        self.by_owner.entry((arrival.db, arrival.ask.owner.clone())).or_default().insert((first, id));
        let request = Request {
            ask: arrival.ask,
            lines,
            place,
            since: arrival.since,
            until: arrival.until,
            session: arrival.session,
            may_come_back: arrival.may_come_back,
            away: None,
        };
        self.requests.insert(id, request);
        id
    }

    /// Takes a request out for good, and the lines that are empty then.
    pub fn leave(&mut self, id: RequestId) -> Option<Request> {
        let request = self.requests.remove(&id)?;
        if let Some(away) = request.away {
            self.away.remove(&away);
        }
        let mut db = 0;
        for line_id in &request.lines {
            let Some(line) = self.lines.get_mut(line_id) else { continue };
            db = line.key.db;
            match request.away {
                Some(_) => line.away -= 1,
                None => drop(line.present.remove(&request.place)),
            }
            if line.present.is_empty() && line.away == 0 {
                self.close(*line_id);
            }
        }
        if let Entry::Occupied(mut ids) = self.by_owner.entry((db, request.ask.owner.clone())) {
            ids.get_mut().remove(&(request.lines.iter().min().copied().unwrap_or(LineId(0)), id));
            if ids.get().is_empty() {
                ids.remove();
            }
        }
        shrink::map(&mut self.requests);
        shrink::map(&mut self.by_owner);
        Some(request)
    }

    /// The client is away: the request keeps its place, but is passed over.
    pub fn step_out(&mut self, id: RequestId) {
        let number = self.number();
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.is_present()) else { return };
        request.away = Some(number);
        self.away.insert(number, id);
        for line in &request.lines {
            if let Some(line) = self.lines.get_mut(line) {
                line.present.remove(&request.place);
                line.away += 1;
            }
        }
    }

    /// The request that has been away longest.
    pub fn longest_away(&self) -> Option<RequestId> {
        self.away.first_key_value().map(|(_, id)| *id)
    }

    /// Notes who holds the key of a line, as far as [`Queue::may_be_waited_for`] asks.
    pub fn note_holders(&mut self, id: LineId, lock: Option<&Lock>) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let db = line.key.db;
        // One owner after the other, as a hand-off has it: no new list.
        if let (Some(owner), [noted]) = (lock.and_then(Lock::sole_owner), &mut *line.holders) {
            if owner != noted {
                let before = std::mem::replace(noted, owner.clone());
                *self.holders.entry((db, owner.clone())).or_default() += 1;
                self.forget_holder(db, before);
            }
            return;
        }
        let now = lock.map_or(Some(Vec::new()), |lock| lock.owners_if_few(FEW_HOLDERS));
        match &now {
            Some(_) => self.crowded.remove(&id),
            None => self.crowded.insert(id, db),
        };
        let now = now.unwrap_or_default();
        if line.holders == now {
            return;
        }
        let before = std::mem::replace(&mut line.holders, now.clone());
        for owner in now {
            *self.holders.entry((db, owner)).or_default() += 1;
        }
        before.into_iter().for_each(|owner| self.forget_holder(db, owner));
    }

    /// Whether anybody may be waiting for this owner: false is certain, and spares the search for a circle. `holds` tells whether the owner
    /// holds the shared lock of a line.
    pub fn may_be_waited_for(&self, db: i32, owner: &Owner, mut holds: impl FnMut(&Key) -> bool) -> bool {
        self.requests_of(db, owner).any(|id| self.requests.get(&id).is_some_and(Request::is_present))
            || self.holders.contains_key(&(db, owner.clone()))
            || self
                .crowded
                .iter()
                .filter(|(_, crowd_db)| **crowd_db == db)
                .filter_map(|(id, _)| self.lines.get(id))
                .any(|line| holds(&line.key))
    }

    /// Sets the limit that counts for a semaphore's line; whether it is another one.
    pub fn set_limit(&mut self, id: LineId, limit: u32) -> bool {
        let line = self.lines.get_mut(&id);
        line.is_some_and(|line| std::mem::replace(&mut line.limit, limit) != limit)
    }

    /// Whether nothing is left of those who waited.
    #[cfg(test)]
    pub fn is_clean(&self) -> bool {
        self.by_key.is_empty()
            && self.requests.is_empty()
            && self.by_owner.is_empty()
            && self.away.is_empty()
            && self.holders.is_empty()
            && self.crowded.is_empty()
    }

    fn line_for(&mut self, db: i32, name: &[u8], kind: Kind) -> LineId {
        if let Some(id) = self.line_of(db, name) {
            let line = self.lines.get_mut(&id).expect("by_key names lines that exist");
            // Only kept places are left: the family is the newcomer's.
            if line.present.is_empty() && line.kind != kind {
                line.kind = kind;
                line.limit = 0;
            }
            return id;
        }
        let id = LineId(self.number());
        self.by_key.entry(db).or_default().insert(name.into(), id);
        let line =
            Line { key: Key::new(db, name), kind, limit: 0, present: BTreeMap::new(), away: 0, holders: Vec::new() };
        self.lines.insert(id, line);
        id
    }

    fn close(&mut self, id: LineId) {
        let Some(line) = self.lines.remove(&id) else { return };
        shrink::map(&mut self.lines);
        self.crowded.remove(&id);
        line.holders.into_iter().for_each(|owner| self.forget_holder(line.key.db, owner));
        if let Some(names) = self.by_key.get_mut(&line.key.db) {
            names.remove(&line.key.name);
            shrink::map(names);
            if names.is_empty() {
                self.by_key.remove(&line.key.db);
            }
        }
    }

    fn forget_holder(&mut self, db: i32, owner: Owner) {
        if let Entry::Occupied(mut count) = self.holders.entry((db, owner)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
                shrink::map(&mut self.holders);
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}
