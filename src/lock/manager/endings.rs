//! Requests that end together: a connection with thousands of them has gone, a key has become another type, slots have
//! left. Each is told, or takes its kept place, in one of the next turns; until then it is granted nothing.

use std::collections::BTreeMap;

use crate::host::WaitOutcome;
use crate::key::RequestId;

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its client is told this.
    Told(WaitOutcome),
    /// Its client has gone, and may come back to the place.
    Left,
}

/// The requests that end, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Endings(BTreeMap<RequestId, Ending>);

impl Endings {
    /// The requests end like this. A request of which the client has gone may still be told something, which goes
    /// nowhere and leaves it no place.
    pub fn extend(&mut self, ids: impl IntoIterator<Item = RequestId>, ending: Ending) {
        for id in ids {
            let known = self.0.entry(id).or_insert(ending);
            if *known == Ending::Left {
                *known = ending;
            }
        }
    }

    /// Whether this request is one of them.
    #[inline]
    pub fn contains(&self, id: RequestId) -> bool {
        !self.0.is_empty() && self.0.contains_key(&id)
    }

    /// Takes the next one out.
    pub fn take_next(&mut self) -> Option<(RequestId, Ending)> {
        self.0.pop_first()
    }

    /// Takes the request out if its client has gone; whether it has.
    pub fn take_if_left(&mut self, id: RequestId) -> bool {
        let has_left = !self.0.is_empty() && self.0.get(&id) == Some(&Ending::Left);
        if has_left {
            self.0.remove(&id);
        }
        has_left
    }

    /// The request has gone.
    pub fn remove(&mut self, id: RequestId) {
        if !self.0.is_empty() {
            self.0.remove(&id);
        }
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// There is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
