//! The client on real servers: the cases of clients/conformance.md, and what is particular to this language.

#![cfg(test)]

mod allocations;
mod at_least;
mod cancellation;
mod causes;
mod cluster;
mod conformance;
mod connections;
mod durations;
mod imports;
mod lock_types;
mod mixed;
mod observing;
mod once;
mod proxy;
mod readme;
mod renewing;
mod run;
mod servers;
mod shutdown;
mod storm;
mod tls;
