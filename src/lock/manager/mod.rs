//! The lock manager: decides every request, and everything that follows without a request.

pub mod acquire;
mod deliveries;
pub mod departure;
mod due;
mod ending_requests;
mod expiry;
#[cfg(test)]
mod fixture;
mod grace;
mod grant;
mod handoff;
pub mod inspection;
mod keyspace_changes;
pub mod lock_manager;
pub mod occurrence;
mod passing_owners;
mod recording;
pub mod release;
pub mod renewal;
mod samples;
mod session;
pub mod session_bindings;
mod shared_leases;
pub mod statistics;
mod sweep;
mod timer_set;
pub mod timers;
mod try_grant;
pub mod uncontended;

#[cfg(test)]
mod tests {
    mod coalescing;
    mod large_work;
    mod turns;
}
