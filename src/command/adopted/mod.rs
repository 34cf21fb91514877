//! Adoption: which commands of clients that do not know the module act on native locks, and on which keys.
//!
//! The host prefixes such a command with `LOCK.ADOPTED` or `LOCK.ADOPTED_RO` ([`AdoptedKeys::container_of`]). Only the
//! command itself looks at the key and decides; this module decides nothing.

mod originals;
mod patterns;
pub mod seen;

pub use originals::{KeysAt, Original, OriginalCommand, ORIGINALS};
pub use patterns::{may_be_translated, AdoptedKeys, BadPatterns, PatternMode, PatternRow, MOST_PATTERNS};
