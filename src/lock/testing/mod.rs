//! Tests of the rules, and of a server, against a model that was written independently of them.

pub mod checks;
pub mod contract;
mod counted;
#[cfg(test)]
mod describe;
pub mod fences;
mod grants;
mod interleaving;
pub mod model;
pub mod promotion;
mod rules;
pub mod schedule;
pub mod search;
pub mod simulator;
pub mod trace;
mod wait_for;
pub mod world;

#[cfg(test)]
mod beside;
#[cfg(test)]
mod every;
#[cfg(test)]
mod found;
#[cfg(test)]
mod random;
