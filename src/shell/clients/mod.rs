//! Clients with queued requests: blocked clients, and subscribers that wait without blocking.

pub mod callbacks;
pub mod parking;
pub mod waiting_clients;
