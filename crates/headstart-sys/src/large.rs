//! An allocator that keeps nothing of large blocks: each is a mapping of its own, which the kernel has
//! back as soon as it is freed, and which grows without a copy.
//!
//! Small blocks come from the allocator below, and stay there for the next ones when they are freed.
//! mmap(2), mremap(2), munmap(2).

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

/// Blocks of so many bytes are large: `M_MMAP_THRESHOLD` of mallopt(3). A call of the kernel then costs
/// little beside the use of the block.
const LEAST: usize = 128 << 10;
/// The smallest page of Linux: mappings begin at a multiple of it.
const PAGE: usize = 4096;

/// The allocator `A`, but for large blocks.
#[derive(Debug)]
pub struct Large<A>(A);

impl<A> Large<A> {
    /// Large blocks from the kernel, others from the allocator `below`.
    #[must_use]
    pub const fn new(below: A) -> Self {
        Self(below)
    }
}

/// Whether a block is large, which its layout tells as well when it is freed.
fn is_large(layout: Layout) -> bool {
    layout.size() >= LEAST && layout.align() <= PAGE
}

/// A mapping of so many bytes, zeroed; null if the kernel has no memory.
fn map(bytes: usize) -> *mut u8 {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: where the mapping is, is for the kernel to choose, so that it replaces no other one.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
    mapped.map_or(ptr::null_mut(), |block| block.cast())
}

// SAFETY: a block is either one of the allocator below, to which it is then returned, or a mapping of at
// least the size of its layout that no other block shares. The layout alone decides which.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Large<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        // SAFETY: as the caller promises.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        // SAFETY: as the caller promises.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_large(layout) {
            // SAFETY: as the caller promises.
            return unsafe { self.0.dealloc(block, layout) };
        }
        // SAFETY: it is a whole mapping, made for a block of this layout, which is not used any more. If the
        // kernel keeps it, for lack of memory, it is lost.
        let _ = unsafe { munmap(block.cast(), layout.size()) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size fits a layout of this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(new)) {
            // SAFETY: as the caller promises.
            (false, false) => unsafe { self.0.realloc(block, layout, size) },
            (true, true) => {
                // SAFETY: it is a whole mapping, made for a block of this layout. The caller uses the block
                // only where this says that it is now.
                let moved =
                    unsafe { mremap(block.cast(), layout.size(), size, MremapFlags::MAYMOVE) };
                moved.map_or(ptr::null_mut(), |block| block.cast())
            }
            _ => {
                // SAFETY: the caller promises that the size is not zero.
                let moved = unsafe { self.alloc(new) };
                if !moved.is_null() {
                    // SAFETY: both have so many bytes, and a new block shares none with a live one.
                    unsafe { ptr::copy_nonoverlapping(block, moved, layout.size().min(size)) };
                    // SAFETY: as the caller promises; the old block is not used any more.
                    unsafe { self.dealloc(block, layout) };
                }
                moved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST, Large, PAGE};
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicIsize, Ordering};

    /// The system's allocator, with the number of its blocks.
    struct Counted(AtomicIsize);

    // SAFETY: it is the system's.
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.0.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as the caller promises.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            self.0.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(block, layout) }
        }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn memory() -> Large<Counted> {
        Large::new(Counted(AtomicIsize::new(0)))
    }

    impl Large<Counted> {
        /// A block; whether it is of the allocator below; the block is freed.
        fn is_from_below(&self, size: usize, align: usize) -> bool {
            let layout = layout(size, align);
            // SAFETY: all tests give a size.
            let block = unsafe { self.alloc(layout) };
            assert!(!block.is_null() && block.addr().is_multiple_of(align), "{size} at {align}");
            let below = self.0.0.load(Ordering::Relaxed);
            // SAFETY: the block has so many bytes, and this is its only view.
            unsafe { block.write_bytes(0xff, size) };
            // SAFETY: it is used no more.
            unsafe { self.dealloc(block, layout) };
            assert_eq!(self.0.0.load(Ordering::Relaxed), 0, "{size} at {align}");
            below == 1
        }
    }

    #[test]
    fn large_blocks_are_mappings_and_others_are_of_the_allocator_below() {
        let memory = memory();
        for (size, align, below) in [
            (1, 1, true),
            (LEAST - 1, 8, true),
            (LEAST, 8, false),
            (LEAST + 1, PAGE, false),
            (LEAST, 2 * PAGE, true),
            (10 * LEAST, 1, false),
        ] {
            assert_eq!(memory.is_from_below(size, align), below, "{size} at {align}");
        }
    }

    #[test]
    fn what_is_more_than_the_kernel_has_is_null() {
        let memory = memory();
        // SAFETY: it is a size.
        assert!(unsafe { memory.alloc(layout(isize::MAX as usize - PAGE, 1)) }.is_null());
    }

    #[test]
    fn a_block_keeps_its_content_however_it_grows_and_shrinks() {
        let memory = memory();
        let mut size = 64;
        // SAFETY: it is a size.
        let mut block = unsafe { memory.alloc_zeroed(layout(size, 8)) };
        for new in [LEAST - 1, LEAST, 9 * LEAST + 5, 64 * LEAST, 3 * LEAST, LEAST - 1, 100] {
            // SAFETY: the block has so many bytes, and this is its only view.
            unsafe { block.write_bytes(new as u8, size) };
            // SAFETY: it is the size of the block, whose old place is used no more.
            block = unsafe { memory.realloc(block, layout(size, 8), new) };
            assert!(!block.is_null());
            // SAFETY: the block has so many bytes, and so many of them were written.
            let kept = unsafe { std::slice::from_raw_parts(block, size.min(new)) };
            assert!(kept.iter().all(|byte| *byte == new as u8), "{size} to {new}");
            size = new;
        }
        // SAFETY: it is the size of the block, which is used no more.
        unsafe { memory.dealloc(block, layout(size, 8)) };
        assert_eq!(memory.0.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_large_block_that_is_freed_is_no_memory_of_the_process() {
        let memory = memory();
        let layout = layout(10 * LEAST, 8);
        // SAFETY: it is a size.
        let block = unsafe { memory.alloc(layout) };
        // SAFETY: it is the block's.
        unsafe { memory.dealloc(block, layout) };
        // Nothing else maps memory meanwhile: tests run in a process of their own.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &str| {
            let (from, rest) = line.split_once('-')?;
            let (to, _) = rest.split_once(' ')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(from)?..number(to)?).contains(&block.addr()))
        };
        assert!(!maps.lines().any(|line| holds(line) == Some(true)));
    }
}
