//! An invented server for tests: a keyspace with a replica beside it that gets nothing but the effects, and clients
//! that note their answers. Time passes when a step says so.

use std::cell::Cell;
use std::collections::HashMap;

use crate::host::{Clients, Content, Delivery, Effect, Entry, Gate, Host, Keys, Park, WaitOutcome};
use crate::key::{Key, KeyRef, RequestId};
use crate::value::fence::Fence;
use crate::value::holders::Holder;
use crate::value::lock::{FirstGrant, Lock};
use crate::value::outcome::Hold;
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Now, Timestamp};

thread_local! {
    /// The invented clock: `Now` takes a plain function.
    static CLOCK_MS: Cell<u64> = const { Cell::new(0) };
}

/// A server as the rules see it.
pub(crate) struct SimulatedServer {
    pub keyspace: Keyspace,
    pub inbox: Inbox,
}

impl Default for SimulatedServer {
    fn default() -> SimulatedServer {
        let keyspace = Keyspace {
            now_ms: 1_000,
            primary: HashMap::new(),
            replica: HashMap::new(),
            gate: Gate::Open,
            removed: Vec::new(),
            effects: Vec::new(),
        };
        SimulatedServer { keyspace, inbox: Inbox::default() }
    }
}

impl SimulatedServer {
    /// The time of a decision that is made now.
    pub fn now(&self) -> Now {
        CLOCK_MS.set(self.keyspace.now_ms);
        Now::by(|| CLOCK_MS.get() * 1_000)
    }

    pub fn host<'a>(&'a mut self, now: &'a Now) -> Host<'a, &'a mut Keyspace, &'a mut Inbox> {
        Host { keys: &mut self.keyspace, clients: &mut self.inbox, now }
    }
}

/// A lock with its key's own deadline.
type Stored = (Lock, Deadline);

/// The keys of a primary, and of a replica that knows the effects alone.
pub(crate) struct Keyspace {
    pub now_ms: u64,
    pub primary: HashMap<Key, Stored>,
    pub replica: HashMap<Key, Stored>,
    pub gate: Gate,
    /// Locks that ended outside the rules, with their fences; the lock manager is still to be told.
    pub removed: Vec<(Key, Fence)>,
    /// What the replica was told, in order.
    pub effects: Vec<Sent>,
}

/// What a replica is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Hold(Owner),
    Renew(Owner),
    Drop(Owner),
    Limit(u32),
    Clamp,
    Delete,
}

impl Keyspace {
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_ms(self.now_ms)
    }

    /// Removes the key if its time to live is over.
    pub fn expire(&mut self, key: &Key) {
        if self.primary.get(key).is_some_and(|(_, until)| until.is_over(self.timestamp())) {
            self.delete(key);
        }
    }

    /// What DEL, an eviction or the end of the time to live does.
    pub fn delete(&mut self, key: &Key) {
        if let Some((lock, _)) = self.primary.remove(key) {
            self.replica.remove(key);
            self.removed.extend(lock.fence().map(|fence| (key.clone(), fence)));
        }
    }

    /// What PEXPIREAT does.
    pub fn set_deadline(&mut self, key: &Key, when: Timestamp) {
        self.expire(key);
        for keys in [&mut self.primary, &mut self.replica] {
            if let Some((_, until)) = keys.get_mut(key) {
                *until = Deadline::At(when);
            }
        }
    }

    /// As a dump and its load do: every hold as it is stored, and the key's own time to live.
    pub fn reload_replica(&mut self) {
        self.replica.clear();
        for (key, (lock, until)) in &self.primary {
            let kind = lock.family_and_limit().expect("no vacant lock is stored");
            let holders = lock.stored_holds().iter().map(to_holder).collect();
            let copy = Lock::from_parts(kind, lock.fence().expect("it is not vacant"), holders);
            self.replica.insert(key.clone(), (copy.expect("what is stored can be loaded"), *until));
        }
    }

    fn replicate_hold(&mut self, key: &Key, owner: &[u8]) {
        let (lock, until) = &self.primary[key];
        let hold = lock.hold(owner, *until).expect("an effect is sent of a hold that is there");
        let (kind, until) = (lock.family_and_limit().expect("somebody holds it"), *until);
        let copy = self.replica.entry(key.clone()).or_insert((Lock::Vacant, until));
        assert!(copy.0.apply_hold(kind, to_holder(&hold)), "no replica can have such a hold");
        copy.1 = copy.0.last_deadline().unwrap_or(until);
    }
}

impl Keys for &mut Keyspace {
    type Entry<'e>
        = OpenKey<'e>
    where
        Self: 'e;

    fn open<'e>(&'e mut self, key: KeyRef<'e>) -> OpenKey<'e> {
        let key = key.to_key();
        self.expire(&key);
        OpenKey { keyspace: self, key }
    }

    fn gate(&mut self, _: KeyRef<'_>) -> Gate {
        self.gate
    }
}

/// A key of the keyspace, open.
pub(crate) struct OpenKey<'e> {
    keyspace: &'e mut Keyspace,
    key: Key,
}

impl Entry for OpenKey<'_> {
    fn content(&mut self) -> Content<'_> {
        self.keyspace.primary.get_mut(&self.key).map_or(Content::Free, |(lock, _)| Content::Lock(lock))
    }

    fn until(&self) -> Deadline {
        self.keyspace.primary.get(&self.key).map_or(Deadline::Never, |(_, until)| *until)
    }

    fn create(&mut self, first: &FirstGrant<'_>) {
        let before = self.keyspace.primary.insert(self.key.clone(), (first.lock(), first.until()));
        assert!(before.is_none(), "created where something was");
        self.keyspace.effects.push(Sent::Hold(to_owner(first.owner())));
        self.keyspace.replicate_hold(&self.key, first.owner());
    }

    fn update(&mut self, effect: Effect<'_>, until: Option<Deadline>) {
        let stored = self.keyspace.primary.get_mut(&self.key).expect("what is updated is there");
        stored.1 = until.unwrap_or(stored.1);
        let limit = stored.0.semaphore_limit();
        let sent = match effect {
            Effect::Hold(owner) => Sent::Hold(to_owner(owner)),
            Effect::Renew(owner) => Sent::Renew(to_owner(owner)),
            Effect::Drop(owner) => Sent::Drop(to_owner(owner)),
            Effect::Limit => Sent::Limit(limit.expect("only a semaphore has a limit")),
            Effect::Clamp => Sent::Clamp,
        };
        self.keyspace.effects.push(sent.clone());
        if let Sent::Hold(owner) | Sent::Renew(owner) = &sent {
            return self.keyspace.replicate_hold(&self.key, owner.as_bytes());
        }
        let copy = self.keyspace.replica.get_mut(&self.key);
        let (copy, copy_until) = copy.expect("the replica has it too");
        match &sent {
            Sent::Drop(owner) => {
                copy.evict(owner.as_bytes());
                *copy_until = copy.last_deadline().unwrap_or(*copy_until);
                if copy.is_vacant() {
                    self.keyspace.replica.remove(&self.key);
                }
            }
            Sent::Limit(limit) => _ = copy.set_limit(*limit),
            Sent::Clamp => _ = copy.clamp(*copy_until),
            Sent::Hold(_) | Sent::Renew(_) | Sent::Delete => {}
        }
    }

    fn remove(&mut self) {
        self.keyspace.effects.push(Sent::Delete);
        self.keyspace.primary.remove(&self.key);
        self.keyspace.replica.remove(&self.key);
    }
}

/// What the waiters were told.
#[derive(Default)]
pub(crate) struct Inbox {
    pub answers: Vec<(RequestId, WaitOutcome)>,
}

impl Clients for &mut Inbox {
    fn answer(&mut self, request: RequestId, outcome: WaitOutcome) -> Delivery {
        self.answers.push((request, outcome));
        match outcome {
            WaitOutcome::Granted { .. } => Delivery::Pending,
            _ => Delivery::Done,
        }
    }
}

impl Park for &mut Inbox {
    fn park(&mut self, _: RequestId) -> bool {
        true
    }
}

fn to_owner(bytes: &[u8]) -> Owner {
    Owner::new(bytes).expect("effects name owners")
}

fn to_holder(hold: &Hold<'_>) -> Holder {
    Holder {
        owner: hold.owner.clone(),
        fence: hold.fence,
        lease: hold.lease,
        until: hold.until,
        holds: hold.holds,
        reads: hold.reads,
    }
}
