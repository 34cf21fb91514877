//! Each peer: how its servers are started and why, and how its client acquires a lock.

pub mod etcd;
pub mod languages;
pub mod postgres;
pub mod redis_lock;
pub mod set_lua;
pub mod zookeeper;
