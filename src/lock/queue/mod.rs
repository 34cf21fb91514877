//! Who waits for which key, in which order, and whether waiting would ever end.
//!
//! | file          | question                                             |
//! | ------------- | ---------------------------------------------------- |
//! | `queues`      | who waits on this server                             |
//! | `wait_queue`  | who waits for this key                               |
//! | `request`     | what is queued, and at which place                   |
//! | `precedence`  | whom must a request not overtake                     |
//! | `deadlock`    | would this request wait for ever: the wait-for graph |
//! | `new_request` | which request is it that asks                        |
//! | `edge`        | who would wait for whom, on which key                |
//! | `reach`       | does what it would wait for end within a few steps   |
//! | `stuck`       | who would be stuck because of it, and is it itself   |
//! | `waited_for`  | who may hold a key that is waited for                |
//! | `busiest`     | which keys are the most waited for                   |
//! | `owners`      | what does this owner wait for, and what may it hold  |

pub mod busiest;
pub mod deadlock;
pub mod edge;
#[cfg(test)]
mod fixture;
pub mod new_request;
mod owners;
pub mod precedence;
pub mod queues;
mod reach;
pub mod request;
mod stuck;
pub mod wait_queue;
mod waited_for;
