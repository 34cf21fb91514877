//! The lock manager: decides every request, and everything that follows without a request.
//!
//! | file               | subject                                                           |
//! | ------------------ | ----------------------------------------------------------------- |
//! | `lock_manager`     | the state that is not stored with a key                           |
//! | `acquire`          | the answer to a request to acquire                                |
//! | `alone`            | the fast path of an uncontended acquire and release               |
//! | `grant`            | what a grant does to a stored lock                                |
//! | `expiry`           | taking ended leases and sessions out of a lock                    |
//! | `release`          | how a hold ends: one path for all ways                            |
//! | `renewal`          | what a renewal does                                               |
//! | `handoff`          | which waiters are granted a key that has come free                |
//! | `attempt`          | whether one waiter can be granted what it waits for               |
//! | `departure`        | a waiter leaves, is cancelled or is dismissed                     |
//! | `session`          | what happens to holds that are bound to a connection              |
//! | `session_bindings` | which holds are bound to which connection                         |
//! | `deliveries`       | grants on their way to their clients                              |
//! | `keyspace_changes` | what follows from a change of a key outside the module's commands |
//! | `inspection`       | finding changes of keys that no event announces                   |
//! | `timers`           | what timers do, and the drain                                     |
//! | `due`              | work left for a later turn, and its order                         |
//! | `endings`          | requests that end in one of the next turns, and how               |
//! | `overtaking`       | requests that may pass others if nothing else moves               |
//! | `sweep`            | walks that serve many queues over several turns                   |
//! | `timer_set`        | which timer fires next                                            |
//! | `shared_leases`    | when the first of several holders ends                            |
//! | `grace`            | when no new owner is granted a lock                               |
//! | `statistics`       | counters                                                          |
//! | `telling`          | recording what has happened                                       |
//! | `occurrence`       | the records that observers get                                    |
//! | `samples`          | how long waits and holds lasted                                   |

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
