//! The rules: holders, wait queues, and the outcome of each request. No Redis, no clock, no I/O, no unsafe.
//!
//! | folder        | question                                                                       |
//! | ------------- | ------------------------------------------------------------------------------ |
//! | `value`       | which owners hold a lock, and which requests does it admit                     |
//! | `queue`       | which requests wait for a key, in which order, and would a wait ever end       |
//! | `engine`      | what is the reply to a request, and what does each event cause                 |
//! | `host`        | what must the server provide                                                   |
//! | `key`         | how are keys, clients and requests identified                                  |
//! | `hold`        | how is an owner's hold of a key identified                                     |
//! | `id_map`      | how are values stored by the ids of clients, requests and owners               |
//! | `name_filter` | is a name certainly absent from a table of names                               |
//! | `one_or_many` | how is a list stored that usually has one element                              |
//! | `testing`     | do the rules hold under any schedule                                           |
//!
//! Imports run one way: `value <- host <- queue <- engine <- testing`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod engine;
pub mod hold;
pub mod host;
pub mod id_map;
pub mod key;
pub mod name_filter;
pub mod one_or_many;
pub mod queue;
pub mod value;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
