//! An allocator with a reserve, for a process that has to become another program even when the
//! kernel gives it no more memory.
//!
//! Small blocks come from the reserve while the allocator below has none, and are not used
//! again. It does not help for long: what the reserve has no room for fails as without it.
//! malloc(3), mmap(2).

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the reserve: several times what a start takes until its exec.
const SIZE: usize = 256 << 10;

/// An allocator that `A` is, with a reserve. It is part of the program's zeroed data, whose pages take no
/// memory until they are used.
#[derive(Debug)]
pub struct Reserve<A> {
    below: A,
    used: AtomicUsize,
    bytes: Bytes,
}

#[derive(Debug)]
#[repr(align(4096))]
struct Bytes(UnsafeCell<[u8; SIZE]>);

// SAFETY: the bytes are only given out, each of them once, by an atomic count; nothing here
// reads or writes them but through the pointer of the block that they were given out as.
unsafe impl Sync for Bytes {}

impl<A> Reserve<A> {
    /// The allocator `below`, with a reserve.
    #[must_use]
    pub const fn new(below: A) -> Self {
        Self { below, used: AtomicUsize::new(0), bytes: Bytes(UnsafeCell::new([0; SIZE])) }
    }

    /// A block of the reserve, which is zeroed; null if there is no room.
    fn take(&self, layout: Layout) -> *mut u8 {
        let start = self.bytes.0.get().cast::<u8>();
        let fitting = |used: usize| {
            let at = used + start.wrapping_add(used).align_offset(layout.align());
            at.checked_add(layout.size()).filter(|&end| end <= SIZE).map(|end| (at, end))
        };
        self.used
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(fitting(used)?.1))
            .ok()
            .and_then(fitting)
            .map_or(ptr::null_mut(), |(at, _)| start.wrapping_add(at))
    }

    /// Whether a block is one of the reserve.
    fn gave(&self, block: *mut u8) -> bool {
        let start = self.bytes.0.get().cast::<u8>().addr();
        (start..start + SIZE).contains(&block.addr())
    }
}

// SAFETY: a block is either one of the allocator below, to which it is then returned, or a part of
// the reserve that fits the layout and that no other block shares.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reserve<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { self.below.alloc(layout) };
        if block.is_null() { self.take(layout) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { self.below.alloc_zeroed(layout) };
        if block.is_null() { self.take(layout) } else { block }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !self.gave(block) {
            // SAFETY: the allocator below gave it; the rest as the caller promises.
            unsafe { self.below.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let own = self.gave(block);
        if !own {
            // SAFETY: the allocator below gave it; the rest as the caller promises.
            let moved = unsafe { self.below.realloc(block, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller promises that the size fits a layout of this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
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

#[cfg(test)]
mod tests {
    use super::{Reserve, SIZE};
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The system's allocator, until it has no more memory.
    struct Ends(AtomicBool);

    // SAFETY: it is the system's, or gives nothing.
    unsafe impl GlobalAlloc for Ends {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if self.0.load(Ordering::Relaxed) {
                return std::ptr::null_mut();
            }
            // SAFETY: as the caller promises.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(block, layout) }
        }
    }

    /// A reserve above an allocator that has memory or not.
    fn reserve(has_memory: bool) -> Reserve<Ends> {
        Reserve::new(Ends(AtomicBool::new(!has_memory)))
    }

    impl Reserve<Ends> {
        fn ends(&self, ends: bool) {
            self.below.0.store(ends, Ordering::Relaxed);
        }

        fn get(&self, size: usize, align: usize) -> *mut u8 {
            // SAFETY: all tests give a size.
            unsafe { self.alloc_zeroed(layout(size, align)) }
        }

        fn grow(&self, block: *mut u8, from: usize, to: usize) -> *mut u8 {
            // SAFETY: the tests give the size of the block, and use it no more.
            unsafe { self.realloc(block, layout(from, 8), to) }
        }

        fn free(&self, block: *mut u8, size: usize) {
            // SAFETY: the tests give the size of the block, and use it no more.
            unsafe { self.dealloc(block, layout(size, 8)) }
        }
    }

    /// The bytes of a block of that size.
    fn bytes<'a>(block: *mut u8, size: usize) -> &'a mut [u8] {
        // SAFETY: the block has so many bytes, zeroed or written, and a test has one view of it.
        unsafe { std::slice::from_raw_parts_mut(block, size) }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn blocks_come_from_the_reserve_only_while_there_is_no_other_memory() {
        let memory = reserve(true);
        let usual = memory.get(100, 8);
        assert!(!memory.gave(usual));
        memory.ends(true);
        let reserved = memory.get(100, 8);
        assert!(memory.gave(reserved));
        memory.ends(false);
        let later = memory.get(100, 8);
        assert!(!memory.gave(later));
        for block in [usual, reserved, later] {
            memory.free(block, 100);
        }
    }

    #[test]
    fn blocks_of_the_reserve_are_aligned_zeroed_and_apart() {
        let memory = reserve(false);
        let mut before = 0;
        for (size, align) in [(1, 1), (3, 8), (64, 64), (5, 1), (8, 4096), (1, 2)] {
            let block = memory.get(size, align);
            assert!(memory.gave(block), "{size} bytes at {align}");
            assert_eq!(block.addr() % align, 0, "{size} bytes at {align}");
            assert!(block.addr() >= before, "{size} bytes at {align}");
            before = block.addr() + size;
            assert!(bytes(block, size).iter().all(|&byte| byte == 0), "{size} bytes at {align}");
            bytes(block, size).fill(0xff);
        }
    }

    #[test]
    fn a_full_reserve_gives_nothing_more_but_what_still_fits() {
        let memory = reserve(false);
        for (size, fits) in [
            (SIZE + 1, false),
            (SIZE - 8, true),
            (9, false),
            (usize::MAX >> 1, false),
            (8, true),
            (1, false),
        ] {
            assert_eq!(!memory.get(size, 1).is_null(), fits, "{size}");
        }
    }

    #[test]
    fn a_block_that_grows_keeps_its_content_wherever_it_moves() {
        let memory = reserve(true);
        let usual = memory.get(8, 8);
        bytes(usual, 8).copy_from_slice(b"contents");
        memory.ends(true);
        let reserved = memory.grow(usual, 8, 100);
        assert!(memory.gave(reserved));
        assert_eq!(bytes(reserved, 8), b"contents");
        let shorter = memory.grow(reserved, 100, 50);
        assert!(memory.gave(shorter));
        assert!(memory.grow(shorter, 50, SIZE).is_null());
        assert_eq!(bytes(shorter, 8), b"contents");
        memory.ends(false);
        let moved = memory.grow(shorter, 50, 1000);
        assert!(!memory.gave(moved));
        assert_eq!(bytes(moved, 8), b"contents");
        memory.free(moved, 1000);
    }
}
