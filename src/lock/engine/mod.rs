//! The lock manager: decides every request, and everything that happens without a request.

pub mod acquire;
mod backlog;
pub mod counted_holds;
mod deliveries;
mod drain;
mod due;
mod expiry;
#[cfg(test)]
mod fixture;
#[cfg(any(test, feature = "testing"))]
mod for_simulator;
mod grace;
mod grant;
mod handoff;
pub mod keyspace_changes;
pub mod leave;
pub mod limits;
pub mod lock_error;
pub mod lock_manager;
pub mod observer;
mod open_key;
mod pending_removals;
pub mod preempt;
pub mod release;
pub mod session;
pub mod session_bindings;
pub mod step;
pub mod timers;
pub mod uncontended;
mod verdict;
mod waits;

#[cfg(test)]
mod tests {
    mod coalescing;
    mod large_work;
    mod recording;
    mod time_slices;
}
