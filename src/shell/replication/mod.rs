//! What replicas and the append-only file get.
//!
//! | file        | question                               |
//! | ----------- | -------------------------------------- |
//! | `effect`    | what is an effect as bytes, to and fro |
//! | `emit`      | when is which effect sent              |
//! | `consumers` | does anybody consume effects           |
//!
//! They are applied by `commands::apply`: they come as a command.

pub mod consumers;
pub mod effect;
pub mod emit;
