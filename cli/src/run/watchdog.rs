//! A child process that ends the command when this process is killed with SIGKILL: the command and every process of its
//! group, as after a lost lock. It must be a separate process, because SIGKILL cannot be handled, and the kernel's
//! parent-death signal reaches only the command, not its children.
//!
//! It is a fork that knows the command's process group and reads from a pipe. This process never closes its end of the
//! pipe, so the kernel closes it when this process ends, whatever the cause.

use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use super::dispositions::AllBlocked;

/// Poll interval while a group ends.
const GROUP_CHECK: Duration = Duration::from_millis(20);

pub struct Watchdog {
    pipe: PipeWriter,
    id: libc::pid_t,
}

/// A watchdog that is exiting. Dropping this value reaps it, because the process that would inherit it may reap only
/// its own children, like PID 1 of a container that is not an init.
pub struct Dismissed {
    id: libc::pid_t,
}

impl Watchdog {
    /// `kill_after`: the time from SIGTERM to SIGKILL.
    pub fn start(kill_after: Duration) -> io::Result<Watchdog> {
        let (reader, pipe) = io::pipe()?;
        // The fork closes its end when it has left our process group.
        let (mut ready, until_ready) = io::pipe()?;
        // None of our handlers may run in the fork, and no signal may end it before this process.
        let _blocked = AllBlocked::new();
        // SAFETY: the fork makes only system calls until it ends, because another thread may hold any lock.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(reader.as_raw_fd(), kill_after),
            id => {
                // Before that, a SIGKILL to our group would also end the fork, and leave the command running.
                drop(until_ready);
                let _ = ready.read(&mut [0]);
                Ok(Watchdog { pipe, id })
            }
        }
    }

    /// Where the command's process writes its pid, between fork and exec: see [`introduce`].
    pub fn descriptor(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// The command has ended or was never started: what is left of its group is not ended.
    pub fn dismiss(mut self) -> Dismissed {
        // Fails if the watchdog was killed.
        let _ = self.pipe.write_all(&[0]);
        Dismissed { id: self.id }
    }
}

impl Drop for Dismissed {
    fn drop(&mut self) {
        // SAFETY: no status is written. An error means that it was killed and has been reaped among the command's
        // processes.
        unsafe { libc::waitpid(self.id, std::ptr::null_mut(), 0) };
    }
}

/// Reports this process's group to the watchdog. Async-signal-safe.
pub fn introduce(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the bytes are those of an integer that outlives the call.
    let written = unsafe {
        let group = libc::getpid().to_ne_bytes();
        libc::write(descriptor, group.as_ptr().cast(), group.len())
    };
    // A pipe takes four bytes at once or none. Without a watchdog the command still runs.
    let error = io::Error::last_os_error();
    match written {
        -1 if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// The body of the fork. Async-signal-safe.
fn watch(reader: RawFd, kill_after: Duration) -> ! {
    // SAFETY: only system calls on numbers and on local memory. Descriptor 0 becomes the pipe. All others are closed;
    // in particular, the server connection must not outlive our parent, because a session ends with it.
    unsafe {
        libc::setsid();
        libc::dup2(reader, 0);
        close_from(1);
        set_name();
        let (mut group, mut dismissed) = ([0; size_of::<libc::pid_t>()], [0]);
        if !read(&mut group) || read(&mut dismissed) {
            libc::_exit(0);
        }
        let group = -libc::pid_t::from_ne_bytes(group);
        libc::kill(group, libc::SIGTERM);
        // A stopped process would not handle SIGTERM.
        libc::kill(group, libc::SIGCONT);
        let pause = libc::timespec { tv_sec: 0, tv_nsec: GROUP_CHECK.as_nanos() as _ };
        for _ in 0..kill_after.as_millis().div_ceil(GROUP_CHECK.as_millis()) {
            if libc::kill(group, 0) != 0 {
                libc::_exit(0);
            }
            libc::nanosleep(&pause, std::ptr::null_mut());
        }
        libc::kill(group, libc::SIGKILL);
        libc::_exit(0)
    }
}

/// Fills `bytes` from descriptor 0; false at its end. Every signal is blocked, so no read is interrupted, and a write
/// of so few bytes is not split.
fn read(bytes: &mut [u8]) -> bool {
    // SAFETY: the memory has this length.
    let length = unsafe { libc::read(0, bytes.as_mut_ptr().cast(), bytes.len()) };
    usize::try_from(length) == Ok(bytes.len())
}

/// `pkill redis-lock` and `killall redis-lock` must not end the watchdog too.
fn set_name() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // SAFETY: a literal of at most 15 bytes.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"lock-watchdog".as_ptr());
    }
}

fn close_from(first: RawFd) {
    // SAFETY: nothing in this process uses these descriptors any more.
    unsafe {
        // Available in Linux 5.9 and later.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) == 0 {
            return;
        }
        // The limit may be a billion.
        for descriptor in first..libc::sysconf(libc::_SC_OPEN_MAX).clamp(1_024, 65_536) as RawFd {
            libc::close(descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_its_own_session_before_the_command_starts() {
        for _ in 0..20 {
            let watchdog = Watchdog::start(Duration::ZERO).unwrap();
            // SAFETY: a system call with integer arguments.
            let session = unsafe { libc::getsid(watchdog.id) };
            let id = watchdog.id;
            drop(watchdog.dismiss());
            assert_eq!(session, id);
        }
    }
}
