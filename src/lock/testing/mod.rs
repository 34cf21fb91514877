//! What the rules are tried with, and what a server can be tried with: a model that was written apart from them.
//!
//! | file         | question                                                       |
//! | ------------ | -------------------------------------------------------------- |
//! | `contract`   | which commands, outcomes and events does the contract know     |
//! | `model`      | what does a command do, by the contract's text                 |
//! | `world`      | what happens by itself and from outside, and who has its turn  |
//! | `grants`     | what does a grant change, and how is it taken back             |
//! | `describe`   | when are two states the same                                   |
//! | `wait_for`   | which request would close a deadlock                           |
//! | `fences`     | which fence has each of its grants                             |
//! | `schedule`   | what may happen, in which order, by chance                     |
//! | `search`     | which schedule fails, and how short can it be                  |
//! | `simulator`  | do the rules and the model agree on every step of a schedule   |
//! | `random`     | on any schedule                                                |
//! | `every`      | on every schedule of a small world                             |
//! | `rules`      | how is a step played on the rules                              |
//! | `found`      | what have schedules found                                      |
//! | `checks`     | what must hold after every step, whatever the model says       |
//! | `counted`    | what do the rules count, beside what clients were told         |
//! | `between`    | does anybody get in between two turns                          |
//! | `takeover`   | does a server go on with whatever effects have left            |

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
