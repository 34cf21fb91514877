//! A schedule in progress: plays its steps on the server and on the model.

use std::collections::BTreeMap;
use std::time::Duration;

use lock::testing::contract::*;
use lock::testing::fences::Fences;
use lock::testing::model::{Holder, Lock, Model, Request, Until, Value};
use lock::testing::schedule::{Cast, Step};
use lock::testing::world::Saved;

use super::clients::{Clients, Sent};
use super::stretch;
use super::wire;
use crate::support::{self, Client, Pipeline, Reply, Server};

pub(super) const MAX_WAITERS: usize = 5;
pub(super) const KEEP_PLACE: Ms = 60 * stretch::TIMES;

/// How late, in ms, an immediate event may happen: a timer armed in a timer callback takes one.
pub(super) const LATE: Ms = 2;

/// How late the module may notice what other commands do to a key: the interval of inspections.
pub(super) const INSPECTED: Ms = 10 + LATE;

/// After a second without a decision the module enters idle mode, in which it inspects keys less often.
const ASLEEP: Ms = 1_000 - 100;

/// How late the module may notice that the clock was set: 2 ms until the server's cron.
const NOTICED: Ms = 2 + LATE;

/// The connection that the schedule itself uses.
const CONTROL: u64 = 1 << 40;

pub(super) type Result<T = ()> = std::result::Result<T, String>;

/// Converts the clocks to those of a server.
pub(super) fn put(Clocks { wall, monotonic }: Clocks) -> support::Clocks {
    support::Clocks { wall: Duration::from_millis(wall), monotonic: Duration::from_millis(monotonic) }
}

pub(super) struct Play<'s> {
    pub(super) server: &'s mut Server,
    pub(super) control: Client,
    pub(super) clients: Clients,
    pub(super) model: Model,
    pub(super) fences: Fences<i64>,
    pub(super) keys: Vec<Name>,
    pub(super) now: Clocks,
    pub(super) last_command: Option<Command>,
    pub(super) refuses_writes: bool,
    /// When the module certainly knows that writes are accepted again.
    pub(super) writes_noticed: Ms,
    pub(super) was_set_back: bool,
    pub(super) unnoticed: Ms,
    /// The time since the module was certainly not in idle mode.
    awake_before: Ms,
    /// Locks with waiters whose expiry was changed (PEXPIRE): the expiry by the wall clock, and the latest time at
    /// which it is noticed.
    shortened: BTreeMap<Name, (Ms, Ms)>,
    pub(super) has_lost: bool,
    pub(super) saved: Option<Saved>,
    /// `lock.adopt-wait`; never 0, because then no grant would be recorded.
    pub(super) adopt_wait: Ms,
    /// Chooses between equivalent ways.
    pub(super) iteration: usize,
    /// What was sent, for failure reports.
    pub(super) sent: Vec<String>,
}

impl<'s> Play<'s> {
    pub(super) fn new(server: &'s mut Server, cast: &Cast, now: Clocks) -> Play<'s> {
        let control = server.client3();
        Play {
            control,
            server,
            clients: Clients::default(),
            model: Model::new(now, MAX_WAITERS, KEEP_PLACE),
            fences: Fences::default(),
            keys: cast.keys.iter().map(|(key, _)| *key).collect(),
            now,
            last_command: None,
            refuses_writes: false,
            writes_noticed: 0,
            was_set_back: false,
            unnoticed: 0,
            awake_before: 0,
            shortened: BTreeMap::new(),
            has_lost: false,
            saved: None,
            adopt_wait: 1,
            iteration: 0,
            sent: Vec::new(),
        }
    }

    pub(super) fn record(&mut self, line: String) {
        self.sent.push(format!("  {} {line}", self.now.monotonic % 1_000_000));
    }

    /// Starts with an empty server.
    pub(super) fn begin(&mut self) -> Result {
        self.clients.listen(self.server);
        let _ = std::fs::remove_file(self.server.dir().join("dump.rdb"));
        for line in [
            // On Redis 8 it removes a key in the very millisecond of its expiry, which the contract leaves open.
            "DEBUG SET-ACTIVE-EXPIRE 0".to_string(),
            "CONFIG SET min-replicas-to-write 0".to_string(),
            "CONFIG SET lock.grace 0".to_string(),
            format!("CONFIG SET lock.keep-place {KEEP_PLACE}"),
            "CONFIG SET lock.max-waiters-per-key 0".to_string(),
            format!("CONFIG SET lock.adopt-wait {}", self.adopt_wait),
            "FLUSHALL".to_string(),
        ] {
            self.native(&line)?;
        }
        self.settle(Vec::new())?;
        self.move_on()
    }

    /// Closes all connections, and checks that nothing is left of their requests.
    pub(super) fn end(&mut self) -> Result {
        self.record("the end".into());
        self.writes(Writes::Accepted)?;
        self.move_on()?;
        self.happen(Event::Flushed)?;
        self.move_on()?;
        for owner in self.clients.connections.iter().map(|it| it.owner).collect::<Vec<_>>() {
            self.close_connection(owner)?;
            self.move_on()?;
        }
        self.pass(KEEP_PLACE + 1)
    }

    pub(super) fn step(&mut self, step: &Step) -> Result {
        self.iteration += 1;
        self.play(step)?;
        self.move_on()
    }

    /// A timer of 0 ms armed in a timer callback fires in the next millisecond, so immediate events may have to wait
    /// for it. Each step advances the clock by that millisecond, or the next step would find it pending.
    pub(super) fn move_on(&mut self) -> Result {
        while self.model.next_event().is_some_and(|ms| ms <= 1) {
            self.pass(1)?;
        }
        self.put_clocks(self.now.plus(1));
        self.model.pass_to(self.now);
        // The next iteration does the work that became due in the first.
        self.control.run("PING");
        self.control.run("PING");
        Ok(())
    }

    pub(super) fn play(&mut self, step: &Step) -> Result {
        match &stretch::step(step) {
            Step::Send(command) => self.send(command),
            Step::SendAgain => match self.last_command.clone() {
                Some(command) => self.send(&command),
                None => Ok(()),
            },
            Step::Pass(ms) => self.pass(*ms),
            Step::Happen(event) => self.happen(*event),
            Step::Together(commands, events) => self.together(commands, events),
            Step::Deafen(which, command) => self.deafen(*which, command),
            Step::Save => {
                self.native("SAVE")?;
                self.saved = Some(self.model.save());
                Ok(())
            }
            Step::Crash(grace) => self.crash(*grace),
            Step::SetClock(by_ms) => self.set_clock(*by_ms),
            // There is only one server here.
            Step::Lag | Step::CatchUp | Step::Failover(_) => Ok(()),
        }
    }

    /// Called before the model learns of the event.
    pub(super) fn record_expire(&mut self, event: &Event) {
        let Event::Expire(key, ms) = event else { return };
        self.shortened.remove(key);
        if let (Some(ms), Some(_)) = (ms, self.model.waiters(key).next()) {
            self.shortened.insert(key, (self.now.wall + ms, self.now.monotonic + INSPECTED));
        }
    }

    /// The most by which an event that is due now may be late. It is more than usual only if a lease expires now and
    /// the module may not have noticed its shortened expiry.
    pub(super) fn latest(&self, late: Ms) -> Ms {
        let ends_now = self.shortened.values().filter(|(end, _)| *end <= self.now.wall);
        ends_now.map(|(_, noticed)| noticed.saturating_sub(self.now.monotonic)).max().unwrap_or(0).max(late)
    }

    /// Sends a server command, which must succeed.
    pub(super) fn native(&mut self, line: &str) -> Result<Reply> {
        self.record(line.into());
        match self.control.run(line) {
            Reply::Error(text) if !text.starts_with("ERR no such key") => Err(format!("{line}: {text}")),
            reply => Ok(reply),
        }
    }

    pub(super) fn send(&mut self, command: &Command) -> Result {
        let mut command = wire::sayable(command);
        self.last_command = Some(command.clone());
        if wire::is_no_lock(&command, |key| self.model.value(key).cloned()) {
            return Ok(());
        }
        let connection = self.name_request(&mut command);
        let line = wire::line(&command, self.now.wall);
        if let Command::Acquire(Acquire { claim: Claim::Adopted { .. }, block: Some(wait), .. }) = command {
            if std::mem::replace(&mut self.adopt_wait, wait) != wait {
                self.native(&format!("CONFIG SET lock.adopt-wait {wait}"))?;
            }
        }
        if self.refuses_writes {
            let reply = match connection {
                Some(number) => self.connection(number).run(&line),
                None => self.control.run(&line),
            };
            return match reply {
                Reply::Error(text) if text.starts_with("NOREPLICAS") => Ok(()),
                reply => Err(format!("{line}: {reply:?}, while writes are refused")),
            };
        }
        if self.is_open(&command) {
            return Ok(());
        }
        let expected = self.expect(&command);
        self.record(format!("{}{line}", connection.map_or(String::new(), |number| format!("c{number}> "))));
        match (&command, connection) {
            (Command::Acquire(asked), Some(number)) => {
                self.connection(number).send_line(&line);
                if expected == Outcome::Queued && !asked.notify {
                    let blocked = self.clients.connections.iter_mut().find(|it| it.number == number);
                    blocked.expect("it was chosen").blocked_by = Some(asked.number);
                    return self.settle(Vec::new());
                }
            }
            _ => self.control.send_line(&line),
        }
        self.settle_with(Vec::new(), vec![(command, expected, connection)])
    }

    /// Whether the contract leaves open if the request gets DEADLOCK, because other requests are already deadlocked.
    fn is_open(&self, command: &Command) -> bool {
        let waits = matches!(command, Command::Acquire(asked) if asked.block.is_some());
        waits && !self.model.endless_waits().is_empty()
    }

    /// The outcome that the contract requires for a command that was parsed.
    pub(super) fn expect(&mut self, command: &Command) -> Outcome {
        if wire::is_wrong_in_itself(command) {
            return Outcome::Refused(Refusal::Invalid);
        }
        let mut command = command.clone();
        if let Command::Acquire(asked @ Acquire { claim: Claim::Adopted { .. }, .. }) = &mut command {
            // "Never where the holder was granted on the same connection", which a script's may be.
            if self.model.is_granted_on(asked.keys[0], &[asked.client, wire::SCRIPT]) {
                asked.block = None;
            }
        }
        self.model.play(&command)
    }

    pub(super) fn connection(&mut self, number: u64) -> &mut Client {
        let connection = self.clients.connections.iter_mut().find(|it| it.number == number);
        &mut connection.expect("it was chosen").client
    }

    /// Assigns a number and a connection to an acquire request.
    pub(super) fn name_request(&mut self, command: &mut Command) -> Option<u64> {
        if let Command::TakeOver { client, .. } | Command::Count { client, .. } = command {
            *client = CONTROL;
        }
        let Command::Acquire(asked) = command else { return None };
        let connection = self.clients.free(asked.client, self.server);
        asked.client = connection.number;
        let (id, address, number) = (connection.id, connection.address.clone(), connection.number);
        asked.number = 1 + self.clients.requests.len() as u64;
        let sent = Sent { asked: asked.clone(), sent: self.now.monotonic, id, address };
        self.clients.requests.insert(asked.number, sent);
        if wire::is_of_script(asked) {
            asked.client = wire::SCRIPT;
        }
        Some(number)
    }

    pub(super) fn put_clocks(&mut self, now: Clocks) {
        self.now = now;
        self.server.put_clocks(put(now));
    }

    pub(super) fn pass(&mut self, mut ms: Ms) -> Result {
        self.awake_before += ms;
        while ms > 0 {
            let next = self.model.next_event().map_or(ms, |next| next.clamp(1, ms));
            ms -= next;
            self.put_clocks(self.now.plus(next));
            self.model.pass_to(self.now);
            self.record("time".into());
            self.settle(Vec::new())?;
        }
        if self.awake_before >= ASLEEP && !self.refuses_writes {
            self.native("LOCK.CANCEL nothing nobody")?;
            self.awake_before = 0;
        }
        Ok(())
    }

    /// Sets the wall clock. Not back after data loss, because fencing tokens survive only one of the two. Not while the
    /// module believes that writes are refused, because the next renewal attempt then depends on when it notices. And
    /// not if another event, or the end of a session's lease, would come before it notices.
    pub(super) fn set_clock(&mut self, by_ms: i64) -> Result {
        let wall = self.now.wall.saturating_add_signed(by_ms);
        let ends = |holder: &Holder| matches!(holder.until, Until::At(last) if (wall..=wall + NOTICED).contains(&last));
        let ends_unnoticed = |key: &Name| match self.model.value(key) {
            Some(Value::Lock(lock)) => lock.holders.iter().any(|holder| holder.session.is_some() && ends(holder)),
            _ => false,
        };
        let is_near = self.model.next_event().is_some_and(|ms| ms <= NOTICED) || self.keys.iter().any(ends_unnoticed);
        let refuses_writes = self.refuses_writes || self.now.monotonic < self.writes_noticed;
        if by_ms < 0 && self.has_lost || refuses_writes || is_near {
            return Ok(());
        }
        self.was_set_back |= by_ms < 0;
        self.sweep();
        self.put_clocks(Clocks { wall, ..self.now });
        self.model.set_clock(self.now.wall);
        self.unnoticed = 3 * NOTICED;
        self.settle_within(NOTICED, Vec::new(), Vec::new())?;
        (0..NOTICED).try_for_each(|_| self.move_on())?;
        self.settle(Vec::new())?;
        self.unnoticed = 0;
        Ok(())
    }

    /// For other commands an expired holder counts until a command of the module has accessed the lock.
    pub(super) fn sweep_before(&mut self, events: &[Event]) {
        if events.iter().any(|event| matches!(event, Event::Expire(..) | Event::Renamed(..) | Event::Restored(..))) {
            self.sweep();
        }
    }

    /// Every expired lease is removed, even if no command has accessed it before the clock is set back.
    pub(super) fn sweep(&mut self) {
        for key in self.keys.clone() {
            self.control.run(&format!("RWLOCK.RELEASE {key} nobody READ"));
            self.control.run(&format!("SEM.RELEASE {key} nobody"));
        }
    }

    /// In one transaction.
    pub(super) fn together(&mut self, commands: &[Command], events: &[Event]) -> Result {
        if self.refuses_writes {
            return Ok(());
        }
        self.sweep_before(events);
        let mut lines = vec!["MULTI".to_string()];
        let mut expected = Vec::new();
        let reevaluated = self.model.reevaluated();
        for command in commands {
            let mut command = wire::sayable(command);
            if wire::is_no_lock(&command, |key| self.model.value(key).cloned()) {
                continue;
            }
            self.name_request(&mut command);
            if let Command::Acquire(asked) = &mut command {
                assert!(!asked.session, "all of a transaction come from one connection");
                if asked.client != wire::SCRIPT {
                    asked.client = CONTROL;
                }
            }
            if self.is_open(&command) {
                continue;
            }
            lines.push(wire::line(&command, self.now.wall));
            let outcome = self.expect(&command);
            expected.push((command, outcome));
            if self.model.has_replies() || self.model.reevaluated() > reevaluated {
                break;
            }
        }
        let events: Vec<Event> = events.iter().copied().filter(|event| self.may_happen(event)).collect();
        lines.extend(events.iter().filter_map(|event| wire::native(*event)));
        events.iter().for_each(|event| self.record_expire(event));
        self.model.happen_together(&events);
        lines.push("EXEC".into());
        self.record(lines.join(", "));
        let replies = self.control.pipeline(&lines).pop().expect("EXEC was sent");
        for ((command, expected), reply) in expected.iter().zip(replies.items()) {
            self.compare_outcome(command, *expected, reply)?;
        }
        self.let_inspections_notice(&events)
    }

    /// Changes by other commands, that is a new value of a key with waiters, are noticed by inspections.
    pub(super) fn let_inspections_notice(&mut self, events: &[Event]) -> Result {
        let mut is_put = false;
        for event in events {
            match event {
                Event::Overwritten(key) | Event::Renamed(_, key) | Event::Restored(_, key) => {
                    is_put = true;
                    if let Some(Value::Lock(Lock { until: Until::At(end), .. })) = self.model.value(key) {
                        self.shortened.insert(key, (*end, self.now.monotonic + INSPECTED));
                    }
                }
                _ => {}
            }
        }
        self.settle_within(if is_put { INSPECTED } else { LATE }, Vec::new(), Vec::new())
    }

    /// A waiter's connection closes in the iteration of a command. Only for an owner without other requests, because
    /// another one might be granted in between. Nor for a request that may have to be evaluated after one for multiple
    /// keys: that happens in a later iteration, without a grant to revoke.
    pub(super) fn deafen(&mut self, which: usize, command: &Command) -> Result {
        let Some(number) = self.blocked(which).filter(|_| !self.refuses_writes) else { return self.send(command) };
        let asked = &self.clients.requests[&number].asked;
        let is_its_owners = |other: &&Request| other.asked.owner == asked.owner;
        let mut ahead = self.model.requests().iter().take_while(|other| other.asked.number != number);
        let may_be_passed =
            |other: &Request| other.asked.keys.len() > 1 && other.asked.keys.iter().any(|key| asked.keys.contains(key));
        if self.model.requests().iter().filter(is_its_owners).count() > 1 || ahead.any(may_be_passed) {
            return Ok(());
        }
        let command = wire::sayable(command);
        let connection = self.clients.take_blocked_by(number).expect("it is blocked");
        let (line, kill) = (wire::line(&command, self.now.wall), format!("CLIENT KILL ID {}", connection.id));
        self.record(format!("{line}; {kill}"));
        let mut pipeline = Pipeline::default();
        pipeline.push(&line.split(' ').collect::<Vec<_>>());
        pipeline.push(&kill.split(' ').collect::<Vec<_>>());
        self.model.disconnects_unnoticed(number);
        let expected = self.expect(&command);
        self.model.happen(Event::ClientGone(connection.number));
        self.control.send_raw(&pipeline.bytes);
        let replies = [self.control.read(), self.control.read()];
        self.compare_outcome(&command, expected, &replies[0])?;
        if replies[1] != Reply::Int(1) {
            return Err(format!("{kill}: {:?}", replies[1]));
        }
        self.settle(Vec::new())
    }

    /// Restarts the server from its last saved file.
    pub(super) fn crash(&mut self, grace: Ms) -> Result {
        if self.was_set_back {
            return Ok(());
        }
        self.record(format!("kill -9, and a start with lock.grace {grace}"));
        // A start takes longer than the clocks disagree, so fencing tokens grow despite the lost data.
        self.has_lost = true;
        self.server.kill();
        self.put_clocks(self.now.plus(5));
        self.model.now = self.now;
        let (grace_line, keep_place_line) =
            (format!("lock.grace {grace}"), format!("lock.keep-place {}", self.model.keep_place));
        let per_key_line = format!("lock.max-waiters-per-key {}", self.model.max_waiters_per_key.unwrap_or(0));
        self.server.restart_with(&[&grace_line, &keep_place_line, &per_key_line]);
        let ids = std::mem::take(&mut self.clients.ids);
        let requests = std::mem::take(&mut self.clients.requests);
        self.clients = Clients { ids, requests, ..Clients::default() };
        // Connection ids start over.
        self.clients.ids.values_mut().for_each(|id| *id = -1);
        self.control = self.server.client3();
        self.native("DEBUG SET-ACTIVE-EXPIRE 0")?;
        self.clients.listen(self.server);
        self.refuses_writes = false;
        self.native(&format!("CONFIG SET lock.adopt-wait {}", self.adopt_wait))?;
        let saved = self.saved.clone().unwrap_or_default();
        self.model.restart(&saved, grace);
        self.settle(Vec::new())
    }
}
