//! A trace instance with few events, whose buffers are read as soon as there is something in them. The
//! driver.

use super::Lost;
use headstart::trace::format::{Field, PageHeader, parse_event, parse_page_header};
use headstart::trace::instance::Instance;
use headstart::trace::page::{self, records};
use headstart::trace::tracefs::{TraceError, Tracefs};
use rustix::event::epoll;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// From so many bytes of one buffer on it may have been full, in percent: pages have room left at their ends.
const FULL: usize = 50;
const NO_DEVICE: i32 = rustix::io::Errno::NODEV.raw_os_error();

/// The buffers, and the instance that they are of.
#[derive(Debug)]
pub(super) struct Buffers {
    /// By CPU.
    files: Vec<(u32, File)>,
    /// From so many bytes of one of them on it may have been full.
    full: usize,
    /// Events for which there was no room, as far as they were counted.
    dropped: u64,
    /// Wakes when one of them has something.
    any: OwnedFd,
    page: Vec<u8>,
    header: PageHeader,
    // After the buffers: the kernel refuses to remove it while they are open.
    pub(super) instance: Instance,
}

impl Buffers {
    /// Makes an instance of this name among ours, with so many KiB for each CPU.
    ///
    /// # Errors
    /// Nothing can be traced here.
    pub(super) fn create(tracefs: &Tracefs, label: &str, kb: u32) -> io::Result<Self> {
        let instance = Instance::labelled(tracefs, label, Some(kb)).map_err(io::Error::other)?;
        // The clock of `Exec::at`.
        instance.set_clock("mono").map_err(io::Error::other)?;
        instance.wake_at(0).map_err(io::Error::other)?;
        let header = tracefs.header_page().map_err(io::Error::other)?;
        let header = parse_page_header(&header).map_err(io::Error::other)?;
        let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let files = instance.open_buffers().map_err(io::Error::other)?;
        for (_, file) in &files {
            epoll::add(&any, file, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let page = vec![0; instance.sub_buffer_size()];
        let full = (kb as usize * 1024) * FULL / 100;
        Ok(Self { files, full, dropped: 0, any, page, header, instance })
    }

    /// These fields of an event.
    ///
    /// # Errors
    /// This kernel lacks it.
    pub(super) fn fields<const N: usize>(
        &self,
        (group, event): (&str, &str),
        names: [&str; N],
    ) -> Result<[Field; N], TraceError> {
        let text = self.instance.format(group, event)?;
        let format = parse_event(&text).map_err(|_| TraceError::NoEvents)?;
        let found: Vec<_> = names.iter().filter_map(|name| format.field(name).cloned()).collect();
        found.try_into().map_err(|_| TraceError::NoEvents)
    }

    /// Wakes when one of the buffers has something.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }

    /// Hands out each record and its time, and says how many were lost.
    ///
    /// # Errors
    /// The kernel refuses to hand them out.
    pub(super) fn drain(&mut self, mut take: impl FnMut(u64, &[u8])) -> io::Result<Lost> {
        let Self { files, page, header, full, dropped, instance, .. } = self;
        let mut lost = 0u64;
        let mut was_full = false;
        for (_, file) in &mut *files {
            let mut bytes = 0;
            loop {
                let read = match file.read(page) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    // The kernel names a buffer for each CPU that there may be.
                    Err(error) if error.raw_os_error() == Some(NO_DEVICE) => break,
                    Err(error) => return Err(error),
                };
                bytes += read;
                was_full |= bytes >= *full;
                let end = records(&page[..read], header, &mut take);
                lost = lost.saturating_add(match end {
                    Ok(page::Lost::None) => 0,
                    Ok(page::Lost::Count(count)) => count,
                    Ok(page::Lost::Unknown) | Err(_) => 1,
                });
            }
        }
        if was_full && let Ok(stats) = instance.stats(files.iter().map(|(cpu, _)| *cpu)) {
            // A full buffer takes no more events, and no page of it says so.
            let all = stats.lost(false);
            lost = lost.saturating_add(all.saturating_sub(*dropped));
            *dropped = all;
        }
        Ok(Lost(lost))
    }
}
