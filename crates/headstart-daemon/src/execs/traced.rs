//! Execs from `sched_process_exec` in a trace instance of its own. The driver. The kernel's filter
//! drops names that are executed often ([`Frequent`]).

use super::frequent::Frequent;
use super::{Exec, Lost, Source};
use headstart::trace::format::{Field, PageHeader, parse_event, parse_page_header};
use headstart::trace::instance::Instance;
use headstart::trace::page::{self, records};
use headstart::trace::tracefs::{TraceError, Tracefs};
use rustix::event::epoll;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the instance is called among ours.
const LABEL: &str = "execs";
const GROUP: &str = "sched";
const EVENT: &str = "sched_process_exec";
/// The buffer of each CPU, in KiB: a thousand execs.
const BUFFER_KB: u32 = 64;
/// From so many bytes of one buffer on it may have been full. Pages have room left at their ends.
const FULL: usize = 32 << 10;

/// A trace instance with that event alone.
#[derive(Debug)]
pub struct Traced {
    /// By CPU.
    buffers: Vec<(u32, File)>,
    /// Events for which there was no room, as far as they were counted.
    dropped: u64,
    /// Wakes when one of the buffers has something.
    any: OwnedFd,
    page: Vec<u8>,
    header: PageHeader,
    pid: Field,
    /// Where the name is in a record (`__data_loc`).
    name: Field,
    frequent: Frequent,
    // After the buffers: the kernel refuses to remove it while they are open.
    instance: Instance,
}

impl Traced {
    /// Makes the instance and enables the event.
    ///
    /// # Errors
    /// Nothing can be traced here.
    pub fn start(tracefs: &Tracefs) -> io::Result<Self> {
        let (instance, [pid, name]) = Self::instance(tracefs).map_err(io::Error::other)?;
        let header = tracefs.header_page().map_err(io::Error::other)?;
        let header = parse_page_header(&header).map_err(io::Error::other)?;
        let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let buffers = instance.open_buffers().map_err(io::Error::other)?;
        for (_, buffer) in &buffers {
            epoll::add(&any, buffer, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let page = vec![0; instance.sub_buffer_size()];
        let frequent = Frequent::default();
        Ok(Self { buffers, dropped: 0, any, page, header, pid, name, frequent, instance })
    }

    fn instance(tracefs: &Tracefs) -> Result<(Instance, [Field; 2]), TraceError> {
        let instance = Instance::labelled(tracefs, LABEL, Some(BUFFER_KB))?;
        // The clock of `Exec::at`.
        instance.set_clock("mono")?;
        instance.wake_at(0)?;
        let text = instance.enable(GROUP, EVENT)?;
        let format = parse_event(&text).map_err(|_| TraceError::NoEvents)?;
        let field = |name| format.field(name).cloned().ok_or(TraceError::NoEvents);
        Ok((instance, [field("pid")?, field("filename")?]))
    }
}

impl Source for Traced {
    fn fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }

    fn read(&mut self, out: &mut Vec<Exec>) -> io::Result<Lost> {
        let first = out.len();
        let mut lost = 0u64;
        let mut was_full = false;
        let Self { buffers, dropped, page, header, pid, name, frequent, instance, .. } = self;
        for (_, buffer) in &mut *buffers {
            let mut bytes = 0;
            loop {
                let read = match buffer.read(page) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    // The kernel names a buffer for each CPU that there may be.
                    Err(error) if error.raw_os_error() == Some(NO_DEVICE) => break,
                    Err(error) => return Err(error),
                };
                bytes += read;
                was_full |= bytes >= FULL;
                let end = records(&page[..read], header, |at, record| {
                    let pid = pid.read(record).and_then(|pid| u32::try_from(pid).ok());
                    out.extend(pid.map(|pid| Exec { pid, at }));
                    frequent.note(text(record, name).unwrap_or_default(), at);
                });
                lost = lost.saturating_add(match end {
                    Ok(page::Lost::None) => 0,
                    Ok(page::Lost::Count(count)) => count,
                    Ok(page::Lost::Unknown) | Err(_) => 1,
                });
            }
        }
        if was_full && let Ok(stats) = instance.stats(buffers.iter().map(|(cpu, _)| *cpu)) {
            // A full buffer takes no more events, and no page of it says so.
            let all = stats.lost(false);
            lost = lost.saturating_add(all.saturating_sub(*dropped));
            *dropped = all;
        }
        out[first..].sort_by_key(|exec| exec.at);
        let newest = out[first..].last().map(|exec| exec.at);
        if let Some(filter) = newest.and_then(|now| frequent.new_filter(now)) {
            // Without it they are reported, which costs more and is no error.
            let _ = instance.set_filter(GROUP, EVENT, &filter);
        }
        Ok(Lost(lost))
    }
}

/// The text that a `__data_loc` field of a record describes: 16 bits of length and of offset; without
/// the zero byte.
fn text<'a>(record: &'a [u8], field: &Field) -> Option<&'a [u8]> {
    let described = usize::try_from(field.read(record)?).ok()?;
    let (length, offset) = (described >> 16, described & 0xffff);
    let text = record.get(offset..offset.checked_add(length)?)?;
    text.split(|byte| *byte == 0).next()
}

const NO_DEVICE: i32 = rustix::io::Errno::NODEV.raw_os_error();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_where_the_record_says_and_not_beyond_it() {
        let field = Field { name: "filename".into(), offset: 0, size: 4 };
        let record = |described: u32| [&described.to_ne_bytes()[..], b"/bin/sh\0x"].concat();
        for (described, expected) in [
            (8 << 16 | 4, Some(&b"/bin/sh"[..])),
            (0, Some(b"")),
            (10 << 16 | 4, None),
            (1 << 16 | 0xffff, None),
        ] {
            assert_eq!(text(&record(described), &field), expected, "{described:x}");
        }
        assert_eq!(text(b"", &field), None);
    }
}
