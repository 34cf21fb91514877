//! The bindings of holds to connections, and when their leases are to be renewed.
//!
//! Bindings are never stored with the lock: a key that is removed, moved or restored loses them.
//!
//! Binding and releasing a lock again and again costs no allocation: the binding uses a vacant slot again, with the
//! memory for its name. Slots with the same connection, key or hold are linked in chains.

use super::timer_set::TimerSet;
use crate::hold_hash::{HoldHash, NameSecret};
use crate::key::{ClientId, KeyRef};
use crate::value::fence::Fence;
use crate::value::owner::{Owner, OwnerRef};
use crate::value::time::Instant;

/// The id of a binding; never used again. An older binding has a smaller id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId {
    number: u64,
    slot: Slot,
}

impl BindingId {
    /// The slot of the binding.
    pub fn slot(self) -> Slot {
        self.slot
    }
}

/// The index of a slot. After a binding has gone, another may use its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

/// One owner's hold of one key, bound to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The connection.
    pub client: ClientId,
    /// The holder.
    pub owner: Owner,
    /// The fence of the grant that was bound: the removal of an older lock leaves the binding.
    pub fence: Fence,
    /// When the lease is to be renewed; `None`: it has no end.
    pub renewal: Option<Instant>,
    db: i32,
    name: Vec<u8>,
}

impl Binding {
    /// The key that is held.
    pub fn key(&self) -> KeyRef<'_> {
        KeyRef { db: self.db, name: &self.name }
    }
}

/// A vacant slot keeps the memory of a name up to this length.
const LONGEST_KEPT_NAME: usize = 128;

/// All bindings of one server, found by connection, by key and by hold.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    slots: Vec<Content>,
    vacant: Vec<Slot>,
    /// The first slot of each chain, by the last bits of its hash. The length is a power of two, and no less than the
    /// number of slots.
    first: Vec<[Option<Slot>; CHAINS.len()]>,
    secret: NameSecret,
    last: u64,
    /// When a third of a bound lease may be over. A timer stays when its binding goes and another binding takes the
    /// slot: a timer that fires too early finds nothing due.
    renewals: TimerSet<Slot, Instant>,
    /// Set when the server refused writes: no lease is renewed before this time.
    put_off: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Content {
    /// No binding; only memory for a name.
    Vacant(Vec<u8>),
    Bound(Bound),
}

#[derive(Clone, Debug)]
struct Bound {
    number: u64,
    binding: Binding,
    hashes: [u64; CHAINS.len()],
    before: [Option<Slot>; CHAINS.len()],
    next: [Option<Slot>; CHAINS.len()],
}

/// What the bindings of a chain have in common. A chain also links bindings with other values but the same last bits of
/// the hash: less than one on average.
#[derive(Clone, Copy, Debug)]
enum Chain {
    Client,
    Key,
    Hold,
}

const CHAINS: [Chain; 3] = [Chain::Client, Chain::Key, Chain::Hold];

/// Queries.
impl Bindings {
    /// True if no hold is bound.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.vacant.len() == self.slots.len()
    }

    /// The number of bound holds.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// The binding, if it still exists.
    pub fn get(&self, id: BindingId) -> Option<&Binding> {
        self.bound(id.slot).filter(|bound| bound.number == id.number).map(|bound| &bound.binding)
    }

    /// The id of the binding that is in the slot now.
    fn in_slot(&self, slot: Slot) -> Option<BindingId> {
        self.bound(slot).map(|bound| BindingId { number: bound.number, slot })
    }

    /// All bindings, in no order.
    pub fn ids(&self) -> impl Iterator<Item = BindingId> + '_ {
        (0..self.slots.len()).filter_map(|index| self.in_slot(Slot::of(index)))
    }

    /// The connection that this hold is bound to.
    pub fn client_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<ClientId> {
        self.get(self.binding_of(key, owner)?).map(|binding| binding.client)
    }

    /// The binding of this hold.
    pub fn binding_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<BindingId> {
        if self.is_empty() {
            return None;
        }
        self.find(self.secret.hash_hold(key, owner), key, owner)
    }

    /// Whether a hold of this key is bound.
    pub fn has_key(&self, key: KeyRef<'_>) -> bool {
        !self.is_empty() && self.of_key(key).next().is_some()
    }

    /// The bindings of a connection, in no particular order.
    pub fn of_client(&self, client: ClientId) -> impl Iterator<Item = BindingId> + '_ {
        self.chain(Chain::Client, hash_of(client)).map(|(id, _)| id)
    }

    /// The owners with bound holds of a key, each with its connection.
    pub fn owners_of(&self, key: KeyRef<'_>) -> Vec<(Owner, ClientId)> {
        self.of_key(key).map(|(_, binding)| (binding.owner.clone(), binding.client)).collect()
    }

    fn of_key<'a>(&'a self, key: KeyRef<'a>) -> impl Iterator<Item = (BindingId, &'a Binding)> + 'a {
        self.chain(Chain::Key, self.secret.hash_hold(key, b"").key).filter(move |(_, binding)| binding.key() == key)
    }

    fn find(&self, hash: HoldHash, key: KeyRef<'_>, owner: &[u8]) -> Option<BindingId> {
        let is_it = |binding: &Binding| binding.owner.as_bytes() == owner && binding.key() == key;
        self.chain(Chain::Hold, hash.hold).find(|(_, binding)| is_it(binding)).map(|(id, _)| id)
    }

    fn chain(&self, chain: Chain, hash: u64) -> impl Iterator<Item = (BindingId, &Binding)> + '_ {
        let chain = chain as usize;
        let first = self.first.get(self.last_bits(hash)).and_then(|first| first[chain]);
        let slots = std::iter::successors(first, move |slot| self.bound(*slot)?.next[chain]);
        let bound = slots.filter_map(|slot| Some((slot, self.bound(slot)?)));
        let bound = bound.filter(move |(_, bound)| bound.hashes[chain] == hash);
        bound.map(|(slot, bound)| (BindingId { number: bound.number, slot }, &bound.binding))
    }

    fn last_bits(&self, hash: u64) -> usize {
        hash as usize & self.first.len().wrapping_sub(1)
    }

    fn bound(&self, slot: Slot) -> Option<&Bound> {
        match self.slots.get(slot.index()) {
            Some(Content::Bound(bound)) => Some(bound),
            Some(Content::Vacant(_)) | None => None,
        }
    }
}

/// Changes.
impl Bindings {
    /// Binds the hold to the connection, and to no other connection.
    pub fn bind(
        &mut self,
        client: ClientId,
        key: KeyRef<'_>,
        owner: OwnerRef<'_>,
        fence: Fence,
        renewal: Option<Instant>,
    ) -> BindingId {
        let hash = self.secret.hash_hold(key, owner.as_bytes());
        if let Some(before) = self.find(hash, key, owner.as_bytes()) {
            self.remove(before.slot);
        }
        let slot = self.vacant.pop().unwrap_or_else(|| self.add_slot());
        let hashes = [hash_of(client), hash.key, hash.hold];
        let next = CHAINS.map(|chain| self.put_first(chain as usize, hashes[chain as usize], slot));
        self.last += 1;
        let content = &mut self.slots[slot.index()];
        let Content::Vacant(name) = content else { unreachable!("a vacant slot is vacant") };
        let mut name = std::mem::take(name);
        name.extend_from_slice(key.name);
        let binding = Binding { client, owner: owner.to_owner(), fence, renewal, db: key.db, name };
        *content = Content::Bound(Bound { number: self.last, binding, hashes, before: [None; CHAINS.len()], next });
        if let Some(due) = renewal {
            self.renewals.set_no_later(slot, due);
        }
        BindingId { number: self.last, slot }
    }

    /// The hold is no longer bound to a connection.
    pub fn unbind(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(id) = self.binding_of(key, owner) {
            self.remove(id.slot);
        }
    }

    /// A lock with the latest fence `last` is gone from the key: its holds are no longer bound.
    pub fn unbind_key(&mut self, key: KeyRef<'_>, last: Fence) {
        if self.is_empty() {
            return;
        }
        let is_old = |(_, binding): &(BindingId, &Binding)| binding.fence <= last;
        let old: Vec<_> = self.of_key(key).filter(is_old).map(|(id, _)| id).collect();
        old.iter().for_each(|id| self.remove(id.slot));
    }

    /// The holds of the database, or of all databases, are no longer bound.
    pub fn unbind_db(&mut self, db: Option<i32>) {
        let is_there = |id: &BindingId| self.get(*id).is_some_and(|binding| db.is_none_or(|db| db == binding.db));
        let ids: Vec<_> = self.ids().filter(is_there).collect();
        ids.iter().for_each(|id| self.remove(id.slot));
    }

    fn add_slot(&mut self) -> Slot {
        let slot = Slot::of(self.slots.len());
        self.slots.push(Content::Vacant(Vec::new()));
        if self.slots.len() > self.first.len() {
            self.first = vec![[None; CHAINS.len()]; self.slots.len().next_power_of_two()];
            for slot in (0..self.slots.len()).map(Slot::of) {
                let Some(hashes) = self.bound(slot).map(|bound| bound.hashes) else { continue };
                let next = CHAINS.map(|chain| self.put_first(chain as usize, hashes[chain as usize], slot));
                if let Some(bound) = self.bound_mut(slot) {
                    (bound.before, bound.next) = ([None; CHAINS.len()], next);
                }
            }
        }
        slot
    }

    /// Puts the slot at the head of a chain. Returns the former head.
    fn put_first(&mut self, chain: usize, hash: u64, slot: Slot) -> Option<Slot> {
        let last_bits = self.last_bits(hash);
        let next = self.first[last_bits][chain].replace(slot);
        if let Some(next) = next.and_then(|next| self.bound_mut(next)) {
            next.before[chain] = Some(slot);
        }
        next
    }

    fn remove(&mut self, slot: Slot) {
        let Some(bound) = self.bound_mut(slot) else { return };
        let mut name = std::mem::take(&mut bound.binding.name);
        let (hashes, before, next) = (bound.hashes, bound.before, bound.next);
        name.clear();
        if name.capacity() > LONGEST_KEPT_NAME {
            name = Vec::new();
        }
        self.slots[slot.index()] = Content::Vacant(name);
        self.vacant.push(slot);
        for chain in CHAINS.map(|chain| chain as usize) {
            self.close_gap(chain, hashes[chain], before[chain], next[chain]);
        }
        if self.is_empty() && self.slots.capacity() > MOST_KEPT {
            (self.slots, self.vacant, self.first) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    /// Links the neighbours of a binding that was taken out of a chain.
    fn close_gap(&mut self, chain: usize, hash: u64, before: Option<Slot>, next: Option<Slot>) {
        let last_bits = self.last_bits(hash);
        match before.and_then(|before| self.bound_mut(before)) {
            Some(before) => before.next[chain] = next,
            None => self.first[last_bits][chain] = next,
        }
        if let Some(next) = next.and_then(|next| self.bound_mut(next)) {
            next.before[chain] = before;
        }
    }

    fn bound_mut(&mut self, slot: Slot) -> Option<&mut Bound> {
        match self.slots.get_mut(slot.index()) {
            Some(Content::Bound(bound)) => Some(bound),
            Some(Content::Vacant(_)) | None => None,
        }
    }
}

/// Renewals.
impl Bindings {
    /// Sets when the lease of a binding is to be renewed; `None`: it has no end.
    pub fn renew_at(&mut self, id: BindingId, renewal: Option<Instant>) {
        let Some(bound) = self.bound_mut(id.slot).filter(|bound| bound.number == id.number) else { return };
        bound.binding.renewal = renewal;
        if let Some(due) = renewal {
            self.renewals.set_no_later(id.slot, due);
        }
    }

    /// Renews no lease before `until`: the server refuses writes.
    pub fn put_off_renewals(&mut self, until: Instant) {
        self.put_off = Some(until);
    }

    /// The leases of all bindings are to be renewed now.
    pub fn renew_all(&mut self, now: Instant) {
        for id in self.ids().collect::<Vec<_>>() {
            if self.get(id).is_some_and(|binding| binding.renewal.is_some()) {
                self.renew_at(id, Some(now));
            }
        }
    }

    /// When a lease may have to be renewed.
    pub fn next_renewal(&self) -> Option<Instant> {
        self.renewals.next().map(|due| due.max(self.put_off.unwrap_or(due)))
    }

    /// Takes out a binding with a lease that is to be renewed now. `None` while renewals are put off.
    pub fn take_renewal(&mut self, now: Instant) -> Option<BindingId> {
        if self.put_off.is_some_and(|until| until > now) {
            return None;
        }
        self.put_off = None;
        while let Some(slot) = self.renewals.pop_due(now) {
            let Some(id) = self.in_slot(slot) else { continue };
            match self.get(id).and_then(|binding| binding.renewal) {
                Some(due) if due > now => self.renewals.set(slot, due),
                Some(_) => return Some(id),
                None => {}
            }
        }
        None
    }

    /// True if a lease is to be renewed earlier than at the last call.
    #[inline]
    pub fn take_sooner(&mut self) -> bool {
        self.renewals.take_sooner()
    }

    /// Until when no lease is renewed.
    #[cfg(any(test, feature = "testing"))]
    pub fn renewals_are_put_off(&self) -> Option<Instant> {
        self.put_off
    }

    /// When the lease of each binding is to be renewed.
    #[cfg(any(test, feature = "testing"))]
    pub fn renewals(&self) -> impl Iterator<Item = Instant> + '_ {
        let due = self.ids().filter_map(|id| self.get(id)?.renewal);
        due.map(|due| due.max(self.put_off.unwrap_or(due)))
    }

    /// Drops the timers that would find nothing to do.
    #[cfg(any(test, feature = "testing"))]
    pub fn forget_idle_timers(&mut self) {
        self.renewals = TimerSet::default();
        for id in self.ids().collect::<Vec<_>>() {
            let due = self.get(id).and_then(|binding| binding.renewal);
            due.into_iter().for_each(|due| self.renewals.set(id.slot, due));
        }
    }
}

/// Memory of up to so many slots is kept when no hold is bound any more.
const MOST_KEPT: usize = 1024;

/// Consecutive ids differ in their last bits already, but the ids of one kind of client may not.
fn hash_of(client: ClientId) -> u64 {
    client.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

impl Slot {
    fn of(index: usize) -> Slot {
        Slot(u32::try_from(index).expect("fewer holds than 2^32 are bound"))
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn owner(name: &str) -> Owner {
        Owner::new(name.as_bytes()).unwrap()
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn bind(bindings: &mut Bindings, client: u64, db: i32, name: &str, holder: &str, number: u64) -> BindingId {
        let key = Key::new(db, name.as_bytes());
        bindings.bind(ClientId(client), key.as_ref(), owner(holder).as_ref(), fence(number), None)
    }

    #[test]
    fn a_hold_is_bound_to_the_connection_that_asked_last() {
        let mut bindings = Bindings::default();
        let key = Key::new(0, b"k");
        bind(&mut bindings, 1, 0, "k", "a", 1);
        bind(&mut bindings, 2, 0, "k", "a", 1);
        assert_eq!(bindings.client_of(key.as_ref(), b"a"), Some(ClientId(2)));
        assert_eq!(bindings.of_client(ClientId(1)).count(), 0);
        assert_eq!(bindings.of_client(ClientId(2)).count(), 1);
    }

    #[test]
    fn the_bindings_of_a_removed_key_or_flushed_database_end() {
        let mut bindings = Bindings::default();
        for (db, name) in [(0, "k"), (0, "l"), (1, "k"), (2, "k")] {
            bind(&mut bindings, 1, db, name, "a", 2);
        }
        let key = Key::new(0, b"k");
        bindings.unbind_key(key.as_ref(), fence(1));
        assert_eq!(bindings.ids().count(), 4, "an older lock was removed");
        bindings.unbind_key(key.as_ref(), fence(2));
        assert_eq!((bindings.ids().count(), bindings.client_of(key.as_ref(), b"a")), (3, None));
        bindings.unbind_db(Some(1));
        assert_eq!(bindings.ids().count(), 2);
        bindings.unbind_db(None);
        assert!(bindings.is_empty() && bindings.first.iter().flatten().all(Option::is_none));
    }

    #[test]
    fn an_id_does_not_name_the_next_binding_in_its_slot() {
        let mut bindings = Bindings::default();
        let first = bind(&mut bindings, 1, 0, "k", "a", 1);
        bindings.unbind(Key::new(0, b"k").as_ref(), b"a");
        let second = bind(&mut bindings, 1, 0, "l", "b", 2);
        assert_eq!((first.slot(), first < second), (second.slot(), true));
        assert_eq!((bindings.get(first), bindings.in_slot(first.slot())), (None, Some(second)));
        bindings.renew_at(first, Some(Instant::from_ms(7)));
        assert_eq!(bindings.get(second).map(|binding| (binding.key().name, binding.renewal)), Some((&b"l"[..], None)));
    }

    /// After any sequence of binds and unbinds, each chain has what a plain list has.
    #[test]
    fn each_chain_has_what_a_list_has() {
        let mut bindings = Bindings::default();
        let mut list: Vec<(u64, String, String)> = Vec::new();
        let mut random: u64 = 7;
        for step in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut pick = |n: u64| {
                random = random.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (random >> 40) % n
            };
            let (client, name, holder) = (pick(3), format!("k{}", pick(3)), format!("o{}", pick(4)));
            let key = Key::new(0, name.as_bytes());
            list.retain(|(_, other, owner)| (other, owner) != (&name, &holder));
            match step % 5 {
                0 | 1 => bindings.unbind(key.as_ref(), holder.as_bytes()),
                _ => {
                    bind(&mut bindings, client, 0, &name, &holder, 1);
                    list.push((client, name.clone(), holder.clone()));
                }
            }
            for client in 0..3 {
                let bound = bindings.of_client(ClientId(client)).filter_map(|id| bindings.get(id));
                let mut bound: Vec<_> = bound.map(|bound| (bound.name.clone(), format!("{:?}", bound.owner))).collect();
                let expected = list.iter().filter(|(other, ..)| *other == client);
                let mut expected: Vec<_> =
                    expected.map(|(_, name, owner)| (name.clone().into_bytes(), owner.clone())).collect();
                bound.sort();
                expected.sort();
                assert_eq!(bound, expected, "of client {client} in step {step}");
            }
            let mut owners: Vec<_> = bindings
                .owners_of(key.as_ref())
                .iter()
                .map(|(owner, client)| (format!("{owner:?}"), client.0))
                .collect();
            let expected = list.iter().filter(|(_, other, _)| *other == name);
            let mut expected: Vec<_> = expected.map(|(client, _, owner)| (owner.clone(), *client)).collect();
            owners.sort();
            expected.sort();
            assert_eq!(owners, expected, "of key {name} in step {step}");
        }
        assert!(bindings.slots.len() <= 12, "slots are used again");
    }

    /// Binds the holds of this many keys, each to a connection of its own. Only each eighth id is a client's.
    fn many(count: usize) -> Bindings {
        let mut bindings = Bindings::default();
        (0..count as u64).for_each(|n| _ = bind(&mut bindings, 8 * n, 0, &format!("k{n}"), "a", 1));
        bindings
    }

    #[test]
    fn memory_for_thousands_of_bindings_is_freed_when_no_hold_is_bound() {
        for (count, is_kept) in [(MOST_KEPT, true), (MOST_KEPT + 1, false), (5_000, false)] {
            let mut bindings = many(count);
            bindings.unbind(Key::new(0, b"k7").as_ref(), b"a");
            assert_eq!((bindings.len(), bindings.ids().count()), (count - 1, count - 1), "the others stay");
            bindings.unbind_db(None);
            assert_eq!((bindings.slots.capacity() > 0, bindings.vacant.capacity() > 0), (is_kept, is_kept), "{count}");
            assert_eq!((bindings.len(), bindings.is_empty()), (0, true));
        }
    }

    #[test]
    fn a_vacant_slot_keeps_the_memory_of_a_name_that_is_not_long() {
        for (len, is_kept) in [(1, true), (LONGEST_KEPT_NAME, true), (LONGEST_KEPT_NAME + 1, false)] {
            let (mut bindings, key) = (Bindings::default(), Key::new(0, &vec![b'k'; len]));
            bindings.bind(ClientId(1), key.as_ref(), owner("a").as_ref(), fence(1), None);
            bindings.unbind(key.as_ref(), b"a");
            let Content::Vacant(name) = &bindings.slots[0] else { panic!("the slot is bound") };
            assert_eq!((name.len(), name.capacity() > 0), (0, is_kept), "{len}");
        }
    }

    /// A perfect hash of 1,024 connections, keys or holds begins about 647 chains.
    #[test]
    fn a_chain_links_few_bindings() {
        let bindings = many(1_024);
        for chain in CHAINS {
            let begun = bindings.first.iter().filter(|first| first[chain as usize].is_some()).count();
            assert!(begun > 500, "{chain:?}: {begun} chains");
        }
    }

    #[test]
    fn holds_with_the_same_hash_are_told_apart() {
        let (mut bindings, k, l) = (Bindings::default(), Key::new(0, b"k"), Key::new(0, b"l"));
        let id = bind(&mut bindings, 1, 0, "k", "a", 1);
        let hash = bindings.secret.hash_hold(k.as_ref(), b"a");
        for (key, holder, expected) in [(&k, "a", Some(id)), (&k, "b", None), (&l, "a", None)] {
            assert_eq!(bindings.find(hash, key.as_ref(), holder.as_bytes()), expected, "{key:?} {holder}");
        }
    }

    #[test]
    fn no_lease_is_renewed_while_renewals_are_put_off() {
        let at = Instant::from_ms;
        let mut bindings = Bindings::default();
        let id = bind(&mut bindings, 1, 0, "k", "a", 1);
        let other = bind(&mut bindings, 1, 0, "l", "a", 1);
        bindings.renew_at(id, Some(at(10)));
        bindings.renew_at(other, Some(at(90)));
        bindings.put_off_renewals(at(50));
        assert_eq!(bindings.renewals().collect::<Vec<_>>(), [at(50), at(90)]);
        assert_eq!((bindings.next_renewal(), bindings.take_renewal(at(49))), (Some(at(50)), None));
        assert_eq!(bindings.renewals_are_put_off(), Some(at(50)));
        assert_eq!((bindings.take_renewal(at(50)), bindings.renewals_are_put_off()), (Some(id), None));
    }
}
