//! Finds the circle that a request would close: owners that wait for each other, over any mix of families.
//!
//! A request waits for the holders it conflicts with and for the waiters ahead of it. One blocker that never moves is enough to block it,
//! except at a semaphore, where any holder's permits may do: it is blocked for ever only if all of its holders are.

use std::collections::HashMap;
use std::rc::Rc;

use super::claim::{Ask, Claim, Kind, Mode};
use super::owner::Owner;
use super::queue::{Key, KeyRef, Place, Queue};
use super::state::Lock;
use super::time::Now;
use super::world::{Found, World};

/// A request that is about to queue.
pub struct Stand<'a> {
    pub db: i32,
    pub names: &'a [&'a [u8]],
    pub ask: &'a Ask,
    pub place: Place,
}

/// One side of a circle: `owner` waits for the next link's owner, on `key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub owner: Owner,
    pub key: Rc<[u8]>,
}

/// The circle that the request would close, beginning with its own owner; `None`: it may wait.
pub fn find<W: World>(queue: &Queue, world: &mut W, now: &Now, stand: &Stand<'_>) -> Option<Vec<Link>> {
    let asker = &stand.ask.owner;
    let keys: Vec<Key> = stand.names.iter().map(|name| Key::new(stand.db, name)).collect();
    if waits_for_itself(world, &keys, stand.ask) {
        return Some(vec![Link { owner: asker.clone(), key: stand.names[0].into() }]);
    }
    let holds = |key: &Key| matches!(world.find(key.as_ref()), Found::Lock(lock) if lock.is_held_by(asker.as_bytes()));
    if !queue.may_be_waited_for(stand.db, asker, holds) {
        return None;
    }
    Graph::around(queue, world, now, stand, &keys).circle()
}

/// More permits than are left when its own are counted: nobody else can end that.
fn waits_for_itself<W: World>(world: &mut W, keys: &[Key], ask: &Ask) -> bool {
    let (Claim::Permits { limit, .. }, [key]) = (ask.claim, keys) else { return false };
    match world.find(key.as_ref()) {
        Found::Lock(lock) => lock
            .hold(ask.owner.as_bytes(), super::time::Deadline::Never)
            .is_some_and(|hold| hold.holds.saturating_add(ask.claim.amount()) > limit && is_step(&ask.claim)),
        _ => false,
    }
}

fn is_step(claim: &Claim) -> bool {
    matches!(claim, Claim::Permits { count: super::claim::Count::Step(_), .. })
}

/// Blockers of one owner on one key, all of which must be stuck for it to be stuck.
struct Group {
    blocked: usize,
    key: Rc<[u8]>,
    free: usize,
}

/// By whom an owner is kept from moving, on which key; `None` while it is not known to be stuck.
type Stuck = Option<(usize, Rc<[u8]>)>;

/// Who waits for whom, as far as it can be reached from the asker, who is node 0.
#[derive(Default)]
struct Graph {
    owners: Vec<Owner>,
    numbers: HashMap<Owner, usize>,
    groups: Vec<Group>,
    /// The groups in which an owner stands.
    stands_in: Vec<Vec<usize>>,
}

impl Graph {
    fn around<W: World>(queue: &Queue, world: &mut W, now: &Now, stand: &Stand<'_>, keys: &[Key]) -> Graph {
        let mut graph = Graph::default();
        graph.number(&stand.ask.owner);
        graph.add_request(queue, world, now, stand.ask, stand.place, keys);
        let mut next = 1;
        while next < graph.owners.len() {
            let owner = graph.owners[next].clone();
            for request in queue.requests_of(stand.db, &owner).filter_map(|id| queue.request(id)) {
                if request.is_present() {
                    let lines = request.lines.iter().filter_map(|line| queue.line(*line));
                    let keys: Vec<Key> = lines.map(|line| line.key.clone()).collect();
                    graph.add_request(queue, world, now, &request.ask, request.place, &keys);
                }
            }
            next += 1;
        }
        graph
    }

    fn add_request<W: World>(
        &mut self,
        queue: &Queue,
        world: &mut W,
        now: &Now,
        ask: &Ask,
        place: Place,
        keys: &[Key],
    ) {
        let blocked = self.number(&ask.owner);
        for key in keys {
            let (holders, all) = match world.find(key.as_ref()) {
                Found::Lock(lock) => (blocking_holders(lock, ask, now), lock.kind() == Some(Kind::Semaphore)),
                _ => (Vec::new(), false),
            };
            if all {
                self.add_group(blocked, key, &holders);
            } else {
                holders.iter().for_each(|holder| self.add_group(blocked, key, std::slice::from_ref(holder)));
            }
            if let Some(ahead) = blocking_waiter(queue, world, ask, place, key.as_ref()) {
                self.add_group(blocked, key, &[ahead]);
            }
        }
    }

    fn add_group(&mut self, blocked: usize, key: &Key, blockers: &[Owner]) {
        if blockers.is_empty() {
            return;
        }
        let group = self.groups.len();
        self.groups.push(Group { blocked, key: key.name.clone(), free: blockers.len() });
        for blocker in blockers {
            let number = self.number(blocker);
            self.stands_in[number].push(group);
        }
    }

    fn number(&mut self, owner: &Owner) -> usize {
        if let Some(number) = self.numbers.get(owner) {
            return *number;
        }
        let number = self.owners.len();
        self.owners.push(owner.clone());
        self.numbers.insert(owner.clone(), number);
        self.stands_in.push(Vec::new());
        number
    }

    /// Goes from the asker to those whom it keeps from moving, and on; if that leads back to the asker, it is a circle.
    fn circle(mut self) -> Option<Vec<Link>> {
        let mut stuck: Vec<Stuck> = vec![None; self.owners.len()];
        let mut todo = vec![0];
        while let Some(blocker) = todo.pop() {
            for group in std::mem::take(&mut self.stands_in[blocker]) {
                let group = &mut self.groups[group];
                group.free -= 1;
                if group.free > 0 || stuck[group.blocked].is_some() {
                    continue;
                }
                stuck[group.blocked] = Some((blocker, group.key.clone()));
                if group.blocked == 0 {
                    return Some(self.links(&stuck));
                }
                todo.push(group.blocked);
            }
        }
        None
    }

    fn links(&self, stuck: &[Stuck]) -> Vec<Link> {
        let mut links = Vec::new();
        let mut at = 0;
        while let Some((blocker, key)) = &stuck[at] {
            links.push(Link { owner: self.owners[at].clone(), key: key.clone() });
            at = *blocker;
            if at == 0 || links.len() > self.owners.len() {
                break;
            }
        }
        links
    }
}

/// The holders that keep the claim from being admitted.
fn blocking_holders(lock: &Lock, ask: &Ask, now: &Now) -> Vec<Owner> {
    let holds = lock.holds(super::time::Deadline::Never).into_iter();
    let others = holds.filter(|hold| *hold.owner != ask.owner && !hold.until.is_over(now.at()));
    let reads = matches!(ask.claim, Claim::Rw(Mode::Read, _));
    others.filter(|hold| !reads || hold.holds > 0).map(|hold| hold.owner.clone()).collect()
}

/// The nearest waiter ahead that has to be served first. It waits for those ahead of it in its turn, so one is enough.
fn blocking_waiter<W: World>(queue: &Queue, world: &mut W, ask: &Ask, place: Place, key: KeyRef<'_>) -> Option<Owner> {
    let line = queue.line_of(key.db, key.name).and_then(|line| queue.line(line))?;
    let reads = matches!(ask.claim, Claim::Rw(Mode::Read, _));
    for request in line.ahead_of(place).filter_map(|id| queue.request(id)) {
        let both_read = reads && matches!(request.ask.claim, Claim::Rw(Mode::Read, _));
        if request.ask.owner == ask.owner || both_read {
            continue;
        }
        let holds_a_key = |world: &mut W| {
            request.lines.len() > 1
                && request.lines.iter().filter_map(|line| queue.line(*line)).any(|line| {
                    matches!(world.find(line.key.as_ref()), Found::Lock(lock) if lock.is_held_by(ask.owner.as_bytes()))
                })
        };
        if !holds_a_key(world) {
            return Some(request.ask.owner.clone());
        }
    }
    None
}
