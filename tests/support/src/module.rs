//! Finds the modules that servers load, and the clock library.

use std::env::{consts, current_exe, var_os};
use std::path::{Path, PathBuf};

/// `REDIS_LOCK_MODULE`, or the library that the same build put next to the running test, benchmark or example; None if
/// neither exists.
pub fn built_module() -> Option<PathBuf> {
    if let Some(path) = var_os("REDIS_LOCK_MODULE") {
        return Some(path.into());
    }
    built_library("redis_lock")
}

/// The module of `tests/caller`, built by `cargo build --workspace` with the same profile.
pub fn built_caller() -> Option<PathBuf> {
    other_platform("libtest_caller.so").or_else(|| built_library("test_caller"))
}

/// The clock library that servers under test preload, built in the same way.
pub fn built_clock() -> Option<PathBuf> {
    other_platform("libtest_clock.so").or_else(|| built_library("test_clock"))
}

/// A library in the directory `REDIS_LOCK_TEST_LIBRARIES`, for servers of a different platform than the tests'.
pub(crate) fn other_platform(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(var_os("REDIS_LOCK_TEST_LIBRARIES")?).join(name))
}

fn built_library(name: &str) -> Option<PathBuf> {
    let program = current_exe().expect("the path of the program is known");
    let profile = program.parent().and_then(Path::parent).expect("cargo puts programs into target/<profile>/<kind>");
    let library = profile.join(format!("{}{name}{}", consts::DLL_PREFIX, consts::DLL_SUFFIX));
    library.exists().then_some(library)
}
