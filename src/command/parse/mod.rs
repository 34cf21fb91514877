//! Argument lists into requests.
//!
//! | file       | question                                                     |
//! | ---------- | ------------------------------------------------------------ |
//! | `acquire`  | what does `X.ACQUIRE …` ask for                              |
//! | `release`  | what does `X.RELEASE …` give back                            |
//! | `renew`    | what does `X.RENEW …` renew                                  |
//! | `options`  | which options does a command take, and what are their values |
//! | `mode`     | READ or WRITE                                                |
//! | `lease`    | how long is a lease, and how long may it be                  |
//! | `keys`     | which arguments are keys: `numkeys key [key …]`              |
//! | `owner`    | is this an owner                                             |
//! | `inspect`  | how many of those who hold or wait are listed                |
//! | `log`      | what is asked of LOCK.LOG                                    |
//! | `scan`     | where does LOCK.SCAN go on, and what does it list            |
//! | `top`      | how many locks does LOCK.TOP list                            |
//! | `breaking` | whose holds does LOCK.BREAK end                              |
//! | `argument` | what is an argument                                          |
//! | `integer`  | is this an integer, in Redis's sense                         |
//! | `sample`   | what a client may send, for tests                            |

mod acquire;
mod argument;
mod breaking;
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
#[cfg(test)]
mod sample;
mod scan;
mod top;

pub use acquire::{AcquireCommand, Token, WaitOptions};
pub use argument::Argument;
pub use breaking::whose_holds;
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
