//! Who waits for which key, in which order, and whether waiting would ever end.
//!
//! | file          | question                                             |
//! | ------------- | ---------------------------------------------------- |
//! | `queues`      | who waits on this server                             |
//! | `wait_queue`  | who waits for this key                               |
//! | `request`     | what is queued, and at which place                   |
//! | `precedence`  | whom must a request not overtake                     |
//! | `deadlock`    | would this request wait for ever                     |
//! | `reduction`   | who is stuck when all others have given back         |
//! | `new_request` | which request is it that asks                        |
//! | `edge`        | who would wait for whom, on which key                |
//! | `holders`     | who holds a key, sessions that have ended left out   |
//! | `waited_for`  | who may hold a key that is waited for                |
//! | `busiest`     | which keys are the most waited for                   |
//! | `owners`      | what does this owner wait for, and what may it hold  |

pub mod busiest;
pub mod deadlock;
pub mod edge;
#[cfg(test)]
mod fixture;
pub mod holders;
pub mod new_request;
mod owners;
pub mod precedence;
pub mod queues;
mod reduction;
pub mod request;
pub mod wait_queue;
mod waited_for;
