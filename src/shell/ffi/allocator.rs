//! The server's allocator, so that locks count in its memory, with the alignment that Rust asks for.
//!
//! A server whose allocator does not tell the size of a block keeps it in the eight bytes before the block: one built
//! with `MALLOC=libc` on musl, say (zmalloc.c, `PREFIX_SIZE`; Redis 7.0 to 8.6, Valkey). Blocks are then aligned to
//! eight bytes and no more, and a hash table on x86-64, which is read sixteen aligned bytes at a time, ends the server.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use redis_module::alloc::RedisAlloc;

/// What every server aligns its blocks to.
const SERVERS_ALIGN: usize = 8;

/// Asks for more where more alignment is wanted, and keeps the address of the server's block in the eight bytes before
/// the aligned one: sixteen bytes for each hash table, on every server, so that a block is freed as it was allocated.
pub struct ServerAllocator<A = RedisAlloc>(A);

#[cfg(not(test))]
impl ServerAllocator {
    pub const fn new() -> ServerAllocator {
        ServerAllocator(RedisAlloc)
    }
}

// SAFETY: a block is as large and as aligned as its layout says, and freed by the allocator that it is from.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ServerAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= SERVERS_ALIGN {
            // SAFETY: the caller's promise.
            return unsafe { self.0.alloc(layout) };
        }
        let Some(larger) = larger(layout) else { return null_mut() };
        // SAFETY: its size is not zero.
        let block = unsafe { self.0.alloc(larger) };
        if block.is_null() {
            return null_mut();
        }
        // From an address that is a multiple of eight, the next multiple of the alignment is eight bytes away or more.
        let skipped = layout.align() - (block as usize) % layout.align();
        // SAFETY: `larger` has room for all that can be skipped: the block and the eight bytes before it are in it.
        unsafe {
            let aligned = block.add(skipped);
            aligned.cast::<*mut u8>().sub(1).write(block);
            aligned
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() <= SERVERS_ALIGN {
            // SAFETY: the caller's promise.
            return unsafe { self.0.dealloc(block, layout) };
        }
        let larger = larger(layout).expect("the block was allocated");
        // SAFETY: `alloc` wrote the address there, of a block of this layout.
        unsafe { self.0.dealloc(block.cast::<*mut u8>().sub(1).read(), larger) }
    }
}

/// The server's block. None: no such size exists.
fn larger(layout: Layout) -> Option<Layout> {
    Layout::from_size_align(layout.size().checked_add(layout.align())?, SERVERS_ALIGN).ok()
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    /// As zmalloc without `malloc_usable_size`: the size is kept in eight bytes before the block.
    struct Prefixed;

    // SAFETY: the block is the system's, less its first eight bytes.
    unsafe impl GlobalAlloc for Prefixed {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the layout is larger than its prefix.
            unsafe {
                let block = System.alloc(prefixed(layout));
                block.cast::<usize>().write(layout.size());
                block.add(8)
            }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: `alloc` returned it, eight bytes into a block of this layout.
            unsafe {
                assert_eq!(block.sub(8).cast::<usize>().read(), layout.size(), "freed as it was allocated");
                System.dealloc(block.sub(8), prefixed(layout));
            }
        }
    }

    fn prefixed(layout: Layout) -> Layout {
        Layout::from_size_align(layout.size() + 8, 16).expect("there is such a size")
    }

    #[test]
    fn a_block_is_aligned_where_the_servers_blocks_are_aligned_to_eight_bytes() {
        let allocator = ServerAllocator(Prefixed);
        for align in [1, 8, 16, 32, 4096] {
            for size in [1, 8, 100, 4096] {
                let layout = Layout::from_size_align(size, align).expect("there is such a layout");
                // SAFETY: the size is not zero; the block is written to within its size, and freed by the same layout.
                unsafe {
                    let block = allocator.alloc(layout);
                    assert_eq!((block as usize) % align, 0, "{layout:?}");
                    block.write_bytes(0xff, size);
                    allocator.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn a_size_that_does_not_exist_is_refused() {
        let layout = Layout::from_size_align(isize::MAX as usize & !15, 16).expect("it is the largest");
        // SAFETY: the size is not zero.
        assert!(unsafe { ServerAllocator(Prefixed).alloc(layout) }.is_null());
    }
}
