//! Finds the deadlock that a request would close: a cycle of owners that wait for each other, over any mix of families.
//!
//! The wait-for graph has owners as nodes. A request waits for the holders that it conflicts with and for the waiters
//! ahead of it. One blocker that never moves is enough to block it, except at a semaphore, where any holder's permits
//! may do: there it is blocked for ever only if all of its holders are.

use std::collections::HashMap;
use std::rc::Rc;

use super::precedence::goes_first;
use super::queues::WaitQueues;
use super::request::Place;
use crate::host::{Content, Entry, Keys};
use crate::key::{Key, KeyRef};
use crate::value::claim::{Claim, Count, LockRequest};
use crate::value::outcome::Blockers;
use crate::value::owner::Owner;
use crate::value::time::{Deadline, Now};

/// A request that is about to queue.
pub struct NewRequest<'a> {
    /// The database of its keys.
    pub db: i32,
    /// Its keys.
    pub names: &'a [&'a [u8]],
    /// Who wants what.
    pub request: LockRequest<'a>,
    /// Where it would stand.
    pub place: Place,
}

/// One edge of a cycle: `owner` waits on `key` for the owner of the next edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Who waits.
    pub owner: Owner,
    /// For which key.
    pub key: Rc<[u8]>,
}

/// Whether the request may close a cycle, as far as can be told without an open key: false is certain, and the rule.
pub fn may_close_cycle(queues: &WaitQueues, new: &NewRequest<'_>) -> bool {
    let takes_more_permits = matches!(new.request.claim, Claim::Permits { count: Count::Step(_), .. });
    takes_more_permits || queues.may_be_waited_for(new.db, new.request.owner.as_bytes(), |_| true)
}

/// The cycle that the request would close, beginning with its own owner; `None`: it may wait.
pub fn find<K: Keys>(queues: &WaitQueues, keys: &mut K, now: &Now, new: &NewRequest<'_>) -> Option<Vec<Edge>> {
    if waits_for_itself(keys, new) {
        return Some(vec![Edge { owner: new.request.owner.to_owner(), key: new.names[0].into() }]);
    }
    let owner = new.request.owner.as_bytes();
    if !queues.may_be_waited_for(new.db, owner, |key| keys.is_held_by(key.as_ref(), owner)) {
        return None;
    }
    let mut search = Search { queues, keys, now, graph: Graph::default() };
    search.explore(new);
    search.graph.cycle()
}

/// More permits than are left when its own are counted: nobody else can end that.
fn waits_for_itself<K: Keys>(keys: &mut K, new: &NewRequest<'_>) -> bool {
    let Claim::Permits { limit, count: Count::Step(permits) } = new.request.claim else { return false };
    new.names.iter().any(|name| match keys.open(KeyRef { db: new.db, name }).content() {
        Content::Lock(lock) => lock
            .hold(new.request.owner.as_bytes(), Deadline::Never)
            .is_some_and(|hold| hold.holds.saturating_add(permits) > limit),
        _ => false,
    })
}

/// Builds the wait-for graph, as far as it can be reached from the new request.
struct Search<'a, K> {
    queues: &'a WaitQueues,
    keys: &'a mut K,
    now: &'a Now,
    graph: Graph,
}

impl<K: Keys> Search<'_, K> {
    fn explore(&mut self, new: &NewRequest<'_>) {
        self.graph.node(&new.request.owner.to_owner());
        for name in new.names {
            self.add_request(&Key::new(new.db, name), &new.request, new.place);
        }
        let mut next = 1;
        while next < self.graph.owners.len() {
            let owner = self.graph.owners[next].clone();
            for id in self.queues.requests_of(new.db, owner.as_bytes()) {
                let queued = self.queues.request(id).filter(|request| request.is_present());
                for queue in queued.iter().flat_map(|queued| &queued.queues).filter_map(|id| self.queues.get(*id)) {
                    let Some(queued) = queued else { continue };
                    let request = LockRequest { claim: queue.under_limit(queued.claim), ..queued.request() };
                    self.add_request(&queue.key, &request, queued.place);
                }
            }
            next += 1;
        }
    }

    /// Adds what the request waits for on one of its keys.
    fn add_request(&mut self, key: &Key, request: &LockRequest<'_>, place: Place) {
        let owner = request.owner.as_bytes();
        let waiter = self.graph.node(&request.owner.to_owner());
        if let Content::Lock(lock) = self.keys.open(key.as_ref()).content() {
            match lock.blockers(owner, &request.claim, self.now.timestamp()) {
                Blockers::Each(holders) => {
                    holders.iter().for_each(|holder| self.graph.add_edge(waiter, key, &[holder]))
                }
                Blockers::Together(holders) => self.graph.add_edge(waiter, key, &holders),
            }
        }
        if let Some(ahead) = self.nearest_ahead(key.as_ref(), request, place) {
            self.graph.add_edge(waiter, key, &[&ahead]);
        }
    }

    /// The nearest waiter ahead that has to be served first. It waits for those ahead of it in its turn, so one is
    /// enough.
    fn nearest_ahead(&mut self, key: KeyRef<'_>, request: &LockRequest<'_>, place: Place) -> Option<Owner> {
        let owner = request.owner.as_bytes();
        let mut ahead = self.queues.of_key(key)?.ahead_of(place).filter_map(|id| self.queues.request(id));
        let blocker = ahead.find(|ahead| {
            // What an owner's earlier request waits for is in the graph already; readers do not wait for each other.
            let is_own = ahead.owner.as_bytes() == owner;
            let both_read = request.claim.is_read() && ahead.claim.is_read();
            !is_own && !both_read && goes_first(self.queues, self.keys, ahead, owner)
        });
        blocker.map(|ahead| ahead.owner.clone())
    }
}

/// Blockers of one owner on one key, all of which must be stuck for it to be stuck.
struct Blocked {
    waiter: usize,
    key: Rc<[u8]>,
    /// Blockers that are not known to be stuck.
    moving: usize,
}

/// By whom an owner is kept from moving, on which key; `None` while it is not known to be stuck.
type Stuck = Option<(usize, Rc<[u8]>)>;

/// Who waits for whom. Node 0 is the owner of the new request.
#[derive(Default)]
struct Graph {
    owners: Vec<Owner>,
    nodes: HashMap<Owner, usize>,
    blocked: Vec<Blocked>,
    /// For each owner what it blocks.
    blocks: Vec<Vec<usize>>,
}

impl Graph {
    fn node(&mut self, owner: &Owner) -> usize {
        if let Some(node) = self.nodes.get(owner) {
            return *node;
        }
        let node = self.owners.len();
        self.owners.push(owner.clone());
        self.nodes.insert(owner.clone(), node);
        self.blocks.push(Vec::new());
        node
    }

    fn add_edge(&mut self, waiter: usize, key: &Key, blockers: &[&Owner]) {
        if blockers.is_empty() {
            return;
        }
        let index = self.blocked.len();
        self.blocked.push(Blocked { waiter, key: key.name.clone(), moving: blockers.len() });
        for blocker in blockers {
            let node = self.node(blocker);
            self.blocks[node].push(index);
        }
    }

    /// Goes from the new request to those whom it keeps from moving, and on; if that leads back, it is a deadlock.
    fn cycle(mut self) -> Option<Vec<Edge>> {
        let mut stuck: Vec<Stuck> = vec![None; self.owners.len()];
        let mut todo = vec![0];
        while let Some(blocker) = todo.pop() {
            for index in std::mem::take(&mut self.blocks[blocker]) {
                let blocked = &mut self.blocked[index];
                blocked.moving -= 1;
                if blocked.moving > 0 || stuck[blocked.waiter].is_some() {
                    continue;
                }
                stuck[blocked.waiter] = Some((blocker, blocked.key.clone()));
                if blocked.waiter == 0 {
                    return Some(self.edges(&stuck));
                }
                todo.push(blocked.waiter);
            }
        }
        None
    }

    fn edges(&self, stuck: &[Stuck]) -> Vec<Edge> {
        let mut edges = Vec::new();
        let mut node = 0;
        while let Some((blocker, key)) = &stuck[node] {
            edges.push(Edge { owner: self.owners[node].clone(), key: key.clone() });
            node = *blocker;
            if node == 0 || edges.len() > self.owners.len() {
                break;
            }
        }
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;
    use crate::value::claim::Mode;

    const MUTEX: Claim = Claim::Mutex;
    const READ: Claim = Claim::ReadWrite(Mode::Read, Count::Step(1));
    const WRITE: Claim = Claim::ReadWrite(Mode::Write, Count::Step(1));

    const fn permits(limit: u32, permits: u32) -> Claim {
        Claim::Permits { limit, count: Count::Step(permits) }
    }

    type Requests = &'static [(&'static str, &'static str, Claim)];

    /// Who holds what, who waits for what in this order, the new request, and the cycle that it would close.
    struct Case {
        title: &'static str,
        held: Requests,
        waiting: Requests,
        new: (&'static str, &'static str, Claim),
        cycle: Option<&'static str>,
    }

    const CASES: &[Case] = &[
        Case {
            title: "two owners that wait for each other",
            held: &[("a", "k", MUTEX), ("b", "l", MUTEX)],
            waiting: &[("a", "l", MUTEX)],
            new: ("b", "k", MUTEX),
            cycle: Some("b@k a@l"),
        },
        Case {
            title: "nobody waits for the new owner",
            held: &[("a", "k", MUTEX), ("b", "l", MUTEX)],
            waiting: &[("c", "l", MUTEX)],
            new: ("b", "k", MUTEX),
            cycle: None,
        },
        Case {
            title: "a chain that ends",
            held: &[("a", "k", MUTEX), ("b", "l", MUTEX), ("c", "m", MUTEX)],
            waiting: &[("a", "m", MUTEX), ("d", "l", MUTEX)],
            new: ("b", "k", MUTEX),
            cycle: None,
        },
        Case {
            title: "three owners over three families",
            held: &[("a", "k", MUTEX), ("b", "w", WRITE), ("c", "s", permits(1, 1))],
            waiting: &[("a", "w", READ), ("b", "s", permits(1, 1))],
            new: ("c", "k", MUTEX),
            cycle: Some("c@k a@w b@s"),
        },
        Case {
            title: "two readers that both want to write",
            held: &[("a", "w", READ), ("b", "w", READ)],
            waiting: &[("a", "w", WRITE)],
            new: ("b", "w", WRITE),
            cycle: Some("b@w a@w"),
        },
        Case {
            title: "readers do not wait for each other",
            held: &[("a", "k", MUTEX), ("b", "w", WRITE)],
            waiting: &[("c", "w", READ), ("c", "k", MUTEX)],
            new: ("a", "w", READ),
            cycle: None,
        },
        Case {
            title: "a waiter ahead blocks like a holder",
            held: &[("a", "k", MUTEX), ("d", "w", READ)],
            waiting: &[("b", "w", WRITE), ("b", "k", MUTEX)],
            new: ("a", "w", READ),
            cycle: Some("a@w b@k"),
        },
        Case {
            title: "behind a reader stands a writer, which is not passed",
            held: &[("a", "k", MUTEX), ("d", "w", READ)],
            waiting: &[("b", "w", WRITE), ("b", "k", MUTEX), ("c", "w", READ)],
            new: ("a", "w", READ),
            cycle: Some("a@w b@k"),
        },
        Case {
            title: "a semaphore of which every holder is stuck",
            held: &[("a", "s", permits(2, 1)), ("b", "s", permits(2, 1)), ("c", "k", MUTEX)],
            waiting: &[("a", "k", MUTEX), ("b", "k", MUTEX)],
            new: ("c", "s", permits(2, 1)),
            cycle: Some("c@s a@k"),
        },
        Case {
            title: "a semaphore of which one holder moves",
            held: &[("a", "s", permits(2, 1)), ("b", "s", permits(2, 1)), ("c", "k", MUTEX)],
            waiting: &[("a", "k", MUTEX)],
            new: ("c", "s", permits(2, 1)),
            cycle: None,
        },
        Case {
            title: "a semaphore with room for it",
            held: &[("a", "s", permits(3, 1)), ("c", "k", MUTEX)],
            waiting: &[("a", "k", MUTEX)],
            new: ("c", "s", permits(3, 2)),
            cycle: None,
        },
        Case {
            title: "a queued request has room under the LIMIT of a newer one",
            held: &[("a", "s", permits(1, 1)), ("b", "k", MUTEX)],
            waiting: &[("b", "s", permits(1, 1)), ("d", "s", permits(2, 2))],
            new: ("a", "k", MUTEX),
            cycle: None,
        },
        Case {
            title: "more permits than its own ones leave",
            held: &[("a", "s", permits(3, 2))],
            waiting: &[],
            new: ("a", "s", permits(3, 2)),
            cycle: Some("a@s"),
        },
        Case {
            title: "as many permits as its own ones leave",
            held: &[("a", "s", permits(3, 2)), ("b", "s", permits(3, 1))],
            waiting: &[],
            new: ("a", "s", permits(3, 1)),
            cycle: None,
        },
        Case {
            title: "an owner passes the request for several keys that waits for it",
            held: &[("a", "k", MUTEX), ("d", "l", MUTEX)],
            waiting: &[("b", "kl", MUTEX)],
            new: ("a", "l", MUTEX),
            cycle: None,
        },
        Case {
            title: "a request for several keys waits on each of them",
            held: &[("a", "k", MUTEX), ("b", "l", MUTEX), ("d", "m", MUTEX)],
            waiting: &[("b", "k", MUTEX)],
            new: ("a", "ml", MUTEX),
            cycle: Some("a@l b@k"),
        },
        Case {
            title: "an owner's own request ahead does not block it",
            held: &[("a", "k", MUTEX), ("b", "l", MUTEX)],
            waiting: &[("a", "l", MUTEX)],
            new: ("a", "l", MUTEX),
            cycle: None,
        },
    ];

    #[test]
    fn a_cycle_is_found_and_nothing_else_is_taken_for_one() {
        for case in CASES {
            let mut fixture = Fixture::default();
            for (owner, keys, claim) in case.held {
                fixture.hold(owner, keys, *claim);
            }
            for (owner, keys, claim) in case.waiting {
                fixture.wait(owner, keys, *claim);
            }
            let (owner, keys, claim) = case.new;
            assert_eq!(fixture.deadlock(owner, keys, claim).as_deref(), case.cycle, "{}", case.title);
        }
    }

    #[test]
    fn who_is_away_waits_for_nobody() {
        let mut fixture = Fixture::default();
        fixture.hold("a", "k", MUTEX);
        fixture.hold("b", "l", MUTEX);
        let id = fixture.wait("a", "l", MUTEX);
        fixture.queues.keep_place(id);
        assert_eq!(fixture.deadlock("b", "k", MUTEX), None);
    }
}
