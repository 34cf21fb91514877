//! The rules: who holds a lock, who is next, and what a request means. std only: no Redis, no clock, no I/O, no unsafe.
//!
//! | file       | question                                                                |
//! | ---------- | ----------------------------------------------------------------------- |
//! | `time`     | what is a deadline, a lease, now                                         |
//! | `fence`    | which number does the next grant get                                     |
//! | `owner`    | what is an owner                                                         |
//! | `claim`    | what can be asked of a lock                                              |
//! | `outcome`  | what does a lock answer                                                  |
//! | `state`    | who holds one lock, and whom else would it let in                        |
//! | `crowd`    | the same, where there may be several holders                             |
//! | `members`  | where are thousands of holders kept                                      |
//! | `numbered` | how are tables by number hashed                                          |
//! | `queue`    | who waits for which key, in which order                                  |
//! | `circle`   | would this request wait for ever                                         |
//! | `sessions` | which holds are bound to which connection                                |
//! | `shrink`   | how is the memory of a rush given back                                   |
//! | `alarms`   | what happens by itself, and when                                         |
//! | `desk`     | what is the answer to this request                                       |
//! | `grant`    | what does a grant, a renewal or an end do to a stored lock                |
//! | `serve`    | what follows when nobody asks: hand-offs, ends of leases, broken clients |
//! | `world`    | what must be there to carry it out                                       |

#![forbid(unsafe_code)]

pub mod alarms;
pub mod circle;
pub mod claim;
pub mod crowd;
pub mod desk;
pub mod fence;
pub mod grant;
pub mod members;
pub mod numbered;
pub mod outcome;
pub mod owner;
pub mod queue;
pub mod serve;
pub mod sessions;
pub mod shrink;
pub mod state;
pub mod time;
pub mod world;

#[cfg(test)]
mod simulation;
