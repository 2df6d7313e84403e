//! Page faults on purpose, to measure what one takes.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// How long the page faults of so many new pages take, in small pages.
///
/// # Errors
/// `EINVAL` for no page, `ENOMEM`.
pub fn pages(count: usize) -> io::Result<Duration> {
    let page = rustix::param::page_size();
    let length = count.checked_mul(page).ok_or(io::ErrorKind::OutOfMemory)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the place, so no memory in use is mapped over.
    let address = unsafe { mmap_anonymous(null_mut(), length, access, MapFlags::PRIVATE)? };
    // A kernel without huge pages refuses the advice, and needs none.
    // SAFETY: it only changes how the kernel fills our own mapping.
    let _ = unsafe { madvise(address, length, Advice::LinuxNoHugepage) };
    let begin = Instant::now();
    for at in (0..length).step_by(page) {
        // SAFETY: the byte lies in our own mapping, which may be written.
        unsafe { address.cast::<u8>().wrapping_add(at).write_volatile(1) };
    }
    let time = begin.elapsed();
    // SAFETY: address and length are those of our own mapping, to which no reference exists.
    unsafe { munmap(address, length)? };
    Ok(time)
}
