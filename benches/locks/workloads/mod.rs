//! One file for each question that the benchmark asks.

pub mod bytes;
pub mod contended;
pub mod growth;
pub mod memory;
pub mod ordinary_keys;
pub mod pair;
pub mod wakeup;

use crate::rivals::{Names, Rival, LEASE_MS};
use crate::server::Recipe;
use crate::stats::Scale;
use std::rc::Rc;
use std::time::Duration;

/// What every workload is told.
pub struct Plan {
    pub recipe: Recipe,
    pub scale: Scale,
    /// How many files this process, and a server that it starts, may have open.
    pub files: u64,
}

impl Plan {
    /// How long something runs, in ms.
    pub fn time(&self, full_ms: u64, quick_ms: u64) -> Duration {
        Duration::from_millis(self.scale.pick(full_ms, quick_ms))
    }
}

/// The names of lock number `index`, whose lease outlasts the workload.
pub fn names(index: usize, scripts: &Rc<[String]>) -> Names {
    named(format!("lock:{index:07}"), index, LEASE_MS, scripts)
}

pub fn named(key: String, owner: usize, lease_ms: u32, scripts: &Rc<[String]>) -> Names {
    Names {
        key,
        token: format!("5ca1ab1e-0000-4000-8000-{owner:012x}"),
        lease_ms: lease_ms.to_string(),
        lease_seconds: lease_ms.div_ceil(1000).to_string(),
        scripts: scripts.clone(),
    }
}

/// A rival that the server can run, and its scripts there.
pub type Ready = (&'static Rival, Rc<[String]>);

/// Those of `rivals` that the server can run, with their scripts, and the names of the others.
pub fn present(
    server: &mut crate::server::Server,
    rivals: &[&'static Rival],
) -> std::io::Result<(Vec<Ready>, Vec<&'static str>)> {
    let mut here = Vec::new();
    let mut missing = Vec::new();
    for rival in rivals {
        match rival.prepare(server)? {
            Some(scripts) => here.push((*rival, scripts)),
            None => missing.push(rival.name),
        }
    }
    Ok((here, missing))
}
