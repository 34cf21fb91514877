//! Counts memory allocations, which follow CPU time but do not change with other work on the machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! { static ALLOCATIONS: Cell<u64> = const { Cell::new(0) } }

/// The system's allocator, which counts the allocations of each thread. A program enables it with
/// `#[global_allocator]`.
pub struct CountingAllocator;

impl CountingAllocator {
    /// The number of allocations and reallocations of this thread.
    pub fn count() -> u64 {
        ALLOCATIONS.get()
    }
}

// SAFETY: it only counts, and passes everything on to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}
