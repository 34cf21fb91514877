//! Tests of the rules, and of a server, against a model that was written independently of them.
//!
//! | file         | question                                                       |
//! | ------------ | -------------------------------------------------------------- |
//! | `contract`   | which commands, outcomes and events does the contract have     |
//! | `model`      | what does a command do, by the text of the contract            |
//! | `world`      | what do timers and events do, and which waiter is served next  |
//! | `grants`     | what does a grant change, and how is it taken back             |
//! | `describe`   | when are two states of the model equivalent                    |
//! | `wait_for`   | which request would close a deadlock                           |
//! | `fences`     | which fence of the server belongs to each grant of the model   |
//! | `schedule`   | random schedules: which steps, in which order                  |
//! | `search`     | which schedule fails, and how short can it be made             |
//! | `simulator`  | do the rules and the model agree on every step of a schedule   |
//! | `random`     | do they agree on random schedules                              |
//! | `every`      | do they agree on every schedule of a small world               |
//! | `rules`      | how is a step played on the rules                              |
//! | `found`      | schedules that once failed                                     |
//! | `checks`     | what must hold after every step, independent of the model      |
//! | `counted`    | do the statistics match the replies, and the stored locks      |
//! | `between`    | can a new request overtake waiters between two turns           |
//! | `takeover`   | does a server work after any sequence of effects               |

mod between;
pub mod checks;
pub mod contract;
mod counted;
#[cfg(test)]
mod describe;
pub mod fences;
mod grants;
pub mod model;
mod rules;
pub mod schedule;
pub mod search;
pub mod simulator;
pub mod takeover;
mod wait_for;
pub mod world;

#[cfg(test)]
mod every;
#[cfg(test)]
mod found;
#[cfg(test)]
mod random;
