//! What happens without a command: the server's events, the one timer, the write gate. `turn` decides.

pub mod events;
pub mod gate;
pub mod inspections;
pub mod server_events;
pub mod stall;
pub mod timer;
