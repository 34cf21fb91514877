//! The memory of a server at rest.

use std::thread;
use std::time::Duration;

use support::{Client, Info};

/// The time between two readings: the server cleans up ten times a second.
const ROUND: Duration = Duration::from_millis(50);

/// How much more memory may be in use, which is how much the server's allocator and tables vary.
const USED_SLACK: i64 = 512 << 10;

/// Pages once used may stay resident; how many depends on what was freed in which order.
const RESIDENT_SLACK: i64 = 8 << 20;

/// In bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    pub used: i64,
    pub resident: i64,
    /// True if the allocator returns pages to the system, as jemalloc does. The C library's keeps them: without the
    /// module, four runs of 9,000 BLPOP clients left 55, 96, 123 and 138 MB resident in a Valkey, with 1.1 MB in use
    /// each time.
    returns_pages: bool,
}

impl Memory {
    /// The memory when the server has cleaned up: it frees the helpers of blocked clients and shrinks its tables step
    /// by step.
    pub fn at_rest(client: &mut Client) -> Memory {
        let mut lowest = Memory { used: i64::MAX, resident: i64::MAX, returns_pages: true };
        // Counts readings, not seconds: on a busy machine there may be fewer readings in a second.
        let mut readings = 0;
        while readings < 10 {
            client.run("MEMORY PURGE");
            let info = Info::parse(client.run("INFO memory").text());
            let (used, resident) = (info.number("used_memory"), info.number("used_memory_rss"));
            readings = if used < lowest.used - (16 << 10) { 0 } else { readings + 1 };
            lowest = Memory {
                used: used.min(lowest.used),
                resident: resident.min(lowest.resident),
                returns_pages: info.text("mem_allocator").starts_with("jemalloc"),
            };
            thread::sleep(ROUND);
        }
        lowest
    }

    /// Whether more is in use, or resident, than before.
    pub fn has_grown_since(self, before: Memory) -> bool {
        self.used > before.used + USED_SLACK || self.returns_pages && self.resident > before.resident + RESIDENT_SLACK
    }
}

#[test]
fn a_leak_of_a_byte_per_operation_is_detected() {
    let before = Memory { used: 3_000_000, resident: 12_000_000, returns_pages: true };
    let with = |used, resident| Memory { used: before.used + used, resident: before.resident + resident, ..before };
    assert!(!with(100_000, 1_000_000).has_grown_since(before));
    assert!(with(1_000_000, 0).has_grown_since(before));
    assert!(with(0, 10_000_000).has_grown_since(before));
    let kept = |used| Memory { returns_pages: false, ..with(used, 10_000_000) };
    assert!(!kept(0).has_grown_since(before));
    assert!(kept(1_000_000).has_grown_since(before));
}
