//! The requests of one owner.

use super::WaitQueues;
use crate::key::{KeyRef, RequestId};
use crate::one_or_many::OneOrMany;
use crate::queue::lookups;
use crate::queue::owners::OwnerEntry;
use crate::queue::position::QueuePosition;
use crate::queue::request::{OwnerId, QueueId, QueuedRequest};
use crate::queue::wait_queue::WaitQueue;
use crate::value::claim::{Claim, LockRequest, Share};
use crate::value::owner::Owner;

/// The requests of an owner.
#[derive(Clone, Copy, Debug)]
pub struct OfOwner<'q> {
    pub(super) queues: &'q WaitQueues,
    pub(super) id: Option<OwnerId>,
}

impl<'q> OfOwner<'q> {
    fn entry(self) -> Option<&'q OwnerEntry> {
        self.queues.owners.get(self.id?)
    }

    /// Its id, if it has requests, queued or with reserved positions.
    pub fn with_requests(self) -> Option<OwnerId> {
        self.id.filter(|_| self.entry().is_some_and(|entry| !entry.listed.is_empty()))
    }

    /// Its owner ID.
    pub fn name(self) -> Option<&'q Owner> {
        self.entry().map(|entry| &entry.owner)
    }

    /// Its queued requests, including reserved positions.
    pub fn requests(self) -> impl Iterator<Item = RequestId> + 'q {
        let queues = self.queues;
        let listed = self.entry().into_iter().flat_map(|entry| entry.listed.iter()).map(|(_, id)| id);
        listed.filter(move |id| queues.requests.get(id).is_some_and(|request| !queues.is_done(*id, request)))
    }

    /// Its waiting requests, without reserved positions.
    pub fn waiting(self) -> impl Iterator<Item = (RequestId, &'q QueuedRequest)> + 'q {
        lookups::record();
        self.waiting_listed(QueueId::FIRST, QueueId::LAST)
    }

    /// Its waiting requests that are listed under this queue: all of its requests for this key alone.
    pub(crate) fn waiting_in(self, queue: QueueId) -> impl Iterator<Item = (RequestId, &'q QueuedRequest)> + 'q {
        self.waiting_listed(queue, queue)
    }

    /// Its waiting requests in a queue. A multi-key request is listed under only one of its queues, the first.
    pub fn all_waiting_in(self, id: QueueId) -> impl Iterator<Item = (RequestId, &'q QueuedRequest)> + 'q {
        let has_multi_key = self.queues.get(id).is_some_and(WaitQueue::has_multi_key_requests);
        let first = if has_multi_key { QueueId::FIRST } else { id };
        self.waiting_listed(first, id).filter(move |(_, request)| request.is_in(id))
    }

    /// Its waiting requests that are listed under these queues.
    fn waiting_listed(self, from: QueueId, to: QueueId) -> impl Iterator<Item = (RequestId, &'q QueuedRequest)> + 'q {
        let (queues, range) = (self.queues, (from, RequestId::FIRST)..=(to, RequestId::LAST));
        let listed = self.entry().into_iter().flat_map(move |entry| entry.listed.range(range.clone()));
        let queued = listed.filter_map(|(_, id)| Some((id, queues.requests.get(&id)?)));
        queued.filter(move |(id, request)| request.is_present() && !queues.is_done(*id, request))
    }

    /// Its waiting requests in a queue with such a claim, in the order of their positions.
    pub fn requests_in(self, id: QueueId, is_wanted: impl Fn(&Claim) -> bool) -> Vec<RequestId> {
        let waiting = self.all_waiting_in(id).inspect(|_| lookups::record());
        let wanted = waiting.filter(|(_, request)| is_wanted(&request.claim));
        let mut wanted: Vec<_> = wanted.map(|(id, request)| (&request.position, id)).collect();
        wanted.sort_unstable();
        wanted.into_iter().map(|(_, id)| id).collect()
    }

    /// The queued request that this one repeats: same owner, keys, mode and number. An adopted request repeats only a
    /// reserved position.
    pub fn find_retried(self, db: i32, names: &[&[u8]], request: &LockRequest<'_>) -> Option<RequestId> {
        let (waits, listed) = (self.queues, &self.entry()?.listed);
        // Most owners have no requests, so no key name is looked up for them.
        if listed.is_empty() {
            return None;
        }
        let queues: OneOrMany<_> = names.iter().map(|name| waits.id_of(KeyRef { db, name })).collect::<Option<_>>()?;
        let listed_under = *queues.iter().min()?;
        let is_retried = |id: &RequestId| {
            waits.requests.get(id).is_some_and(|queued| {
                request.claim.is_retry_of(&queued.claim)
                    && (request.claim != Claim::AdoptedMutex || !queued.is_present())
                    && queued.queues.len() == names.len()
                    && !waits.is_done(*id, queued)
                    && queues.iter().all(|queue| queued.is_in(*queue))
            })
        };
        let range = (listed_under, RequestId::FIRST)..=(listed_under, RequestId::LAST);
        // If several clients use the same token: the foremost of their reserved positions.
        let retried = listed.range(range).map(|(_, id)| id).filter(is_retried);
        retried.min_by_key(|id| waits.requests.get(id).map(|queued| &queued.position))
    }

    /// Whether an earlier request of this owner in the same queue covers the claim once it is served. Then the later
    /// request waits for nothing else.
    pub(crate) fn is_covered_by_earlier(self, key: KeyRef<'_>, position: &QueuePosition, claim: &Claim) -> bool {
        let queue = self.id.and_then(|_| self.queues.id_of(key));
        let mut waiting = queue.into_iter().flat_map(|queue| self.waiting_in(queue));
        let covers = |it: &QueuedRequest| !it.has_multiple_keys() && it.claim != Claim::AdoptedMutex;
        let earlier = waiting.find(|(_, it)| covers(it) && it.position < *position);
        earlier.is_some_and(|(_, earlier)| Share::default().with(&earlier.claim).covers(claim))
    }
}
