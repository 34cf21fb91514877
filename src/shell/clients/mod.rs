//! Those whose requests are queued: blocked clients, and subscribers that wait without blocking.
//!
//! | file        | question                                               |
//! | ----------- | ------------------------------------------------------ |
//! | `registry`  | who waits by which request, and how is it answered     |
//! | `parking`   | how does the client of a command begin to wait         |
//! | `callbacks` | what does the server say of a blocked client           |

pub mod callbacks;
pub mod parking;
pub mod waiting_clients;
