//! Execs from `sched_process_exec` in a trace instance of its own. The driver. The kernel's filter
//! drops names that are executed often ([`Frequent`]); of these, programs that read are reported (`Reads`).

use super::buffers::Buffers;
use super::forks::{Forkers, Forks};
use super::frequent::Frequent;
use super::reads::{self, Again, Reads};
use super::{Exec, Lost, Seen, Source, forks};
use headstart::host::clock::monotonic_ns;
use headstart::trace::format::Field;
use headstart::trace::tracefs::Tracefs;
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the instance is called among ours.
const LABEL: &str = "execs";
const GROUP: &str = "sched";
const EVENT: &str = "sched_process_exec";
/// The buffer of each CPU, in KiB: a thousand execs.
const BUFFER_KB: u32 = 64;

/// A trace instance with that event alone, one for reads, and those for forks.
#[derive(Debug)]
pub struct Traced {
    buffers: Buffers,
    pid: Field,
    /// Where the name is in a record (`__data_loc`).
    name: Field,
    frequent: Frequent,
    /// None where the kernel does not report them.
    reads: Option<Reads>,
    /// Whether `any` waits for them.
    waits_for_reads: bool,
    /// None where the kernel does not report them.
    forks: Option<Forks>,
    any: OwnedFd,
}

impl Traced {
    /// Makes the instances and enables the events. Children of `forkers` are reported at once, and reads of
    /// threads in `again` once more.
    ///
    /// # Errors
    /// Nothing can be traced here.
    pub fn start(tracefs: &Tracefs, forkers: Forkers, again: Again) -> io::Result<Self> {
        let buffers = Buffers::create(tracefs, LABEL, BUFFER_KB)?;
        let fields = buffers.fields((GROUP, EVENT), ["pid", "filename"]);
        let [pid, name] = fields.map_err(io::Error::other)?;
        buffers.instance.enable(GROUP, EVENT).map_err(io::Error::other)?;
        let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        add(&any, buffers.fd())?;
        let reads = Reads::start(tracefs, again).ok();
        let forks = Forks::start(tracefs, forkers).ok();
        forks.iter().try_for_each(|forks| add(&any, forks.fd()))?;
        let frequent = Frequent::default();
        Ok(Self { buffers, pid, name, frequent, reads, waits_for_reads: false, forks, any })
    }

    /// Which events it reports, for people.
    pub fn events(&self) -> String {
        let reads = self.reads.as_ref().map(|_| reads::EVENT);
        let forks = self.forks.as_ref().map(|_| forks::FORK.1);
        [Some(EVENT), reads, forks].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn read_reads(&mut self, out: &mut Vec<Exec>) -> io::Result<()> {
        let Some(reads) = &mut self.reads else { return Ok(()) };
        reads.read(monotonic_ns(), out)?;
        let waits = reads.paused_until().is_none();
        if waits != self.waits_for_reads {
            match waits {
                true => add(&self.any, reads.fd())?,
                false => epoll::delete(&self.any, reads.fd())?,
            }
            self.waits_for_reads = waits;
        }
        Ok(())
    }
}

impl Source for Traced {
    fn fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }

    fn due(&self) -> Option<u64> {
        self.reads.as_ref()?.paused_until()
    }

    fn urgent(&self) -> Option<BorrowedFd<'_>> {
        let reads = self.reads.as_ref()?;
        // They come late: the program reads already.
        reads.paused_until().is_none().then(|| reads.fd())
    }

    fn read(&mut self, out: &mut Vec<Exec>) -> io::Result<Lost> {
        let first = out.len();
        let Self { buffers, pid, name, frequent, .. } = self;
        let lost = buffers.drain(|at, record| {
            let pid = pid.read(record).and_then(|pid| u32::try_from(pid).ok());
            out.extend(pid.map(|pid| Exec { pid, at, seen: Seen::Exec }));
            frequent.note(text(record, name).unwrap_or_default(), at);
        })?;
        self.read_reads(out)?;
        self.forks.iter_mut().try_for_each(|forks| forks.read(monotonic_ns(), out))?;
        out[first..].sort_by_key(|exec| exec.at);
        let newest = out[first..].last().map(|exec| exec.at);
        if let Some(ignored) = newest.and_then(|now| self.frequent.new_filter(now)) {
            // Without it they are reported, which costs more and is no error.
            let _ = self.buffers.instance.set_filter(GROUP, EVENT, &ignored.filter());
            self.reads.iter_mut().for_each(|reads| reads.set_names(ignored.comms()));
        }
        Ok(lost)
    }
}

fn add(set: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(epoll::add(set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

/// The text that a `__data_loc` field of a record describes: 16 bits of length and of offset; without
/// the zero byte.
fn text<'a>(record: &'a [u8], field: &Field) -> Option<&'a [u8]> {
    let described = usize::try_from(field.read(record)?).ok()?;
    let (length, offset) = (described >> 16, described & 0xffff);
    let text = record.get(offset..offset.checked_add(length)?)?;
    text.split(|byte| *byte == 0).next()
}

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
