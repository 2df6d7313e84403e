//! Software events and tracepoints of threads or CPUs, with their records in ring buffers:
//! perf_event_open(2). Decodes no record.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted: a `PERF_COUNT_SW_*` of `include/uapi/linux/perf_event.h`, or a tracepoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// A page fault begins (`PAGE_FAULTS`).
    FaultBegins,
    /// One that needed no I/O has been served (`PAGE_FAULTS_MIN`).
    MinorFaultEnds,
    /// One that needed I/O has been served (`PAGE_FAULTS_MAJ`).
    MajorFaultEnds,
    /// Nothing (`DUMMY`): for a ring that no other event owns.
    Nothing,
    /// A tracepoint, by the number in its `id` file of tracefs.
    Tracepoint(u16),
}

impl Counter {
    /// `type` and `config` of `struct perf_event_attr`.
    fn numbers(self) -> (u32, u64) {
        match self {
            Self::FaultBegins => (SOFTWARE, 2),
            Self::MinorFaultEnds => (SOFTWARE, 5),
            Self::MajorFaultEnds => (SOFTWARE, 6),
            Self::Nothing => (SOFTWARE, 9),
            Self::Tracepoint(id) => (TRACEPOINT, u64::from(id)),
        }
    }
}

/// What a sample holds (`PERF_SAMPLE_*`).
pub mod sample {
    /// The instruction.
    pub const IP: u64 = 1;
    /// Process and thread.
    pub const TID: u64 = 1 << 1;
    /// The time.
    pub const TIME: u64 = 1 << 2;
    /// The address.
    pub const ADDR: u64 = 1 << 3;
    /// What the tracepoint reports: 32 bits with the count of bytes, and the bytes.
    pub const RAW: u64 = 1 << 10;
    /// Whether user space runs 32-bit code (1) or not (2), and a register that has no meaning; 0 alone
    /// for a thread without user space.
    pub const REGS_USER: u64 = 1 << 12;
    /// The number of the event, at a place that does not depend on the others.
    pub const IDENTIFIER: u64 = 1 << 16;
    /// How large the page at the address is that the page table maps, 0 if none (Linux 5.11).
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
}

/// Bits of `struct perf_event_attr`.
pub mod flag {
    /// It counts from [`super::Event::enable`] on.
    pub const DISABLED: u64 = 1;
    /// Threads and processes that are started later are counted too.
    pub const INHERIT: u64 = 1 << 1;
    /// The kernel's own accesses are not counted.
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    /// Those of a hypervisor neither.
    pub const EXCLUDE_HV: u64 = 1 << 6;
    /// Mappings of code are recorded.
    pub const MMAP: u64 = 1 << 8;
    /// Names of processes are recorded.
    pub const COMM: u64 = 1 << 9;
    /// Starts and ends of threads are recorded.
    pub const TASK: u64 = 1 << 13;
    /// The reader is woken when so many bytes are there.
    pub const WATERMARK: u64 = 1 << 14;
    /// All other mappings are recorded.
    pub const MMAP_DATA: u64 = 1 << 17;
    /// Records that are no samples have a number, process, thread and time too.
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    /// Mappings have their inode and protection.
    pub const MMAP2: u64 = 1 << 23;
    /// Names by execve(2) are marked.
    pub const COMM_EXEC: u64 = 1 << 24;
    /// Times are those of a clock that has a name.
    pub const USE_CLOCKID: u64 = 1 << 25;
}

/// What is recorded of an event; each time it occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// What is counted.
    pub counter: Counter,
    /// Bits of [`sample`].
    pub sample: u64,
    /// Bits of [`flag`].
    pub flags: u64,
    /// For [`flag::WATERMARK`]: bytes.
    pub wakeup: u32,
}

/// `struct perf_event_attr` as of `PERF_ATTR_SIZE_VER5` (Linux 4.1).
#[derive(Default)]
#[repr(C)]
struct RawAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// `PERF_TYPE_SOFTWARE`
const SOFTWARE: u32 = 1;
/// `PERF_TYPE_TRACEPOINT`
const TRACEPOINT: u32 = 2;
/// The register of [`sample::REGS_USER`]: one must be chosen, and all machines have the first.
const REGISTER: u64 = 1;
/// `PERF_FORMAT_ID`
const WITH_ID: u64 = 1 << 2;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOEXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_*`
mod request {
    use rustix::ioctl::{Opcode, opcode::none};
    pub const ENABLE: Opcode = none(b'$', 0);
    pub const DISABLE: Opcode = none(b'$', 1);
    pub const SET_OUTPUT: Opcode = none(b'$', 5);
}

/// An event of a thread, or all, on a CPU.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Counts and records what a thread (0: this one; -1: any) does on a CPU, from now on unless it
    /// is [`flag::DISABLED`]. Times are those of the monotonic clock, in ns.
    ///
    /// # Errors
    /// `EACCES` and `EPERM` where this user may not, or a container forbids the call; `ENOSYS`
    /// without perf events; `EINVAL` for what this kernel does not know; `ENODEV` for a CPU that is
    /// offline; `ESRCH` for a thread that has ended; `EMFILE`.
    pub fn open(attributes: Attributes, tid: i32, cpu: i32) -> io::Result<Self> {
        let flags = attributes.flags | flag::USE_CLOCKID;
        let (kind, config) = attributes.counter.numbers();
        let has_register = attributes.sample & sample::REGS_USER != 0;
        let mut raw = RawAttributes {
            kind,
            size: size_of::<RawAttributes>() as u32,
            config,
            sample_period: 1,
            sample_type: attributes.sample,
            read_format: WITH_ID,
            // A bit-field, which begins at the other end on big-endian machines.
            flags: if cfg!(target_endian = "big") { flags.reverse_bits() } else { flags },
            wakeup: attributes.wakeup,
            sample_regs_user: if has_register { REGISTER } else { 0 },
            clockid: libc::CLOCK_MONOTONIC,
            ..RawAttributes::default()
        };
        let no_group: libc::c_int = -1;
        // SAFETY: the kernel reads as many bytes as the structure says it has, and writes the size
        // that it knows into it if it knows less.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw mut raw, tid, cpu, no_group, CLOEXEC)
        };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made it, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// How often it has occurred, in all threads that inherited it too, and the number that its
    /// records have.
    ///
    /// # Errors
    /// None that a sane kernel returns.
    pub fn count_and_id(&self) -> io::Result<(u64, u64)> {
        let mut both = [0; 16];
        let read = rustix::io::read(&self.0, &mut both)?;
        let numbers = both.first_chunk().zip(both.last_chunk()).filter(|_| read == both.len());
        let (count, id) = numbers.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((u64::from_ne_bytes(*count), u64::from_ne_bytes(*id)))
    }

    /// Has its records in the ring of the same CPU.
    ///
    /// # Errors
    /// `EINVAL` for a ring of another CPU.
    pub fn record_into(&self, ring: &Ring) -> io::Result<()> {
        self.request(request::SET_OUTPUT, ring.owner.0.as_raw_fd())
    }

    /// Begins to count, also in all threads that have inherited it.
    ///
    /// # Errors
    /// None that a sane kernel returns.
    pub fn enable(&self) -> io::Result<()> {
        self.request(request::ENABLE, 0)
    }

    /// Ends that. Its count can still be read.
    ///
    /// # Errors
    /// None that a sane kernel returns.
    pub fn disable(&self) -> io::Result<()> {
        self.request(request::DISABLE, 0)
    }

    fn request(&self, request: rustix::ioctl::Opcode, argument: libc::c_int) -> io::Result<()> {
        // SAFETY: the descriptor is open, and none of these calls takes a pointer.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, argument) };
        if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Where `struct perf_event_mmap_page` has the position up to which the kernel has written.
const HEAD: usize = 1024;
/// Up to which was read.
const TAIL: usize = 1032;

/// The buffer of a CPU into which events write records.
#[derive(Debug)]
pub struct Ring {
    owner: Event,
    address: *mut c_void,
    page: usize,
    size: usize,
}

impl Ring {
    /// A ring with room for `size` bytes, a power of two and a multiple of the page size.
    ///
    /// # Errors
    /// `EPERM` where this user may not lock so much memory (`kernel.perf_event_mlock_kb`),
    /// `EINVAL` for a size that is none, `ENOMEM`.
    pub fn new(owner: Event, size: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        // mmap would round it up, and the kernel wrap elsewhere.
        if !size.is_power_of_two() || !size.is_multiple_of(page) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = size.checked_add(page).ok_or(io::ErrorKind::OutOfMemory)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so no memory in use is mapped over.
        let address = unsafe { mmap(null_mut(), length, access, MapFlags::SHARED, &owner.0, 0)? };
        Ok(Self { owner, address, page, size })
    }

    /// Moves all records that are there behind those in `records`; how many bytes.
    pub fn drain(&mut self, records: &mut Vec<u8>) -> usize {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let tail = self.position(TAIL).load(Ordering::Relaxed);
        // The kernel writes no further than the tail allows.
        let count = (head.wrapping_sub(tail) as usize).min(self.size);
        let begin = tail as usize & (self.size - 1);
        let first = count.min(self.size - begin);
        records.reserve(count);
        for (from, length) in [(begin, first), (0, count - first)] {
            // SAFETY: the part lies within the ring, and the kernel does not write between tail
            // and head until the tail is moved.
            let part = unsafe {
                std::slice::from_raw_parts(
                    self.address.cast::<u8>().wrapping_add(self.page + from),
                    length,
                )
            };
            records.extend_from_slice(part);
        }
        self.position(TAIL).store(head, Ordering::Release);
        count
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        let place = self.address.wrapping_byte_add(at).cast::<u64>();
        // SAFETY: it lies in the first page of the ring, is aligned, and is only accessed
        // atomically here and in the kernel.
        unsafe { AtomicU64::from_ptr(place) }
    }
}

impl AsFd for Ring {
    /// Readable when records wait for the reader.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.owner.0.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: address and length are those of our own mapping, to which no reference exists.
        let result = unsafe { munmap(self.address, self.page + self.size) };
        // munmap of a whole own mapping has no way to fail.
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::touch;

    #[test]
    fn the_structure_has_the_size_that_the_kernel_knows() {
        assert_eq!(size_of::<RawAttributes>(), 112);
        assert_eq!(std::mem::offset_of!(RawAttributes, clockid), 92);
    }

    fn attributes(counter: Counter, flags: u64) -> Attributes {
        Attributes {
            counter,
            sample: sample::IDENTIFIER | sample::TIME | sample::ADDR,
            flags: flags | flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV,
            wakeup: 0,
        }
    }

    /// An event for a ring on this CPU, which this thread does not leave, so that one event sees all;
    /// `None` where containers, or systems without root, forbid it.
    fn owner() -> Option<(Event, i32)> {
        let cpu = rustix::thread::sched_getcpu();
        let mut only = rustix::thread::CpuSet::new();
        only.set(cpu);
        rustix::thread::sched_setaffinity(None, &only).unwrap();
        match Event::open(attributes(Counter::Nothing, 0), 0, cpu as i32) {
            Ok(owner) => Some((owner, cpu as i32)),
            Err(error) => {
                let number = error.raw_os_error().unwrap();
                assert!([libc::EACCES, libc::EPERM, libc::ENOSYS].contains(&number), "{error}");
                eprintln!("skipped: no perf events here: {error}");
                None
            }
        }
    }

    #[test]
    fn faults_of_this_thread_are_counted_and_recorded_through_the_end_of_the_ring() {
        let bytes = (16 << 10).max(rustix::param::page_size());
        let Some((owner, cpu)) = owner() else { return };
        let mut ring = Ring::new(owner, bytes).unwrap();
        let event = Event::open(attributes(Counter::FaultBegins, 0), 0, cpu).unwrap();
        event.record_into(&ring).unwrap();
        let mut records = Vec::new();
        // So many that the ring is filled more than twice.
        for _ in 0..(2 * bytes / 3200 + 10) {
            touch::pages(100).unwrap();
            assert!(ring.drain(&mut records) >= 100 * 32);
        }
        let (count, id) = event.count_and_id().unwrap();
        ring.drain(&mut records);
        assert!(count >= 2000 && records.len() > 2 * bytes, "{count} {}", records.len());
        let (records, []) = records.as_chunks::<32>() else { panic!("records are cut") };
        assert!(records.len() as u64 >= count);
        let number = id.to_ne_bytes();
        assert!(records.iter().all(|record| record[8..16] == number));
    }

    #[test]
    fn an_event_counts_from_when_it_is_enabled_until_it_is_disabled() {
        let Some((_, cpu)) = owner() else { return };
        let event = Event::open(attributes(Counter::FaultBegins, flag::DISABLED), 0, cpu).unwrap();
        touch::pages(100).unwrap();
        assert_eq!(event.count_and_id().unwrap().0, 0);
        event.enable().unwrap();
        touch::pages(100).unwrap();
        event.disable().unwrap();
        let (count, _) = event.count_and_id().unwrap();
        assert!((100..200).contains(&count), "{count}");
        touch::pages(100).unwrap();
        assert_eq!(event.count_and_id().unwrap().0, count);
    }

    #[test]
    fn a_ring_has_whole_pages_and_a_power_of_two_of_them() {
        let page = rustix::param::page_size();
        for size in [0, page / 2, page + 1, 3 * page, usize::MAX] {
            let Some((owner, _)) = owner() else { return };
            let error = Ring::new(owner, size).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{size}");
        }
    }
}
