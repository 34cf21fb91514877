//! What replicas and the append-only file get.
//!
//! | file        | question                               |
//! | ----------- | -------------------------------------- |
//! | `emit`      | when is which effect sent              |
//! | `consumers` | does anybody consume effects           |
//!
//! They are applied by `commands::apply`: they come as a command.

pub mod consumers;
pub mod emit;
