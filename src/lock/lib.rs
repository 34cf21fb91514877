//! The rules: who holds a lock, who is next, and what a request means. std only: no Redis, no clock, no I/O, no unsafe.
//!
//! | folder        | question                                                                       |
//! | ------------- | ------------------------------------------------------------------------------ |
//! | `value`       | who holds one lock, and whom else would it admit                               |
//! | `queue`       | who waits for which key, in which order, and would that ever end               |
//! | `manager`     | what is the answer to a request, and what follows from everything that happens |
//! | `host`        | what must be there to carry it out                                             |
//! | `key`         | how are keys, clients and requests named                                       |
//! | `id_map`      | how are maps by ids hashed                                                     |
//! | `name_map`    | how are maps by names hashed, which clients choose                             |
//! | `name_filter` | is this name certainly none of a table of names                                |
//! | `one_or_many` | how is a list kept that usually has one element                                |
//! | `shrink`      | how is the memory of a rush given back                                         |
//! | `testing`     | does all of it hold under any schedule                                         |
//!
//! Imports run one way: `value <- host <- queue <- manager <- testing`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod host;
pub mod id_map;
pub mod key;
pub mod manager;
pub mod name_filter;
pub mod name_map;
pub mod one_or_many;
pub mod queue;
pub mod shrink;
pub mod value;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
