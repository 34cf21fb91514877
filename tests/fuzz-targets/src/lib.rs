//! What is fuzzed: functions of bytes that panic where something does not hold that must. `fuzz/` runs them under
//! libFuzzer (`make fuzz`), `tests/corpus.rs` with the kept inputs and changes to them, on stable Rust.
//!
//! | file         | question                                                                                      |
//! | ------------ | --------------------------------------------------------------------------------------------- |
//! | `arguments`  | does the parser of every command take any words, and say the same of what it has read         |
//! | `payload`    | does the stored form decode to a lock or to nothing, whatever the bytes                       |
//! | `effects`    | do effects leave locks, whatever they say, and does the server go on that takes over          |
//! | `round_trip` | does every lock come back from its stored form, and from its effects                          |
//! | `schedule`   | do the rules do what the contract says, in whatever order things happen                       |
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
