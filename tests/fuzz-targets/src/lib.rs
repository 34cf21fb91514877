//! The fuzz targets: functions of bytes that panic if a property is violated. `fuzz/` runs them under libFuzzer
//! (`make fuzz`); `tests/corpus.rs` runs them on stable Rust with the corpus and mutations of it.
//!
//! | file         | question                                                                                      |
//! | ------------ | --------------------------------------------------------------------------------------------- |
//! | `arguments`  | does the parser of every command accept any arguments, and round-trip what it parsed          |
//! | `payload`    | does any stored payload decode to a lock or to an error                                       |
//! | `effects`    | do any replicated effects leave valid locks, and does a promoted server keep working          |
//! | `round_trip` | is every lock restored unchanged from its stored payload, and from its effects                |
//! | `schedule`   | does the engine follow the contract, in any order of events                                   |
//! | `same`       | when are two locks the same                                                                   |

#![cfg(feature = "testing")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod arguments;
mod effects;
mod payload;
mod round_trip;
mod same;
mod schedule;

pub use arguments::arguments;
pub use effects::effects;
pub use payload::payload;
pub use round_trip::round_trip;
pub use schedule::schedule;
