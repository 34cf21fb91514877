//! What is told to operators of what the rules do. Nothing here decides anything.
//!
//! | file              | question                                                       |
//! | ----------------- | -------------------------------------------------------------- |
//! | `info`            | what does INFO's section `lock` say                            |
//! | `occurrences`     | what came of a turn, and who is told of that                   |
//! | `report`          | what is told of each occurrence: entries, lines, key events    |
//! | `log_lines`       | which lines come into the server's log, and how often          |
//! | `keyspace_events` | how is lock.keyspace-events published                          |
//! | `longest_turn`    | how long did a turn hold the server                            |

pub mod info;
pub mod keyspace_events;
mod log_lines;
pub mod longest_turn;
pub mod occurrences;
mod report;
