//! Each peer: how its servers are started and why so, and how its users' client takes a lock.

pub mod etcd;
pub mod languages;
pub mod postgres;
pub mod redis_lock;
pub mod set_lua;
pub mod zookeeper;
