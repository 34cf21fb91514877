//! The lock manager: decides every request and everything that follows without one, by what happens.
//!
//! | file               | question                                                          |
//! | ------------------ | ----------------------------------------------------------------- |
//! | `lock_manager`     | what the rules remember that is not stored with a key             |
//! | `acquire`          | what is the answer to a request to acquire                        |
//! | `alone`            | the same of a request that meets nobody, and of its release       |
//! | `grant`            | what does a grant do to a stored lock                             |
//! | `expiry`           | what is taken out of a lock when leases and sessions end          |
//! | `release`          | how does a hold end: one road for all ways                        |
//! | `renewal`          | what does a renewal do                                            |
//! | `handoff`          | who of the waiters is granted a key that has come free            |
//! | `attempt`          | can this waiter be granted what it waits for                      |
//! | `departure`        | what happens when a waiter goes away, is cancelled or dismissed   |
//! | `session`          | what happens to holds that are bound to a connection              |
//! | `session_bindings` | which holds are bound to which connection                         |
//! | `deliveries`       | which grants are on their way to their clients                    |
//! | `keyspace_changes` | what follows from a change of a key outside the module's commands |
//! | `inspection`       | which keys are inspected because they may have changed unnoticed   |
//! | `timers`           | what happens by itself, and when                                  |
//! | `due`              | what is left for a later turn, and in which order                 |
//! | `endings`          | which requests end in one of the next turns, and how              |
//! | `overtaking`       | which requests may pass others, once nothing else moves           |
//! | `sweep`            | which queues of many are served in the next turns                 |
//! | `timer_set`        | which timer fires next                                            |
//! | `shared_leases`    | when does the first of several holders end                        |
//! | `grace`            | when is nobody new granted anything                               |
//! | `statistics`       | what is counted                                                   |
//! | `telling`          | where is counted and told what has happened                       |
//! | `occurrence`       | what is told to whoever observes                                  |
//! | `samples`          | how long did waits and holds last                                 |

pub mod acquire;
pub mod alone;
mod attempt;
#[cfg(test)]
mod coalescing;
mod deliveries;
pub mod departure;
mod due;
mod endings;
mod expiry;
#[cfg(test)]
mod fixture;
mod grace;
mod grant;
mod handoff;
pub mod inspection;
mod keyspace_changes;
#[cfg(test)]
mod large_work;
pub mod lock_manager;
pub mod occurrence;
mod overtaking;
pub mod release;
pub mod renewal;
mod samples;
mod session;
pub mod session_bindings;
mod shared_leases;
pub mod statistics;
mod sweep;
mod telling;
mod timer_set;
pub mod timers;
#[cfg(test)]
mod turns;
