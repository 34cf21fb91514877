//! Locks of the redis-lock module, as async guards on tokio over the [`redis`] crate.
//!
#![doc = include_str!("../README.md")]

mod background;
mod client;
mod connector;
mod error;
mod family;
mod guard;
mod hold;
mod lock;
mod node;
mod once;
mod pause;
mod protocol;
mod renewal;
mod servers;
mod token;
mod transport;
mod turn;

pub use client::Client;
pub use error::{Error, Result};
pub use family::Family;
pub use guard::Guard;
pub use lock::Lock;
pub use once::Coalesced;
pub use redis;
pub use token::make_token;
