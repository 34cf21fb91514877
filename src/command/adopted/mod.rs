//! Adoption: which commands of clients that do not know the module act on native locks, and on which keys.
//!
//! The host puts `LOCK.ADOPTED` or `LOCK.ADOPTED_RO` in front of such a command ([`AdoptedKeys::container_of`]); the
//! command then looks at the key. Nothing is decided here.

mod originals;
mod patterns;
pub mod seen;

pub use originals::{Original, OriginalCommand, Places, ORIGINALS};
pub use patterns::{may_be_translated, AdoptedKeys, BadPatterns, Mode, PatternRow, MOST_PATTERNS};
