//! The signal dispositions and mask of this process, and restoring the original ones for a command. Nothing here
//! decides what a signal means.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::Signal;

/// True if our parent wants the signal ignored: `nohup` does that with SIGHUP, a shell without job control with SIGINT
/// for its background commands.
pub fn is_ignored(signal: Signal) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given; the old one is written to memory of its type, for which all zeros is valid.
    let now = unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}

/// The disposition that replaces a handler temporarily.
#[derive(Clone, Copy)]
pub enum Substitute {
    /// The system's default action: end, stop, or nothing.
    Default,
    Ignore,
}

/// A signal's handler that is temporarily replaced; dropping this restores it.
pub struct PutAside {
    signal: Signal,
    handler: libc::sigaction,
}

impl PutAside {
    pub fn new(signal: Signal, substitute: Substitute) -> PutAside {
        PutAside { signal, handler: replace(signal, substitute) }
    }
}

impl Drop for PutAside {
    fn drop(&mut self) {
        // SAFETY: the action is the one that the system returned for this signal.
        unsafe { libc::sigaction(self.signal.as_raw(), &self.handler, ptr::null_mut()) };
    }
}

/// Async-signal-safe.
fn replace(signal: Signal, substitute: Substitute) -> libc::sigaction {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros is a sigaction without flags and with an empty mask; SIG_DFL and SIG_IGN call none of our code.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = match substitute {
            Substitute::Default => libc::SIG_DFL,
            Substitute::Ignore => libc::SIG_IGN,
        };
        libc::sigaction(signal.as_raw(), &action, before.as_mut_ptr());
        before.assume_init()
    }
}

/// Blocks every signal in this thread until dropped, so that none is lost between fork and exec, and a background
/// process may set the terminal's foreground group.
pub struct AllBlocked {
    before: libc::sigset_t,
    /// Not `Send`, because a mask belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl AllBlocked {
    pub fn new() -> AllBlocked {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets are memory of their type, and written before they are read.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        AllBlocked { before, _thread: PhantomData }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the system returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// The signals that our parent blocked; the command gets the same mask.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

impl Mask {
    pub fn of_this_thread() -> Mask {
        let mut now = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: no new set is given; the old one is written to memory of its type.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), now.as_mut_ptr());
            Mask(now.assume_init())
        }
    }

    /// Async-signal-safe.
    fn apply(&self) -> io::Result<()> {
        // SAFETY: the set is one that the system returned.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Delivers these signals to this thread from now on, whatever our parent had blocked.
pub fn unblock(signals: &[Signal]) {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is emptied before it is filled and read; the numbers are valid signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Sends this thread a signal; it has been handled when the call returns.
pub fn raise(signal: i32) {
    // SAFETY: a process may send any signal to itself; an invalid number is an error without effect.
    unsafe { libc::raise(signal) };
}

/// Runs `prepare` in the child that becomes the command, and then restores the signal state of our parent: no handlers
/// for the `handled` signals, and `mask` as the blocked signals.
///
/// # Safety
/// `prepare` runs between fork and exec: it must not allocate, lock, or touch what another thread may hold.
pub unsafe fn before_exec(
    command: &mut std::process::Command,
    mask: Mask,
    handled: [&'static [Signal]; 2],
    prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    use std::os::unix::process::CommandExt;
    // SAFETY: `replace` and `apply` are async-signal-safe and allocate nothing; the caller guarantees the same for
    // `prepare`.
    unsafe {
        command.pre_exec(move || {
            prepare()?;
            for signal in handled.into_iter().flatten() {
                if !is_ignored(*signal) {
                    replace(*signal, Substitute::Default);
                }
            }
            mask.apply()
        })
    };
}
