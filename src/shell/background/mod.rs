//! What happens without a command: server events, the timer, the write check. The decisions are made in `engine_pass`.

pub mod events;
pub mod inspections;
pub mod server_events;
pub mod stall;
pub mod timer;
pub mod write_check;
