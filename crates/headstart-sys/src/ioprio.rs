//! I/O priority. ioprio_set(2), `include/uapi/linux/ioprio.h`.

use std::io;

/// The level within a class that the kernel takes for a process of nice 0.
pub const DEFAULT_LEVEL: u8 = 4;
const CLASS_SHIFT: u32 = 13;
/// `IOPRIO_WHO_PROCESS`, which names one thread.
const WHO_PROCESS: libc::c_int = 1;

/// How the block layer treats the requests of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoPriority {
    /// Only when the disk is idle.
    Idle,
    /// Like everybody, from 0 (first) to 7.
    BestEffort(u8),
    /// Before all others, from 0 (first) to 7.
    Realtime(u8),
}

/// Sets the I/O priority of the calling thread; threads that it starts later
/// inherit it.
///
/// # Errors
/// `EPERM` for realtime without `CAP_SYS_NICE`.
pub fn set_for_thread(priority: IoPriority) -> io::Result<()> {
    let (class, level) = match priority {
        IoPriority::Realtime(level) => (1, level),
        IoPriority::BestEffort(level) => (2, level),
        IoPriority::Idle => (3, 0),
    };
    let value: libc::c_int = class << CLASS_SHIFT | libc::c_int::from(level);
    // SAFETY: takes three numbers; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, value) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_may_lower_the_priority_of_a_thread() {
        std::thread::spawn(|| {
            set_for_thread(IoPriority::BestEffort(7)).unwrap();
            set_for_thread(IoPriority::Idle).unwrap();
        })
        .join()
        .unwrap();
    }
}
