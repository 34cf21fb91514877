//! A library to preload into a server under test (LD_PRELOAD). It freezes the server's wall clock and monotonic clock,
//! each at the time that the test sets.
//!
//! The file named by `TEST_CLOCK` contains both as native 64-bit numbers of microseconds, and their XOR, which detects
//! a partial write. The server reads it after its event loop has slept, so that no time passes while it works, and a
//! new time applies from the next command on. Without the variable, and for every other clock, the kernel's time is
//! used.
//!
//! Anything may read the clock at any time, even an allocator before its first allocation. So nothing here allocates,
//! locks or panics.

#![cfg(target_os = "linux")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libc::{c_int, c_void, clockid_t, epoll_event, time_t, timespec, timeval};

/// The clocks in the file, in microseconds.
#[repr(C)]
struct File {
    wall: AtomicU64,
    monotonic: AtomicU64,
    both: AtomicU64,
}

/// The value if no file is named or it cannot be mapped.
static NO_FILE: File = File { wall: AtomicU64::new(0), monotonic: AtomicU64::new(0), both: AtomicU64::new(0) };

static MAPPED: AtomicPtr<File> = AtomicPtr::new(null_mut());

/// The current times.
static WALL: AtomicU64 = AtomicU64::new(0);
static MONOTONIC: AtomicU64 = AtomicU64::new(0);

/// Whether there is a file. The first call maps it.
fn is_standing() -> bool {
    if MAPPED.load(Ordering::Acquire).is_null() {
        MAPPED.store(map().unwrap_or(&NO_FILE).cast_mut(), Ordering::Release);
        look();
    }
    !std::ptr::eq(MAPPED.load(Ordering::Acquire), &NO_FILE)
}

fn map() -> Option<*const File> {
    // SAFETY: system calls, and strings that end with NUL.
    unsafe {
        let path = libc::getenv(c"TEST_CLOCK".as_ptr());
        if path.is_null() {
            return None;
        }
        let file = libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let mapped = libc::mmap(null_mut(), size_of::<File>(), libc::PROT_READ, libc::MAP_SHARED, file, 0);
        libc::close(file);
        (mapped != libc::MAP_FAILED).then_some(mapped.cast_const().cast())
    }
}

/// Sets the clocks from the file.
fn look() {
    // SAFETY: the pointer is to the static above or to a mapping that is never unmapped.
    let Some(file) = (unsafe { MAPPED.load(Ordering::Acquire).as_ref() }) else { return };
    loop {
        let (wall, monotonic) = (file.wall.load(Ordering::Acquire), file.monotonic.load(Ordering::Acquire));
        if wall ^ monotonic == file.both.load(Ordering::Acquire) {
            WALL.store(wall, Ordering::Release);
            MONOTONIC.store(monotonic, Ordering::Release);
            return;
        }
        std::hint::spin_loop();
    }
}

/// The time of this clock, in microseconds; `None` if it is the kernel's.
fn stands_at(clock: clockid_t) -> Option<u64> {
    if !is_standing() {
        return None;
    }
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Some(WALL.load(Ordering::Acquire)),
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => {
            Some(MONOTONIC.load(Ordering::Acquire))
        }
        _ => None,
    }
}

/// Replaces the C library's function, and updates the clocks afterwards.
///
/// # Safety
/// `events` points to space for that many events.
#[no_mangle]
pub unsafe extern "C" fn epoll_wait(epoll: c_int, events: *mut epoll_event, max_events: c_int, ms: c_int) -> c_int {
    let no_signals = null_mut::<c_void>();
    // SAFETY: the caller's promise.
    let number = unsafe { libc::syscall(libc::SYS_epoll_pwait, epoll, events, max_events, ms, no_signals, 8) };
    look();
    number as c_int
}

/// Replaces the C library's function.
///
/// # Safety
/// `time` is valid for writes.
#[no_mangle]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    match stands_at(clock) {
        Some(us) => {
            let (tv_sec, tv_nsec) = ((us / 1_000_000) as _, (us % 1_000_000 * 1_000) as _);
            // SAFETY: the caller's promise.
            unsafe { time.write(timespec { tv_sec, tv_nsec }) };
            0
        }
        // SAFETY: the caller's promise.
        None => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int },
    }
}

/// Replaces the C library's function.
///
/// # Safety
/// `time` is valid for writes or null.
#[no_mangle]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, _: *mut c_void) -> c_int {
    if !time.is_null() {
        let us = wall_us();
        let (tv_sec, tv_usec) = ((us / 1_000_000) as _, (us % 1_000_000) as _);
        // SAFETY: the caller's promise.
        unsafe { time.write(timeval { tv_sec, tv_usec }) };
    }
    0
}

/// Replaces the C library's function.
///
/// # Safety
/// `seconds` is valid for writes or null.
#[no_mangle]
pub unsafe extern "C" fn time(seconds: *mut time_t) -> time_t {
    let now = (wall_us() / 1_000_000) as time_t;
    if !seconds.is_null() {
        // SAFETY: the caller's promise.
        unsafe { seconds.write(now) };
    }
    now
}

fn wall_us() -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
