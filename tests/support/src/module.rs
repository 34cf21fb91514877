//! Where the module is that servers load.

use std::env::{consts, current_exe, var_os};
use std::path::{Path, PathBuf};

/// `REDIS_LOCK_MODULE`, or the library that the same build put beside the running test, benchmark or example. None
/// where there is neither.
pub fn built_module() -> Option<PathBuf> {
    if let Some(path) = var_os("REDIS_LOCK_MODULE") {
        return Some(path.into());
    }
    let program = current_exe().expect("a program knows where it is");
    let profile = program.parent().and_then(Path::parent).expect("cargo puts programs into target/<profile>/<kind>");
    let library = profile.join(format!("{}redis_lock{}", consts::DLL_PREFIX, consts::DLL_SUFFIX));
    library.exists().then_some(library)
}
