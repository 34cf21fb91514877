//! Compares what a server reports about every key with the contract.

use lock::testing::contract::*;
use lock::testing::fences::Fences;
use lock::testing::model::{Holder, Lock, Model, Until, Value};

use super::clients::Clients;
use super::lists;
use crate::support::{Pipeline, Reply};

/// The queries about each key.
const QUESTIONS: [&str; 5] = ["LOCK.INFO", "LOCK.WAITERS", "TYPE", "EXISTS", "PTTL"];

/// The queries about all keys.
const LISTS: [&[&str]; 2] = [&["LOCK.SCAN", "0", "COUNT", "1000"], &["LOCK.TOP", "COUNT", "1000"]];

/// The queries about all keys, in one write.
pub fn questions(keys: &[Name]) -> Pipeline {
    let mut pipeline = Pipeline::default();
    for key in keys {
        QUESTIONS.iter().for_each(|question| pipeline.push(&[question, key]));
    }
    LISTS.iter().for_each(|list| pipeline.push(list));
    pipeline
}

/// The number of replies to [`questions`].
pub fn number_of_questions(keys: &[Name]) -> usize {
    keys.len() * QUESTIONS.len() + LISTS.len()
}

/// The state that the server reports, and what is known of its connections.
pub struct Shown<'a> {
    pub keys: &'a [Name],
    pub replies: &'a [Reply],
    pub clients: &'a Clients,
    pub now: Clocks,
    /// Owners that were granted multiple requests at once: the order is open, and so are lease and fencing token.
    pub at_once: &'a [Name],
    /// Owners whose grant may be up to that many ms later than in the model.
    pub granted: &'a [Name],
    pub late: Ms,
    /// For this many ms the module may not have noticed that the clock was set: a session that has begun since may have
    /// been renewed.
    pub unnoticed: Ms,
}

type Result<T = ()> = std::result::Result<T, String>;

fn check<T: PartialEq + std::fmt::Debug>(what: &str, key: Name, shown: T, expected: T) -> Result {
    if shown == expected {
        Ok(())
    } else {
        Err(format!("{what} of {key} is {shown:?}, but the contract says {expected:?}"))
    }
}

impl Shown<'_> {
    /// Compares all keys. If the contract leaves the outcome open, the model adopts the server's.
    pub fn compare(&self, model: &mut Model, fences: &mut Fences<i64>) -> Result {
        for (key, replies) in self.keys.iter().zip(self.replies.chunks(QUESTIONS.len())) {
            let [info, waiters, kind, exists, pttl] = replies else { return Err("a reply is missing".into()) };
            if !info.is_nil() && !info.is_error() {
                self.adopt_what_is_open(model, fences, key, info);
                self.adopt_when(model, key, info);
            }
            let value = model.value(key).cloned();
            self.compare_key(key, value.as_ref(), [kind, exists, pttl])?;
            self.compare_info(model, fences, key, model.seen(key).as_ref(), info)?;
            self.compare_waiters(model, key, value.as_ref(), waiters)?;
        }
        fences.end_step();
        let (of_keys, lists) = self.replies.split_at(self.keys.len() * QUESTIONS.len());
        let of_keys = self.keys.iter().zip(of_keys.chunks(QUESTIONS.len()));
        lists::compare(of_keys.map(|(key, replies)| (*key, &replies[0], &replies[1])).collect(), lists)
    }

    fn adopt_what_is_open(&self, model: &mut Model, fences: &Fences<i64>, key: Name, info: &Reply) {
        for owner in self.at_once {
            let row = info.get("holders").items().iter().find(|row| row.get("owner").is_bulk(owner));
            let holder = model.value(key).and_then(|value| value.holder(owner));
            let (Some(row), Some(expected)) = (row, holder.map(|holder| holder.grant)) else { continue };
            let lease = row.get("lease").int();
            let lease = (lease >= 0).then_some(lease as Ms);
            let session = row.get("session").int();
            let bound = self.clients.ids.iter().find(|(_, id)| **id == session).map(|(number, _)| *number);
            let grant = fences.of_open_hold(row.get("fence").int(), expected, model);
            model.adopt(key, owner, (lease, bound), grant);
        }
    }

    /// A lease that was just granted, or renewed for a session, may have started slightly later.
    fn adopt_when(&self, model: &mut Model, key: Name, info: &Reply) {
        let Some(Value::Lock(lock)) = model.value(key).filter(|_| self.late + self.unnoticed > 0).cloned() else {
            return;
        };
        let has_begun = |holder: &&Holder| self.granted.contains(&holder.owner) || holder.session.is_some();
        for holder in lock.holders.iter().filter(has_begun) {
            let mut rows = info.get("holders").items().iter();
            let Some(row) = rows.find(|row| row.get("owner").is_bulk(holder.owner)) else { continue };
            let ago = holder.lease.map_or(-1, |lease| lease as i64 - row.get("ttl").int());
            // A lease with a fixed expiry time is shorter then.
            let shorter = holder.lease.map_or(0, |lease| lease as i64 - row.get("lease").int());
            if (1..=self.late as i64).contains(&shorter) && row.get("ttl").int() == ttl(holder.until, self.now.wall) {
                let lease = Some(row.get("lease").int() as Ms);
                model.adopt(key, holder.owner, (lease, None), holder.grant);
                continue;
            }
            if holder.session.is_some() && (0..=self.unnoticed as i64).contains(&ago) {
                model.was_renewed(key, holder.owner, ago as Ms);
                continue;
            }
            let later = row.get("ttl").int() - ttl(holder.until, self.now.wall);
            if (1..=self.late as i64).contains(&later) {
                model.began_later(key, holder.owner, later as Ms);
            }
        }
    }

    fn compare_key(&self, key: Name, value: Option<&Value>, shown: [&Reply; 3]) -> Result {
        let [kind, exists, pttl] = shown;
        let (expected_kind, expected_pttl) = match value {
            None => ("none", -2),
            Some(Value::Foreign) => ("string", -1),
            Some(Value::Lock(lock)) => ("redislock", ttl(lock.until, self.now.wall)),
        };
        // All holders have expired, and no command has accessed the lock since.
        if value.is_none() && kind.text() == "redislock" && exists.int() == 1 {
            return Ok(());
        }
        check("TYPE", key, kind.text(), expected_kind)?;
        check("EXISTS", key, exists.int(), value.is_some().into())?;
        self.compare_ttl("PTTL", key, value, pttl.int(), expected_pttl)
    }

    /// A key with multiple holders follows their expiry only when a command accesses it; until then it may live longer.
    fn compare_ttl(&self, what: &str, key: Name, value: Option<&Value>, shown: i64, expected: i64) -> Result {
        let lives_longer = expected >= 0 && (shown == -1 || shown > expected);
        if lives_longer && may_have_had_multiple(value) {
            Ok(())
        } else {
            check(what, key, shown, expected)
        }
    }

    fn compare_info(
        &self,
        model: &Model,
        fences: &mut Fences<i64>,
        key: Name,
        value: Option<&Value>,
        info: &Reply,
    ) -> Result {
        let waiters = model.waiters(key).count();
        let (kind, limit) = match (value, model.waiters(key).next()) {
            (Some(Value::Foreign), _) => return check("LOCK.INFO", key, error_code(info), Some("WRONGTYPE")),
            (None, None) => return check("LOCK.INFO", key, info.is_nil(), true),
            (Some(Value::Lock(lock)), _) => (lock.kind, lock.limit),
            (None, Some(first)) => (first.asked.claim.kind(), model.limit(key)),
        };
        if info.is_nil() || info.is_error() {
            return Err(format!("LOCK.INFO of {key} is {info:?}, but the contract says {value:?}, {waiters} waiters"));
        }
        let (kind, limit) = match kind {
            Kind::Mutex => ("mutex", 1),
            Kind::Reentrant => ("reentrant", 1),
            Kind::ReadWrite => ("rw", 0),
            Kind::Semaphore => ("semaphore", i64::from(limit)),
        };
        check("kind", key, info.get("kind").text(), kind)?;
        check("limit", key, info.get("limit").int(), limit)?;
        check("waiters", key, info.get("waiters").int(), waiters as i64)?;
        let rows = info.get("holders").items();
        let Some(Value::Lock(lock)) = value else {
            check("fence", key, info.get("fence").int(), 0)?;
            check("ttl", key, info.get("ttl").int(), -2)?;
            return check("holders", key, rows, &[]);
        };
        self.compare_ttl("ttl", key, value, info.get("ttl").int(), ttl(lock.until, self.now.wall))?;
        let wrong = |wrong| format!("{wrong}\n  {key}: {info:?}\n  the contract says {lock:?}");
        self.compare_holders(fences, key, lock, rows).map_err(wrong)?;
        let newest = rows.iter().map(|row| row.get("fence").int()).max();
        let fence = info.get("fence").int();
        if Some(fence) < newest {
            Err(wrong(format!("the fence of {key} is below a holder's")))
        } else {
            Ok(())
        }
    }

    fn compare_holders(&self, fences: &mut Fences<i64>, key: Name, lock: &Lock, rows: &[Reply]) -> Result {
        let now = self.now.wall;
        let mut holders: Vec<&Holder> = lock.holders.iter().collect();
        holders.sort_by_key(|holder| holder.grant);
        let mode = match lock.kind {
            Kind::Mutex | Kind::Reentrant => "exclusive",
            Kind::ReadWrite => "write",
            Kind::Semaphore => "permits",
        };
        let modes = holders.iter().flat_map(|holder| [(*holder, mode, holder.holds), (*holder, "read", holder.reads)]);
        let is_held = |(holder, mode, holds): &(&Holder, &str, u32)| *holds > 0 || holder.stays_at_0 && *mode != "read";
        let expected: Vec<_> = modes.filter(is_held).collect();
        check("number of holders", key, rows.len(), expected.len())?;
        for (row, (holder, mode, holds)) in rows.iter().zip(expected) {
            check("owner", key, row.get("owner").text(), holder.owner)?;
            check("mode", key, row.get("mode").text(), mode)?;
            check("holds", key, row.get("holds").int(), holds.into())?;
            check("lease", key, row.get("lease").int(), holder.lease.map_or(-1, |lease| lease as i64))?;
            check("a holder's ttl", key, row.get("ttl").int(), ttl(holder.until, now))?;
            if lock.kind == Kind::Semaphore {
                check("slot", key, row.get("slot").int(), holder.slot.map_or(-1, i64::from))?;
            }
            let bound = holder.session.map(|(client, _)| self.clients.ids[&client]);
            check("session", key, row.get("session").int(), bound.unwrap_or(0))?;
            let fence = row.get("fence").int();
            check("age", key, row.get("age").int(), (now as i64).saturating_sub(fence / 1000).max(0))?;
            fences.see(holder.grant, fence)?;
        }
        Ok(())
    }

    fn compare_waiters(&self, model: &Model, key: Name, value: Option<&Value>, waiters: &Reply) -> Result {
        if let Some(Value::Foreign) = value {
            return check("LOCK.WAITERS", key, error_code(waiters), Some("WRONGTYPE"));
        }
        if waiters.is_error() {
            return Err(format!("LOCK.WAITERS {key}: {waiters:?}"));
        }
        let expected: Vec<_> = model.waiters(key).collect();
        let owners: Vec<_> = waiters.items().iter().map(|row| row.get("owner").text()).collect();
        check("waiters", key, owners, expected.iter().map(|request| request.asked.owner).collect())?;
        for (row, request) in waiters.items().iter().zip(expected) {
            let (mode, permits) = match request.asked.claim {
                Claim::Mutex | Claim::Adopted { .. } | Claim::Reentrant(_) => ("exclusive", 1),
                Claim::Read(_) => ("read", 1),
                Claim::Write(_) => ("write", 1),
                Claim::Permits(_, Holds::By(n) | Holds::Exactly(n)) => ("permits", n.into()),
                Claim::Slot(_) => ("permits", 1),
            };
            let sent = &self.clients.requests[&request.asked.number];
            check("mode", key, row.get("mode").text(), mode)?;
            check("permits", key, row.get("permits").int(), permits)?;
            check("client", key, row.get("client").int(), sent.id)?;
            check("addr", key, row.get("addr").text(), &sent.address)?;
            check("waited", key, row.get("waited").int(), (self.now.monotonic - request.since) as i64)?;
            check("remaining", key, row.get("remaining").int(), ttl(request.until, self.now.monotonic))?;
            check("coalesce", key, row.get("coalesce").int(), request.asked.coalesce.into())?;
        }
        Ok(())
    }
}

fn may_have_had_multiple(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Lock(lock)) => matches!(lock.kind, Kind::ReadWrite | Kind::Semaphore),
        Some(Value::Foreign) | None => false,
    }
}

/// As in TTL: the remaining time, or -1.
fn ttl(until: Until, now: Ms) -> i64 {
    match until {
        Until::At(last) => last.saturating_sub(now) as i64,
        Until::Never => -1,
    }
}

fn error_code(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Error(text) => text.split(' ').next(),
        _ => None,
    }
}
