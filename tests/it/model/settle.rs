//! After each step, lets the server do what is due, and compares all replies and messages with the contract.

use lock::testing::contract::*;

use super::clients::Sent;
use super::compare::{self, Shown};
use super::play::{Play, Result, LATE};
use super::wire::{self, WaitOutcome};
use crate::support::Reply;

/// The most event-loop iterations until all due work is done. The clocks stand still during these.
const ITERATIONS: usize = 5;

/// The pending reply to a command, on the control connection or on the one with this number.
pub(super) type Expected = (Command, Outcome, Option<u64>);

impl Play<'_> {
    pub(super) fn settle(&mut self, outcomes: Vec<(u64, WaitOutcome<Grant>)>) -> Result {
        self.settle_with(outcomes, Vec::new())
    }

    pub(super) fn settle_with(&mut self, outcomes: Vec<(u64, WaitOutcome<Grant>)>, replies: Vec<Expected>) -> Result {
        self.settle_within(LATE, outcomes, replies)
    }

    /// Lets the server do all due work, and compares everything: replies, outcomes of waits, keys. Immediate events may
    /// happen this many milliseconds later.
    pub(super) fn settle_within(
        &mut self,
        late: Ms,
        mut outcomes: Vec<(u64, WaitOutcome<Grant>)>,
        mut replies: Vec<Expected>,
    ) -> Result {
        let (mut answers, mut wrong, began) = (Vec::new(), String::new(), self.now.monotonic);
        let late = self.latest(late);
        while self.now.monotonic <= began + late {
            self.take_expected_outcomes(&mut outcomes);
            for _ in 0..ITERATIONS {
                match self.iteration(&mut answers, &mut replies)? {
                    Some(missing) => wrong = missing,
                    None => match self.compare(&answers, &outcomes, self.now.monotonic - began) {
                        Ok(()) => return Ok(()),
                        Err(error) => wrong = error,
                    },
                }
            }
            self.record(format!("  not yet: {}", wrong.lines().next().unwrap_or_default()));
            self.put_clocks(self.now.plus(1));
            self.model.pass_to(self.now);
        }
        Err(wrong)
    }

    /// The expected outcomes of the waiters that are connected.
    pub(super) fn take_expected_outcomes(&mut self, outcomes: &mut Vec<(u64, WaitOutcome<Grant>)>) {
        for (number, answer) in self.model.take_replies() {
            if self.clients.can_get_reply(number) {
                outcomes.push((number, wire::expected_outcome(&self.clients.requests[&number].asked, answer)));
            }
        }
        outcomes.sort_by_key(|(number, _)| *number);
    }

    /// Runs one event-loop iteration; returns the missing reply, if any.
    pub(super) fn iteration(
        &mut self,
        answers: &mut Vec<(u64, WaitOutcome<i64>)>,
        replies: &mut Vec<Expected>,
    ) -> Result<Option<String>> {
        if let Some((command, outcome, None)) = replies.first().cloned() {
            let reply = self.control.read();
            self.compare_outcome(&command, outcome, &reply)?;
            replies.clear();
        }
        let pong = self.control.run("PING");
        if pong != Reply::Status("PONG".into()) {
            return Err(format!("PING: {pong:?}"));
        }
        if let Some((command, outcome, Some(number))) = replies.first().cloned() {
            let Some(reply) = self.connection(number).read_now().map_err(|error| error.to_string())? else {
                let line = wire::line(&command, self.now.wall);
                return Ok(Some(format!("{line} has no reply, but the contract says {outcome:?}")));
            };
            self.compare_outcome(&command, outcome, &reply)?;
            replies.clear();
        }
        answers.extend(self.clients.take_replies()?);
        Ok(None)
    }

    pub(super) fn compare_outcome(&mut self, command: &Command, expected: Outcome, reply: &Reply) -> Result {
        let is_same = match wire::is_adopted_reply(command, expected, reply) {
            Some(is_same) => is_same,
            None => match (wire::outcome(command, reply)?, expected) {
                (Outcome::Granted(fence, holds), Outcome::Granted(grant, expected)) => {
                    self.fences.see(grant, fence)?;
                    holds == expected
                }
                (outcome, expected) => format!("{outcome:?}") == format!("{expected:?}"),
            },
        };
        let line = || wire::line(command, self.now.wall);
        if is_same {
            Ok(())
        } else {
            Err(format!("{}: {reply:?}, but the contract says {expected:?}", line()))
        }
    }

    pub(super) fn compare(
        &mut self,
        answers: &[(u64, WaitOutcome<i64>)],
        outcomes: &[(u64, WaitOutcome<Grant>)],
        late: Ms,
    ) -> Result {
        let mut answers = answers.to_vec();
        answers.sort_by_key(|(number, _)| *number);
        let mut both = answers.iter().zip(outcomes);
        let is_same = both.all(|((number, (words, _)), (of, (expected, _)))| {
            number == of && (words == expected || self.has_run_out(*number, words, expected))
        });
        if answers.len() != outcomes.len() || !is_same {
            return Err(format!("the server returned {answers:?}, but the contract says {outcomes:?}"));
        }
        let (mut model, mut fences) = (self.model.clone(), self.fences.clone());
        let owner = |number: &u64| self.clients.requests[number].asked.owner;
        let granted: Vec<Name> =
            outcomes.iter().filter(|(_, (_, grant))| grant.is_some()).map(|(n, _)| owner(n)).collect();
        let mut at_once = Vec::new();
        for ((number, (_, fence)), (_, (_, grant))) in answers.iter().zip(outcomes) {
            let Some(grant) = grant else { continue };
            match granted.iter().filter(|other| **other == owner(number)).count() {
                // A SET does not get its fencing token.
                1 => fence.iter().try_for_each(|fence| fences.see(*grant, *fence))?,
                _ => at_once.push(owner(number)),
            }
        }
        self.control.send_raw(&compare::questions(&self.keys).bytes);
        let count = compare::number_of_questions(&self.keys);
        let replies: Vec<Reply> = (0..count).map(|_| self.control.read()).collect();
        let shown = Shown {
            keys: &self.keys,
            replies: &replies,
            clients: &self.clients,
            now: self.now,
            at_once: &at_once,
            granted: &granted,
            late,
            unnoticed: self.unnoticed,
        };
        shown.compare(&mut model, &mut fences)?;
        (self.model, self.fences) = (model, fences);
        Ok(())
    }

    /// A key that has become something else is noticed slightly later, when the request may have timed out.
    fn has_run_out(&self, number: u64, words: &str, expected: &str) -> bool {
        let Sent { asked, sent, .. } = &self.clients.requests[&number];
        let is_over = asked.block.is_some_and(|block| block > 0 && sent + block <= self.now.monotonic);
        let is_refused = [Refusal::WrongType, Refusal::WrongKind]
            .into_iter()
            .any(|refusal| wire::expected_outcome(asked, WaitReply::Refused(refusal)).0 == expected);
        is_over && is_refused && wire::expected_outcome(asked, WaitReply::TimedOut).0 == words
    }
}
