//! What is told to operators of what the rules do. Nothing here decides anything.
//!
//! | file              | question                                                    |
//! | ----------------- | ----------------------------------------------------------- |
//! | `occurrences`     | what came of a turn, and who is told of that                |
//! | `report`          | what is told of each occurrence: entries, lines, key events |
//! | `lock_log`        | which entries has LOCK.LOG                                  |
//! | `log_lines`       | which lines come into the server's log, and how often       |
//! | `keyspace_events` | how is lock.keyspace-events published                       |

pub mod keyspace_events;
pub mod lock_log;
mod log_lines;
pub mod occurrences;
mod report;
