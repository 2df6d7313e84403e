//! readahead(2): start reading a part of a file into the page cache.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `readahead(fd, offset, len)`: starts to read `len` bytes from `offset`, cut
/// to whole pages, and returns without waiting for the data.
///
/// The kernel silently reads no more than the larger of `read_ahead_kb` and
/// the device's largest request in one call, and may block while it looks up
/// where the data is.
///
/// # Errors
///
/// `EBADF` when `fd` is not open for reading, `EINVAL` when the file has no
/// page cache (a pipe, a socket).
///
/// # References
///
/// [readahead(2)](https://man7.org/linux/man-pages/man2/readahead.2.html);
/// `force_page_cache_ra` in `mm/readahead.c`.
pub fn readahead(fd: impl AsFd, offset: u64, len: usize) -> io::Result<()> {
    let offset = libc::off64_t::try_from(offset)
        .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: no memory is passed; the descriptor is borrowed for the call.
    let result = unsafe { libc::readahead(fd.as_fd().as_raw_fd(), offset, len) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_accepted_and_a_pipe_or_an_impossible_offset_is_refused() {
        let file = tempfile::tempfile().unwrap();
        readahead(&file, 0, 1 << 20).unwrap();
        let error = readahead(&file, u64::MAX, 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOVERFLOW));
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(readahead(&reader, 0, 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
