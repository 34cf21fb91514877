//! Triggers events other than our own commands on a real server.

use lock::testing::contract::*;
use lock::testing::model::{Lock, Until, Value};

use super::play::{Play, Result, INSPECTED, LATE};
use super::wire;
use crate::support::waiting::until_exited;
use crate::support::Reply;

/// How late the module may notice that writes are accepted again, for which there is no event.
const WRITE_CHECK_RETRY: Ms = 10;

impl Play<'_> {
    pub(super) fn happen(&mut self, event: Event) -> Result {
        let is_write = matches!(
            event,
            Event::Deleted(_)
                | Event::Overwritten(_)
                | Event::Renamed(..)
                | Event::Restored(..)
                | Event::Flushed
                | Event::Expire(..)
        );
        if is_write && self.refuses_writes {
            return Ok(());
        }
        if is_write {
            self.sweep_before(&[event]);
        }
        match event {
            Event::Renamed(from, to) | Event::Restored(from, to) if from == to => Ok(()),
            event if !self.may_happen(&event) => Ok(()),
            Event::Restored(from, to) => self.restore(from, to),
            Event::Unblocked(which) => self.unblock(which as usize),
            Event::ClientGone(owner) => self.close_connection(owner),
            Event::Writes(writes) => self.writes(writes),
            // Only in a cluster.
            Event::SlotMoved => Ok(()),
            event => {
                self.change(event)?;
                self.record_expire(&event);
                self.model.happen(event);
                self.let_inspections_notice(&[event])
            }
        }
    }

    /// The contract says nothing about the TTL of other values. It leaves open whether waiters are informed of a lock
    /// of another type that arrives at their key and ends before the next inspection.
    pub(super) fn may_happen(&self, event: &Event) -> bool {
        match event {
            Event::Expire(key, _) => matches!(self.model.value(key), Some(Value::Lock(_))),
            Event::Renamed(from, to) | Event::Restored(from, to) => match self.model.value(from) {
                Some(Value::Lock(Lock { kind, until: Until::At(last), .. })) => {
                    let is_other_lock_type = self.model.waiters(to).any(|waiter| waiter.asked.claim.kind() != *kind);
                    *last > self.now.wall + INSPECTED || !is_other_lock_type
                }
                _ => true,
            },
            _ => true,
        }
    }

    /// In one of the possible ways.
    pub(super) fn change(&mut self, event: Event) -> Result {
        let line = wire::native(event).expect("a command of the server's");
        match (event, self.iteration % 3) {
            (Event::Deleted(key), 1) => {
                self.native(&format!("EVAL return(redis.call('UNLINK',KEYS[1])) 1 {key}")).map(drop)
            }
            (Event::Deleted(key), 2) => {
                self.native(&format!("MOVE {key} 1"))?;
                self.in_other_db("FLUSHDB")
            }
            (Event::Flushed, 1) => self.native("FLUSHDB ASYNC").map(drop),
            (Event::Flushed, 2) => {
                self.native("SWAPDB 0 1")?;
                self.in_other_db("FLUSHDB")
            }
            _ => self.native(&line).map(drop),
        }
    }

    pub(super) fn in_other_db(&mut self, line: &str) -> Result {
        ["SELECT 1", line, "SELECT 0"].iter().try_for_each(|line| self.native(line).map(drop))
    }

    /// With the same TTL.
    pub(super) fn restore(&mut self, from: Name, to: Name) -> Result {
        let (payload, until) = (self.control.cmd(&["DUMP", from]), self.control.cmd(&["PEXPIRETIME", from]).int());
        // RESTORE of a lock that expires in this millisecond is refused.
        if payload.is_null() || until == self.now.wall as i64 {
            return Ok(());
        }
        self.record(format!("DUMP {from}, RESTORE {to} {until} REPLACE ABSTTL"));
        let until = until.max(0).to_string().into_bytes();
        let restore = [b"RESTORE", to.as_bytes(), &until, payload.bytes(), b"REPLACE", b"ABSTTL"];
        let reply = self.control.cmd(&restore);
        if reply != Reply::ok() {
            return Err(format!("RESTORE {to}: {reply:?}"));
        }
        self.model.happen(Event::Restored(from, to));
        self.let_inspections_notice(&[Event::Restored(from, to)])
    }

    /// The number of a request that waits on a blocked connection.
    pub(super) fn blocked(&self, which: usize) -> Option<u64> {
        let blocked = self.model.requests().iter().filter(|it| it.detached.is_none() && !it.asked.notify);
        let blocked: Vec<u64> = blocked.map(|it| it.asked.number).collect();
        blocked.get(which % blocked.len().max(1)).copied()
    }

    pub(super) fn unblock(&mut self, which: usize) -> Result {
        let Some(number) = self.blocked(which) else { return Ok(()) };
        let (how, outcomes) = match self.iteration % 2 {
            0 => ("TIMEOUT", "nil"),
            _ => ("ERROR", "UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        };
        self.native(&format!("CLIENT UNBLOCK {} {how}", self.clients.requests[&number].id))?;
        self.model.happen(Event::Unblocked(number));
        self.settle(vec![(number, (outcomes.into(), None))])
    }

    /// Closes one of its connections, by itself or through another client.
    pub(super) fn close_connection(&mut self, owner: u64) -> Result {
        let Some(connection) = self.clients.take(owner) else { return Ok(()) };
        match self.iteration % 2 {
            0 => {
                self.record(format!("c{} closes", connection.number));
                drop(connection.client);
                // A busy machine delivers the end of a connection with some delay.
                until_exited(&mut self.control, connection.id);
            }
            _ => drop(self.native(&format!("CLIENT KILL ID {}", connection.id))?),
        }
        self.model.happen(Event::ClientGone(connection.number));
        self.settle(Vec::new())
    }

    /// The module may notice slightly later that writes are accepted again.
    pub(super) fn writes(&mut self, writes: Writes) -> Result {
        self.change(Event::Writes(writes))?;
        let refused = std::mem::replace(&mut self.refuses_writes, writes == Writes::Refused);
        if writes == Writes::Refused || !refused {
            self.model.happen(Event::Writes(writes));
            return self.settle(Vec::new());
        }
        // A lease that has expired since counts as held until a command or the module inspects it.
        self.sweep();
        self.model.happen(Event::Writes(Writes::Accepted));
        self.writes_noticed = self.now.monotonic + WRITE_CHECK_RETRY + LATE;
        self.settle_within(WRITE_CHECK_RETRY + LATE, Vec::new(), Vec::new())
    }
}
