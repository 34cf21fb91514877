//! Who waits for which key, in which order, and whether waiting would ever end.
//!
//! | file         | question                                             |
//! | ------------ | ---------------------------------------------------- |
//! | `queues`     | who waits on this server                             |
//! | `wait_queue` | who waits for this key                               |
//! | `request`    | what is queued, and at which place                   |
//! | `precedence` | whom must a request not overtake                     |
//! | `deadlock`   | would this request wait for ever: the wait-for graph |
//! | `graph`      | who waits for whom, and does that lead back          |
//! | `waited_for` | can anybody be waiting for this owner                |

pub mod deadlock;
#[cfg(test)]
mod fixture;
mod graph;
pub mod precedence;
pub mod queues;
pub mod request;
pub mod wait_queue;
mod waited_for;
