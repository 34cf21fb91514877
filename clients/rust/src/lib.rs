//! Distributed locks for a Redis or Valkey server with the redis-lock module: async guards on tokio, over the [`redis`]
//! crate.
//!
#![doc = include_str!("../README.md")]

mod background;
mod client;
mod connector;
mod error;
mod family;
mod guard;
mod hold;
mod info;
mod lock;
mod node;
mod observer;
mod once;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod pause;
mod protocol;
mod renewal;
mod server;
mod servers;
mod token;
mod transport;
mod turn;
mod watched;

pub use client::Client;
pub use error::{Error, Result};
pub use family::Family;
pub use guard::Guard;
pub use info::{Holder, HolderMode, Info, Kind};
pub use lock::Lock;
pub use observer::{Event, EventKind, Observer};
pub use once::Coalesced;
#[cfg(feature = "opentelemetry")]
pub use opentelemetry::OpenTelemetry;
pub use redis;
pub use server::Server;
pub use token::{make_token, Owner};
