//! The names of keys and owners and the lease of a rival: the same for all, so that none pays for a longer name.

use std::rc::Rc;

/// The lease of every lock in a workload that does not mean it to end, in ms.
pub const LEASE_MS: u32 = 30_000;

pub struct Names {
    pub key: String,
    /// 36 characters, as a UUID has.
    pub token: String,
    pub lease_ms: String,
    /// The same in seconds, for ways without milliseconds.
    pub lease_seconds: String,
    /// Digests of the rival's scripts, in its order.
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
