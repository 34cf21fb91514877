//! One lock: its holders, the requests that it admits, and the values that it consists of.

pub mod claim;
pub mod exclusive;
pub mod fence;
pub mod holders;
pub mod lock;
pub mod outcome;
pub mod owner;
pub mod rebuild;
pub mod shared;
pub mod time;
