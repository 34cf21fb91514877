//! Argument lists into requests.

mod acquire;
mod argument;
mod break_lock;
#[cfg(test)]
mod fixture;
mod inspect;
mod integer;
mod keys;
mod lease;
mod log;
mod mode;
mod options;
mod owner;
mod release;
mod renew;
mod scan;
mod top;

pub use acquire::{AcquireCommand, Token, WaitOptions};
pub use argument::Argument;
pub use break_lock::broken_holders;
pub use inspect::ListLength;
pub use integer::integer;
pub use keys::key_positions;
pub use lease::{LeaseSettings, MAX_LEASE_MS};
pub use log::LogCommand;
pub use owner::owner;
pub use release::ReleaseCommand;
pub use renew::RenewCommand;
pub use scan::ScanCommand;
pub use top::top_length;
