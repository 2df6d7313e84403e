//! A private mount namespace. unshare(2), `CLONE_NEWNS`.

use rustix::thread::UnshareFlags;
use std::io;

/// Gives this process private mounts: other processes don't see what it mounts, and it is
/// unmounted at its end. Only while there is a single thread: each thread has its own
/// namespace from there on.
///
/// # Errors
/// `EPERM` for users other than root.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: this flag does not touch the table of descriptors, which is what could
    // break others.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    Ok(())
}
