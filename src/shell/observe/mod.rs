//! What is told to operators of what the rules do. Nothing here decides anything.
//!
//! | file          | question                                     |
//! | ------------- | -------------------------------------------- |
//! | `occurrences` | what came of a turn, and who is told of that |

pub mod occurrences;
