//! Locks in the server's keyspace.
//!
//! | file          | question                                       |
//! | ------------- | ---------------------------------------------- |
//! | `store`       | how do the rules open and change a stored lock |
//! | `lock_key`    | which lock is under an open key; its memory    |
//! | `datatype`    | what does the server ask of the data type      |
//! | `key_events`  | where has a lock with several holders gone     |
//! | `held`        | how many keys hold a lock                      |
//! | `removals`    | which locks expired or were removed by others  |
//! | `received`    | what does an effect of the primary do to a key |

pub mod datatype;
pub mod held;
pub mod key_events;
pub mod lock_key;
pub mod received;
pub mod removals;
pub mod store;
