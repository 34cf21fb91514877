//! The input of every workload: the servers to start and the amount of work.

use std::path::PathBuf;
use std::time::Duration;

use support::Builder;

use crate::scale::Scale;

pub struct Plan {
    /// The server with its default configuration, with the module.
    pub builder: Builder,
    /// The module, if there is one.
    pub module: Option<PathBuf>,
    /// Another build of it to compare with.
    pub base: Option<PathBuf>,
    /// The module of benches/floor, if it was built.
    pub floor: Option<PathBuf>,
    pub scale: Scale,
    /// The limit of open files for this process and for a server that it starts.
    pub files: u64,
}

impl Plan {
    /// The server with the module and the floor.
    pub fn with_floor(&self) -> Builder {
        match &self.floor {
            Some(path) => self.builder.clone().config(format!("loadmodule {}", path.display())),
            None => self.builder.clone(),
        }
    }

    /// Durations, in ms.
    pub fn time(&self, full_ms: u64, quick_ms: u64) -> Duration {
        Duration::from_millis(self.scale.pick(full_ms, quick_ms))
    }
}
