//! Clients with queued requests: blocked clients, and subscribers that wait without blocking.
//!
//! | file              | question                                                                |
//! | ----------------- | ----------------------------------------------------------------------- |
//! | `parking`         | how does the client of a command begin to wait, and how is it woken     |
//! | `waiting_clients` | which connection waits by which request; is a client a connection       |
//! | `callbacks`       | what does the server say of a blocked client                            |

pub mod callbacks;
pub mod parking;
pub mod waiting_clients;
