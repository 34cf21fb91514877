//! Ports for servers, each reserved for one test program: a server that was killed finds its port free when it
//! restarts, and its clients do not reach a server of another program there.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Mutex;

/// Ports are taken from below the range for outgoing connections (32768 on Linux, 49152 on macOS), so that no client of
/// another test ever uses the port of a server that restarts.
const FIRST_PORT: u16 = 12_000;
const BLOCK: u16 = 100;
const BLOCKS: u16 = 200;

/// The port blocks that this program has claimed.
struct Claimed {
    /// The ports left in the newest block.
    left: Range<u16>,
    /// The lock files of all blocks. The system unlocks them when the program ends, however it ends.
    files: Vec<File>,
}

pub fn free_port() -> u16 {
    static CLAIMED: Mutex<Claimed> = Mutex::new(Claimed { left: 0..0, files: Vec::new() });
    // A test that panicked left nothing half done.
    let mut claimed = CLAIMED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    loop {
        let Some(port) = claimed.left.next() else {
            let (file, first) = claim().expect("a file in the folder for temporary files").expect("a free block");
            claimed.files.push(file);
            claimed.left = first..first + BLOCK;
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Claims a block that no other program has: its locked file, and its first port.
fn claim() -> io::Result<Option<(File, u16)>> {
    // SAFETY: a plain system call.
    let user = unsafe { libc::getuid() };
    let folder = std::env::temp_dir().join(format!("redis-lock-ports-{user}"));
    fs::create_dir_all(&folder)?;
    // Concurrent programs start at different blocks.
    let start = std::process::id() % u32::from(BLOCKS);
    for block in (0..BLOCKS).cycle().skip(start as usize).take(usize::from(BLOCKS)) {
        let file = File::create(folder.join(block.to_string()))?;
        // SAFETY: a plain system call on an open file.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(Some((file, FIRST_PORT + block * BLOCK)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_is_claimed_twice() {
        let (_one, first) = claim().unwrap().unwrap();
        let (_other, second) = claim().unwrap().unwrap();
        assert_ne!(first, second);
    }
}
