//! exec(3) by hand, so that the program starts as if nobody stood between: std's start-up code
//! replaces closed standard descriptors and ignores SIGPIPE, and both would be inherited.

use crate::signals;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU8, Ordering};

/// What the process was handed at its start, before std changed it: the
/// standard descriptors that were closed, as bits 0 to 2.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before std's start-up code.
extern "C" fn note_inherited() {
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD only looks, at any number.
        let found = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        // Any other error says nothing of it.
        if found == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EBADF) {
            closed |= 1 << fd;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
    signals::note_inherited();
}

// SAFETY: the section holds pointers to functions that the C start-up code
// calls before `main`; ours touches no state but its own.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_INHERITED: extern "C" fn() = note_inherited;

/// What execvp(3) is given.
struct Arguments {
    /// What the pointers lead to.
    _strings: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Arguments {
    fn new(argv: &[impl AsRef<OsStr>]) -> io::Result<Self> {
        let strings: Vec<CString> = argv
            .iter()
            .map(|a| CString::new(a.as_ref().as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        if strings.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut pointers: Vec<*const libc::c_char> = strings.iter().map(|s| s.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Ok(Self { _strings: strings, pointers })
    }

    /// Becomes the program, or tells why not.
    fn exec(&self) -> i32 {
        if let Some(program) = self.pointers.first() {
            // SAFETY: the pointers are a null-terminated array of C strings
            // that live as long as `self`.
            unsafe { libc::execvp(*program, self.pointers.as_ptr()) };
        }
        io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOENT)
    }
}

/// Executes `argv` in this process, with the signals and descriptors that it
/// was started with. Returns only when that fails, with the reason, and the
/// process may then only report it and end.
pub fn exec(argv: &[impl AsRef<OsStr>]) -> io::Error {
    match Arguments::new(argv) {
        Ok(arguments) => {
            restore();
            io::Error::from_raw_os_error(arguments.exec())
        }
        Err(error) => error,
    }
}

/// The status with which a shell says why a program could not be executed (sh(1)).
pub fn status_of_failure(error: &io::Error) -> u8 {
    const NOT_FOUND: u8 = 127;
    const NOT_EXECUTABLE: u8 = 126;
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Undoes what std's start-up code and this program changed.
fn restore() {
    let closed = CLOSED.load(Ordering::Relaxed);
    for fd in (0..3).filter(|fd| closed & 1 << fd != 0) {
        // SAFETY: std opened /dev/null here; nothing uses it until exec.
        unsafe { libc::close(fd) };
    }
    signals::restore();
}
