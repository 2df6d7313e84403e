//! Execs from fanotify(7), `FAN_OPEN_EXEC`: the kernel opens a file in order to execute it. The
//! process is not yet what it will be, and the program's interpreter is an event of its own.

use headstart_daemon::execs::{Exec, Lost, Seen, Source};
use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify as Group, InitFlags, MarkFlags, MaskFlags};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// `FAN_REPORT_FID`, which nix does not name.
const REPORT_FID: u32 = 0x200;

/// A group with marks.
pub struct Fanotify(Group);

impl Fanotify {
    /// Marks file systems (`+PATH`) and ignores files (`-FILE`).
    pub fn mark(by_handle: bool, marks: &[String]) -> io::Result<Self> {
        let mut flags =
            InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK | InitFlags::FAN_CLASS_NOTIF;
        if by_handle {
            flags |= InitFlags::from_bits_retain(REPORT_FID);
        }
        let group = Group::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)?;
        for mark in marks {
            let (sign, path) = mark.split_at(1);
            let how = match sign {
                "+" => MarkFlags::FAN_MARK_FILESYSTEM,
                _ => MarkFlags::FAN_MARK_IGNORE_SURV | MarkFlags::FAN_MARK_EVICTABLE,
            };
            let here = rustix::fs::CWD;
            group.mark(
                how | MarkFlags::FAN_MARK_ADD,
                MaskFlags::FAN_OPEN_EXEC,
                here,
                Some(path),
            )?;
        }
        Ok(Self(group))
    }
}

impl Source for Fanotify {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn read(&mut self, out: &mut Vec<Exec>) -> io::Result<Lost> {
        let mut lost = 0;
        loop {
            let events = match self.0.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(Lost(lost)),
                Err(error) => return Err(error.into()),
            };
            let time = clock_gettime(ClockId::Monotonic);
            let at = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
            // Overflows are at least one each: the kernel does not say how many.
            let (execs, overflows): (Vec<_>, Vec<_>) =
                events.iter().partition(|event| !event.mask().contains(MaskFlags::FAN_Q_OVERFLOW));
            lost += overflows.len() as u64;
            out.extend(execs.iter().map(|event| Exec {
                pid: event.pid().cast_unsigned(),
                at,
                seen: Seen::Exec,
            }));
        }
    }
}
