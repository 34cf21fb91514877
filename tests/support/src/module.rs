//! Where the modules are that servers load, and the clock.

use std::env::{consts, current_exe, var_os};
use std::path::{Path, PathBuf};

/// `REDIS_LOCK_MODULE`, or the library that the same build put beside the running test, benchmark or example. None
/// where there is neither.
pub fn built_module() -> Option<PathBuf> {
    if let Some(path) = var_os("REDIS_LOCK_MODULE") {
        return Some(path.into());
    }
    built_library("redis_lock")
}

/// The module of `tests/caller`, where `cargo build --workspace` of the same profile put it.
pub fn built_caller() -> Option<PathBuf> {
    other_platform("libtest_caller.so").or_else(|| built_library("test_caller"))
}

/// The clock that servers under test preload, from there too.
pub fn built_clock() -> Option<PathBuf> {
    other_platform("libtest_clock.so").or_else(|| built_library("test_clock"))
}

/// A library of the folder that `REDIS_LOCK_TEST_LIBRARIES` names, for servers of another platform than the tests'.
pub(crate) fn other_platform(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(var_os("REDIS_LOCK_TEST_LIBRARIES")?).join(name))
}

fn built_library(name: &str) -> Option<PathBuf> {
    let program = current_exe().expect("a program knows where it is");
    let profile = program.parent().and_then(Path::parent).expect("cargo puts programs into target/<profile>/<kind>");
    let library = profile.join(format!("{}{name}{}", consts::DLL_PREFIX, consts::DLL_SUFFIX));
    library.exists().then_some(library)
}
