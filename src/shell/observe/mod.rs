//! What is told to operators of what the rules do. Nothing here decides anything.
//!
//! | file              | question                                                       |
//! | ----------------- | -------------------------------------------------------------- |
//! | `info`            | what does INFO's section `lock` say                            |
//! | `report`          | what came of a turn, and what is told: entries, lines, events  |
//! | `log_lines`       | which lines come into the server's log, and how often          |
//! | `keyspace_events` | how is lock.keyspace-events published                          |

pub mod info;
pub mod keyspace_events;
mod log_lines;
pub mod report;
