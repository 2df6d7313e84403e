//! Whether somebody can write to a file: a read lease is refused then. fcntl(2), `F_SETLEASE`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `F_SETSIG` of `include/uapi/asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// Whether a file is open for writing, or mapped so that writes go to the file; by any process.
/// `fd` must be open for reading only. The lease is given back at once.
///
/// # Errors
/// `EACCES`: the file is another user's, and this process lacks `CAP_LEASE`. `EINVAL`: the file
/// system has no leases.
pub fn is_written_to(fd: impl AsFd) -> io::Result<bool> {
    let fd = fd.as_fd().as_raw_fd();
    // Who opens the file for writing meanwhile has the kernel send a signal: not SIGIO, which would
    // end this process, but one that is ignored.
    // SAFETY: takes numbers only.
    let set = unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) };
    if set == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == -1 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::EAGAIN) { Ok(true) } else { Err(error) };
    }
    // SAFETY: as above.
    let returned = unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(false) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_file_is_written_to_as_long_as_somebody_has_it_open_for_that() {
        let written = tempfile::NamedTempFile::new().unwrap();
        let read = File::open(written.path()).unwrap();
        assert!(is_written_to(&read).unwrap());
        let path = written.into_temp_path();
        assert!(!is_written_to(&read).unwrap());
        drop(path);
    }
}
