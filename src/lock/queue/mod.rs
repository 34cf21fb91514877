//! Which requests wait for which key, in which order, and whether a wait would ever end.
//!
//! | file          | question                                             |
//! | ------------- | ---------------------------------------------------- |
//! | `queues`      | which requests wait on this server                   |
//! | `wait_queue`  | which requests wait for this key                     |
//! | `request`     | what is queued, and at which place                   |
//! | `precedence`  | which requests must a request not overtake           |
//! | `deadlock`    | would this request wait for ever                     |
//! | `reduction`   | which owners are stuck when the others have released |
//! | `new_request` | which request is about to queue                      |
//! | `edge`        | which owner waits for which other, on which key      |
//! | `holders`     | which owners hold a key, without ended sessions      |
//! | `waited_for`  | which owners may hold a key that is waited for       |
//! | `busiest`     | which keys have the most waiters                     |
//! | `owners`      | what does an owner wait for, and what may it hold    |

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
