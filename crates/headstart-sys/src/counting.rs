//! An allocator that counts, for tests that bound the memory of a parser.
//!
//! Only with the feature `counting`, which only tests enable.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting what each thread holds.
///
/// ```ignore
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting;
/// ```
#[derive(Debug)]
pub struct Counting;

thread_local! {
    /// Bytes that this thread allocated less those it freed.
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// The most it held since [`peak_of`] began.
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn took(bytes: usize) {
    // Wrapping: a thread may free what another took.
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    if held.cast_signed() > PEAK.get().cast_signed() {
        PEAK.set(held);
    }
}

fn freed(bytes: usize) {
    HELD.set(HELD.get().wrapping_sub(bytes));
}

/// What `work` returns, and the most bytes that it held at one time beyond
/// what the thread held before. A block that grows counts twice meanwhile,
/// with its old and its new size.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get().wrapping_sub(before))
}

// SAFETY: all of it is the system's allocator; counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size);
        freed(layout.size());
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn the_peak_is_what_was_held_at_one_time() {
        let kept = vec![0u8; 5000];
        let ((), peak) = peak_of(|| {
            drop(vec![0u8; 1000]);
            drop((vec![1u8; 300], vec![0u8; 400]));
        });
        assert_eq!(peak, 1000);
        let (grown, peak) = peak_of(|| {
            let mut grown = Vec::with_capacity(100);
            grown.push(1u8);
            grown.reserve_exact(199);
            drop(kept);
            grown
        });
        assert_eq!((grown.capacity(), peak), (200, 300));
    }
}
