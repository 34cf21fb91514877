//! The key and owner names and the lease of a rival. The lengths are the same for all, because a longer name costs
//! more.

use std::rc::Rc;

/// The lease, in ms, in workloads where locks must not expire.
pub const LEASE_MS: u32 = 30_000;

pub struct Names {
    pub key: String,
    /// 36 characters, like a UUID.
    pub token: String,
    pub lease_ms: String,
    /// The same in seconds, for ways without milliseconds.
    pub lease_seconds: String,
    /// Digests of the rival's scripts, in the rival's order.
    pub scripts: Rc<[String]>,
}

impl Names {
    pub fn new(key: String, owner: usize, lease_ms: u32, scripts: &Rc<[String]>) -> Names {
        Names {
            key,
            token: format!("5ca1ab1e-0000-4000-8000-{owner:012x}"),
            lease_ms: lease_ms.to_string(),
            lease_seconds: lease_ms.div_ceil(1000).to_string(),
            scripts: scripts.clone(),
        }
    }

    /// The names of lock number `index`; its lease outlasts the workload.
    pub fn numbered(index: usize, scripts: &Rc<[String]>) -> Names {
        Names::new(format!("lock:{index:07}"), index, LEASE_MS, scripts)
    }
}
