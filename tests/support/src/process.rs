//! What a server process needs from the system: ending together with us, open files, libfaketime.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use crate::module::other_platform;

/// On Linux the kernel kills the process when the thread that started it ends, even if nothing can be dropped any more.
/// Elsewhere only the owner's `Drop` does.
#[cfg(target_os = "linux")]
pub fn die_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: prctl is a plain system call: it neither allocates nor takes a lock, so it may run between fork and exec.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        });
    }
}

#[cfg(not(target_os = "linux"))]
pub fn die_with_parent(_: &mut Command) {}

/// Asks a child to shut down cleanly (SIGTERM). It may already have ended.
pub fn request_shutdown(child: &Child) {
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a plain system call. The child has not been reaped yet, so the pid is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Raises this process's limit of open files as far as possible, which also applies to servers it starts. Returns the
/// limit.
pub fn raise_file_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one rlimit, which outlives it.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    let raised = libc::rlimit { rlim_cur: limit.rlim_max.min(65_536), ..limit };
    // SAFETY: the call reads one rlimit, which outlives it.
    match check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) }) {
        Ok(()) => Ok(raised.rlim_cur),
        // macOS allows less than it reports; the old limit stays.
        Err(_) => Ok(limit.rlim_cur),
    }
}

/// The CPU time of a process so far, exact even while it runs. `None` if the process is gone, and on systems other than
/// Linux, which do not report it for another process.
#[cfg(target_os = "linux")]
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the calls write one clock and one time, which outlive them.
    let is_known = unsafe {
        libc::clock_getcpuclockid(pid.try_into().ok()?, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
    };
    is_known.then_some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

#[cfg(not(target_os = "linux"))]
pub fn cpu_time(_: u32) -> Option<Duration> {
    None
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The path of Debian's libfaketime on any architecture.
pub fn faketime() -> PathBuf {
    if let Some(library) = other_platform("libfaketime.so.1") {
        return library;
    }
    let folders = fs::read_dir("/usr/lib").expect("/usr/lib is there");
    folders
        .filter_map(|folder| Some(folder.ok()?.path().join("faketime/libfaketime.so.1")))
        .find(|library| library.exists())
        .expect("libfaketime is installed (Debian, Ubuntu: apt install faketime)")
}
