//! The lock manager: decides every request, and everything that follows without a request.

pub mod acquire;
mod deliveries;
pub mod departure;
mod drain;
mod expiry;
#[cfg(test)]
mod fixture;
mod grant;
mod handoff;
mod keyspace_changes;
pub mod lock_manager;
pub mod observer;
pub mod release;
pub mod session;
pub mod session_bindings;
pub mod timers;
pub mod uncontended;

#[cfg(test)]
mod tests {
    mod coalescing;
    mod large_work;
    mod turns;
}
