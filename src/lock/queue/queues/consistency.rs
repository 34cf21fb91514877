//! Checks that the tables of the wait queues agree, after each step of the simulator.

use super::{Done, WaitQueues};
use crate::key::RequestId;
use crate::queue::request::{QueueId, QueuedRequest};
use crate::queue::wait_queue::WaitQueue;

impl WaitQueues {
    /// Panics unless the tables agree.
    pub(crate) fn check_tables(&self) {
        for (id, queue) in self.iter() {
            self.check_queue(id, queue);
            self.holdings.check_recorded(id, &queue.holders);
        }
        for (id, request) in self.requests.iter() {
            self.check_request(*id, request);
        }
        for (key, Done { requests, .. }) in &self.done {
            let reserved = requests.detached.iter().filter_map(|sequence| self.detached.get(sequence));
            for id in requests.present.values().chain(reserved) {
                let found = self.requests.get(id).and_then(|request| self.done_key(*id, request));
                assert_eq!(found, Some(*key), "{id:?} was completed by one release");
            }
        }
        let queues = |is_meant: fn(&WaitQueue) -> bool| self.iter().filter(|(_, queue)| is_meant(queue)).count();
        let requests = |is_meant: fn(&QueuedRequest) -> bool| {
            self.requests.iter().filter(|(_, request)| is_meant(request)).count()
        };
        assert_eq!(self.lease_timers.all().count(), queues(|queue| queue.lease_end.is_some()), "lease timers");
        assert_eq!(self.wait_timers.all().count(), requests(|request| request.until.is_some()), "wait timers");
        assert_eq!(self.detached.len(), requests(|request| !request.is_present()), "reserved positions");
        let is_multi_key = |request: &QueuedRequest| request.is_present() && request.has_multiple_keys();
        assert_eq!(self.multi_key, requests(is_multi_key), "waiters for multiple keys");
        let done_waiters = self.done.values().map(|done| done.requests.present.len()).sum();
        assert_eq!(self.done_waiters, done_waiters, "completed waiters");
        assert_eq!(self.owners.requests(), self.requests.len(), "each request is listed under its owner");
        self.holdings.check_totals(self.iter().map(|(id, queue)| (id, &queue.holders, queue.seen)));
    }

    fn check_queue(&self, id: QueueId, queue: &WaitQueue) {
        assert_eq!(self.id_of(queue.key.as_ref()), Some(id), "the queue of {:?}", queue.key);
        let has_done = self.done.range((id, RequestId::FIRST)..=(id, RequestId::LAST)).next().is_some();
        assert!(!queue.is_empty() || has_done, "an open queue has requests: {queue:?}");
        assert!(queue.present().map(|(position, _)| position).is_sorted(), "out of order: {queue:?}");
        for (requests, coalesces) in [(&queue.ordinary, false), (&queue.coalescing, true)] {
            let reserved = requests.detached.iter().filter_map(|sequence| self.detached.get(sequence));
            assert_eq!(reserved.clone().count(), requests.detached.len(), "reserved positions of {queue:?}");
            for id_of_request in requests.present.values().chain(reserved) {
                let request = self.requests.get(id_of_request).expect("only queued requests are in a queue");
                assert!(request.is_in(id) && request.coalesces == coalesces, "{request:?} is in another queue");
            }
        }
        let waiting = || self.requests.iter().map(|(_, request)| request).filter(|it| it.is_present() && it.is_in(id));
        let multi_key = waiting().filter(|request| request.has_multiple_keys()).count();
        let with_other_waits = waiting().filter(|request| request.may_have_other_waits).count();
        assert_eq!((queue.multi_key, queue.with_other_waits), (multi_key, with_other_waits), "{queue:?}");
        for counting in &queue.holder_requests {
            let request = self.requests.get(counting).filter(|request| request.is_present() && request.is_in(id));
            assert!(request.is_some_and(QueuedRequest::has_multiple_keys), "{counting:?} in {queue:?}");
        }
        assert!(queue.reentering.values().all(|requests| !requests.is_empty()), "an empty list: {queue:?}");
        assert!(queue.lease_end.is_none_or(|end| self.lease_timers.contains(id, end)), "no timer: {queue:?}");
    }

    fn check_request(&self, id: RequestId, request: &QueuedRequest) {
        if !self.is_done(id, request) {
            for queue in &request.queues {
                let queue = self.get(*queue).expect("a queued request keeps its queues open");
                let requests = if request.coalesces { &queue.coalescing } else { &queue.ordinary };
                let is_listed = match request.detached {
                    Some(sequence) => requests.detached.contains(&sequence),
                    None => requests.present.get(&request.position) == Some(&id),
                };
                assert!(is_listed, "{request:?} is not in {queue:?}");
            }
        }
        let entry = self.owners.get(request.owner_id).expect("the owner of a request is in the table");
        assert!(entry.owner == request.owner && entry.listed.contains(&(request.listed_under, id)), "{request:?}");
        assert_eq!(request.queues.iter().min(), Some(&request.listed_under), "{request:?}");
        assert!(request.detached.is_none_or(|sequence| self.detached.get(&sequence) == Some(&id)), "{request:?}");
        assert!(request.until.is_none_or(|until| self.wait_timers.contains(id, until)), "no timer: {request:?}");
        assert!(request.blocked_on.is_none_or(|queue| request.is_in(queue)), "{request:?}");
    }
}
