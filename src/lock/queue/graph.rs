//! The wait-for graph: owners, and the beginnings of wait queues, each of which waits for others.

use std::collections::HashMap;
use std::rc::Rc;

use crate::value::owner::Owner;

/// One edge of a cycle: `owner` waits on `key` for the owner of the next edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Who waits.
    pub owner: Owner,
    /// For which key.
    pub key: Rc<[u8]>,
}

/// The number of a node.
pub(super) type Node = usize;

/// What a node stands for.
#[derive(Clone, Debug)]
pub(super) enum Who {
    Owner(Owner),
    /// All who stand in a queue up to some place: stuck when one of them is.
    UpTo,
}

/// Blockers of one node on one key, all of which must be stuck for it to be stuck.
struct Blocked {
    waiter: Node,
    key: Rc<[u8]>,
    /// Blockers that are not known to be stuck.
    moving: usize,
}

/// By which node one is kept from moving, on which key; `None` while it is not known to be stuck.
type Stuck = Option<(Node, Rc<[u8]>)>;

/// Who waits for whom. Node 0 is the owner of the new request.
#[derive(Default)]
pub(super) struct Graph {
    pub nodes: Vec<Who>,
    by_owner: HashMap<Owner, Node>,
    blocked: Vec<Blocked>,
    /// For each node what it blocks.
    blocks: Vec<Vec<usize>>,
}

impl Graph {
    /// The node of an owner.
    pub fn owner(&mut self, owner: &Owner) -> Node {
        if let Some(node) = self.by_owner.get(owner) {
            return *node;
        }
        let node = self.add_node(Who::Owner(owner.clone()));
        self.by_owner.insert(owner.clone(), node);
        node
    }

    pub fn add_node(&mut self, who: Who) -> Node {
        self.nodes.push(who);
        self.blocks.push(Vec::new());
        self.nodes.len() - 1
    }

    /// `waiter` waits on this key; it is stuck when all of the blockers are.
    pub fn add_edge(&mut self, waiter: Node, key: &Rc<[u8]>, blockers: &[Node]) {
        if blockers.is_empty() {
            return;
        }
        let index = self.blocked.len();
        self.blocked.push(Blocked { waiter, key: key.clone(), moving: blockers.len() });
        blockers.iter().for_each(|blocker| self.blocks[*blocker].push(index));
    }

    /// How many edges there are; one to several blockers together is one.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.blocked.len()
    }

    /// Goes from the new request to those whom it keeps from moving, and on; if that leads back, it is a deadlock.
    pub fn cycle(mut self) -> Option<Vec<Edge>> {
        let mut stuck: Vec<Stuck> = vec![None; self.nodes.len()];
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
            if let Who::Owner(owner) = &self.nodes[node] {
                edges.push(Edge { owner: owner.clone(), key: key.clone() });
            }
            node = *blocker;
            if node == 0 || edges.len() > self.nodes.len() {
                break;
            }
        }
        edges
    }
}
