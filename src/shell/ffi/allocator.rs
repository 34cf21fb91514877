//! The server's allocator, so that locks count toward its memory, with the alignment that Rust requires.
//!
//! If the allocator that the server was built with cannot report the size of a block, the server keeps the size in the
//! eight bytes before the block. This is the case with `MALLOC=libc` on musl, for example (zmalloc.c, `PREFIX_SIZE`;
//! Redis 7.0 to 8.6, Valkey). Blocks are then aligned to only eight bytes, and a hash table on x86-64, which is read in
//! aligned units of sixteen bytes, crashes the server.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use redis_module::alloc::RedisAlloc;

/// The alignment that every server guarantees.
const SERVERS_ALIGN: usize = 8;

/// For a larger alignment, allocates a larger block and stores the address of the server's block in the eight bytes
/// before the aligned one. This costs sixteen bytes per hash table. It applies to every server, so that a block is
/// always freed the way it was allocated.
pub struct ServerAllocator<A = RedisAlloc>(A);

#[cfg(not(test))]
impl ServerAllocator {
    pub const fn new() -> ServerAllocator {
        ServerAllocator(RedisAlloc)
    }
}

// SAFETY: a block has the size and alignment of its layout, and is freed by the allocator it came from.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ServerAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= SERVERS_ALIGN {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.0.alloc(layout) };
        }
        let Some(larger) = larger(layout) else { return null_mut() };
        // SAFETY: its size is not zero.
        let block = unsafe { self.0.alloc(larger) };
        if block.is_null() {
            return null_mut();
        }
        // The server's block is aligned to eight bytes, so the next multiple of the alignment is at least eight bytes
        // away.
        let skipped = layout.align() - (block as usize) % layout.align();
        // SAFETY: `larger` includes the skipped bytes, so the block and the eight bytes before it are inside it.
        unsafe {
            let aligned = block.add(skipped);
            aligned.cast::<*mut u8>().sub(1).write(block);
            aligned
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() <= SERVERS_ALIGN {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.0.dealloc(block, layout) };
        }
        let larger = larger(layout).expect("the block was allocated");
        // SAFETY: `alloc` wrote the address there, of a block of this layout.
        unsafe { self.0.dealloc(block.cast::<*mut u8>().sub(1).read(), larger) }
    }
}

/// The layout of the server's block. `None`: that size does not exist.
fn larger(layout: Layout) -> Option<Layout> {
    Layout::from_size_align(layout.size().checked_add(layout.align())?, SERVERS_ALIGN).ok()
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    /// Like zmalloc without `malloc_usable_size`: keeps the size in the eight bytes before the block.
    struct Prefixed;

    // SAFETY: the block is the system's, without its first eight bytes.
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
                // SAFETY: the size is not zero; the block is written to within its size, and freed with the same
                // layout.
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
