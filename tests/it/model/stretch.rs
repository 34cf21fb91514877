//! Stretches the times of a schedule: a server's timers are exact to a millisecond, and each step takes one. In the
//! simulator's schedules a SESSION may be renewed every millisecond; here there must be a millisecond in which nothing
//! happens. With four milliseconds between renewals, four sessions left none, and a step waited for it indefinitely.

use lock::testing::contract::*;
use lock::testing::schedule::Step;

/// The stretch factor.
pub const TIMES: Ms = 8;

/// The step with its times stretched.
pub fn step(step: &Step) -> Step {
    match step {
        Step::Send(command) => Step::Send(self::command(command)),
        Step::SendAgain => Step::SendAgain,
        Step::Pass(ms) => Step::Pass(ms * TIMES),
        Step::SetClock(by_ms) => Step::SetClock(by_ms * TIMES as i64),
        Step::Happen(event) => Step::Happen(self::event(*event)),
        Step::Together(commands, events) => {
            Step::Together(commands.iter().map(command).collect(), events.iter().copied().map(event).collect())
        }
        Step::Deafen(which, command) => Step::Deafen(*which, self::command(command)),
        Step::Crash(grace) => Step::Crash(grace * TIMES),
        Step::Failover(grace) => Step::Failover(grace * TIMES),
        Step::Save | Step::Lag | Step::CatchUp => step.clone(),
    }
}

fn command(command: &Command) -> Command {
    let longer = |ms: Ms| ms * TIMES;
    match command.clone() {
        Command::Acquire(asked) => {
            let (lease, block) = (asked.lease.map(longer), asked.block.map(longer));
            Command::Acquire(Acquire { lease, block, ..asked })
        }
        Command::Renew { keys, owner, kind, lease } => {
            Command::Renew { keys, owner, kind, lease: lease.map(|lease| lease.map(longer)) }
        }
        other => other,
    }
}

fn event(event: Event) -> Event {
    match event {
        Event::Expire(key, ms) => Event::Expire(key, ms.map(|ms| ms * TIMES)),
        Event::GraceSet(ms) => Event::GraceSet(ms * TIMES),
        Event::KeepPlaceSet(ms) => Event::KeepPlaceSet(ms * TIMES),
        other => other,
    }
}
