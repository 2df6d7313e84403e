//! The descriptors that this process was started with and that belong to the
//! program it starts. Whoever waits for the program to close them must not
//! have to wait for us too. fcntl(2), close(2).

use std::fs;
use std::io;
use std::os::fd::RawFd;

/// Lets go of everything that was inherited: stdin, stdout and stderr lead to `/dev/null`
/// from now on. What this process opened itself stays, which is
/// told by its close-on-exec flag.
///
/// # Errors
/// Without /proc or /dev/null nothing or a part is let go.
pub fn let_go_of_inherited() -> io::Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    close_others()
}

/// Closes every descriptor, for a process that is about to end and may not: a thread of it may
/// wait for a file system that does not answer, and nobody shall wait for what it has open.
/// close_range(2).
pub fn close_all() {
    // SAFETY: the process does nothing more with any of them but end.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
}

/// Closes everything that was inherited but stdin, stdout and stderr.
///
/// # Errors
/// Without /proc nothing is closed.
pub fn close_others() -> io::Result<()> {
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: F_GETFD only looks, at any number.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if flags != -1 && flags & libc::FD_CLOEXEC == 0 {
            // SAFETY: std and rustix open everything with the flag, so that
            // nothing in this process owns the descriptor.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}
