//! What happens without a command: the server's events, the one timer, the write gate.
//!
//! | file            | question                                                    |
//! | --------------- | ----------------------------------------------------------- |
//! | `server_events` | what does the server tell, and which event of ours is it    |
//! | `events`        | what happened where nothing may be decided                  |
//! | `timer`         | when is the next turn without a command                     |
//! | `turn_end`      | when is a turn of the server over                           |
//! | `gate`          | does the server accept a write now that no client asked for |
//! | `evictions`     | which locks does the server evict                           |
//! | `stall`         | did the server stand still, and may it have been replaced   |
//! | `inspections`   | when are keys inspected that may have changed unnoticed     |
//!
//! What such a turn decides is in `turn`.

pub mod events;
pub mod evictions;
pub mod gate;
pub mod inspections;
pub mod server_events;
pub mod stall;
pub mod timer;
pub mod turn_end;
