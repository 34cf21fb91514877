//! Those whose requests are queued: blocked clients, and subscribers that wait without blocking.
//!
//! | file              | question                                               |
//! | ----------------- | ------------------------------------------------------ |
//! | `connections`     | is the client of a command a connection                |
//! | `parking`         | how does the client of a command begin to wait         |
//! | `waiting_clients` | who waits by which request                             |
//! | `wake`            | how is a client woken: unblocked, or told by a message |
//! | `callbacks`       | what does the server say of a blocked client           |

pub mod callbacks;
pub mod connections;
pub mod parking;
pub mod waiting_clients;
pub mod wake;
