//! Records without fault-around: each page that a program accesses through a mapping has an event
//! of its own.
//!
//! A fault maps up to 15 resident pages around its page, and the kernel reports all alike: a third
//! of the touched pages of a start are never accessed. In mappings that are registered with
//! userfaultfd(2) a fault maps only its page. So the program and all its children are stopped at
//! each system call, and each file mapping is registered immediately. This slows each system call,
//! so it is only for recordings that the user requests. The driver;
//! [`crate::profile::fault_around`] interprets the events.
//!
//! Shared mappings of files that are not open for writing, and programs with seccomp(2) filters,
//! are not registered: fault-around pages stay there.

mod vdso;

use crate::host::contents;
use crate::host::maps::mapped_files;
use crate::host::proc::status;
use headstart_sys::ptrace::{self, Stop, Syscall};
use headstart_sys::signals;
use headstart_sys::userfault::{self, Userfault};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// A page of a mapping; addresses and lengths are multiples of it.
const PAGE: u64 = 4096;

/// How many processes were recorded exactly.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Processes {
    /// Their mappings were registered, the first program's included.
    pub registered: u64,
    /// They could not be.
    pub failed: u64,
}

/// Follows a program and what it starts until all have ended, until `enough`, which is
/// looked at when a signal arrives, or until the first program that it executes can't be
/// registered. `begun` is told whether it can be followed before it runs on. When the
/// calling process ends, the kernel lets go of all that still run.
///
/// Signals are blocked by then ([`signals::block`]): the kernel sends one for each
/// stop of the program.
pub fn follow(pid: i32, enough: &AtomicBool, begun: impl FnOnce(io::Result<()>)) -> Processes {
    let started = ptrace::seize(pid);
    let works = started.is_ok();
    begun(started);
    let mut followed = Followed::default();
    followed.threads.insert(pid, Thread { process: pid, call: None });
    let mut is_over = !works;
    while !is_over {
        // All stopped threads get their turn: otherwise, of threads that wait for each other in a
        // loop of system calls, only the first ones would run.
        let mut stops = Vec::new();
        let nobody = loop {
            match ptrace::stopped() {
                Ok(Some(stop)) => stops.push(stop),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        let none = stops.is_empty();
        for (tid, stop) in stops {
            if followed.on(tid, stop).is_err() {
                // It was killed meanwhile.
                followed.forget(tid);
            }
        }
        let Processes { registered, failed } = followed.processes;
        is_over = nobody
            || enough.load(Ordering::Relaxed)
            || (registered == 0 && failed > 0)
            // Without signals there would be nothing to wait for.
            || (none && signals::next().is_err());
    }
    followed.processes
}

/// All that is followed.
#[derive(Default)]
struct Followed {
    threads: HashMap<i32, Thread>,
    /// By process, without those that could not be registered.
    memories: HashMap<i32, Memory>,
    processes: Processes,
}

struct Thread {
    process: i32,
    /// Number and arguments of the system call that it is in.
    call: Option<(u64, [u64; 6])>,
}

enum Memory {
    /// The process is about to return from execve(2) to a new memory.
    New,
    /// Its mappings are registered.
    Registered(Userfault),
}

impl Followed {
    /// Deals with a stop of a thread, and lets it run on.
    fn on(&mut self, tid: i32, stop: Stop) -> io::Result<()> {
        match stop {
            Stop::Gone(_) => {
                self.forget(tid);
                Ok(())
            }
            Stop::Syscall => {
                self.at_syscall(tid);
                ptrace::resume(tid, 0)
            }
            Stop::Exec => {
                // Of all its threads this one is left, under the number of the process.
                self.threads.retain(|_, thread| thread.process != tid);
                self.threads.insert(tid, Thread { process: tid, call: None });
                self.memories.insert(tid, Memory::New);
                ptrace::resume(tid, 0)
            }
            Stop::Started => ptrace::resume(tid, 0),
            Stop::Signal(signal) => ptrace::resume(tid, signal),
            Stop::Group(signal) => {
                if !self.threads.contains_key(&tid) {
                    self.begins(tid);
                }
                if signal == ptrace::TRAP {
                    ptrace::resume(tid, 0)
                } else {
                    ptrace::leave_stopped(tid)
                }
            }
        }
    }

    fn forget(&mut self, tid: i32) {
        self.threads.remove(&tid);
        self.memories.remove(&tid);
    }

    /// A thread was started by one that is followed.
    fn begins(&mut self, tid: i32) {
        let Some(process) = status(tid, "Tgid").and_then(|n| i32::try_from(n).ok()) else { return };
        self.threads.insert(tid, Thread { process, call: None });
        // A process of its own, stopped before it returns from fork(2).
        if process == tid {
            self.register(tid);
        }
    }

    fn at_syscall(&mut self, tid: i32) {
        let Ok(now) = ptrace::syscall(tid) else { return };
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let process = thread.process;
        match now {
            Syscall::Entry { number, arguments } => thread.call = Some((number, arguments)),
            Syscall::Elsewhere => thread.call = None,
            Syscall::Exit(result) => {
                let call = thread.call.take();
                match self.memories.get(&process) {
                    Some(Memory::New) => self.register(tid),
                    Some(Memory::Registered(faults)) => {
                        let mapping = call.and_then(|call| mapped(call, result));
                        if let Some((file, address, bytes)) = mapping
                            && is_learned(&name_of(process, file))
                        {
                            // What can't be registered is mapped with the pages around it.
                            let _ = faults.page_by_page(address, bytes);
                        }
                    }
                    None => {}
                }
            }
        }
    }

    /// Registers the mappings of a process whose thread `tid` is stopped.
    fn register(&mut self, tid: i32) {
        let Some(process) = self.threads.get(&tid).map(|thread| thread.process) else { return };
        if let Some(faults) = registered(tid, process) {
            self.memories.insert(process, Memory::Registered(faults));
            self.processes.registered += 1;
        } else {
            self.memories.remove(&process);
            self.processes.failed += 1;
        }
    }
}

/// Gives a process a userfaultfd for all the files that it has mapped. The descriptor is
/// ours alone a moment later.
fn registered(tid: i32, process: i32) -> Option<Userfault> {
    // A filter might kill it for a system call that it did not expect.
    if status(tid, "Seccomp")? != 0 {
        return None;
    }
    let at = vdso::syscall_in(process)?;
    let flags = [userfault::FLAGS, 0, 0];
    let fd = ptrace::run_syscall(tid, at, userfault::SYSCALL, flags).ok()?;
    let fd = i32::try_from(fd).ok()?;
    let faults = Userfault::of(process, fd);
    let close = [fd as u64, 0, 0];
    ptrace::run_syscall(tid, at, ptrace::CLOSE, close).ok()?;
    let faults = faults.ok()?;
    let maps = contents::bytes(format!("/proc/{process}/maps")).ok()?;
    for file in mapped_files(&maps).filter(|file| is_learned(file.path)) {
        let _ = faults.page_by_page(file.address, file.bytes);
    }
    Some(faults)
}

/// The file that a system call has mapped, where, and how many bytes.
fn mapped((number, arguments): (u64, [u64; 6]), result: i64) -> Option<(i32, u64, u64)> {
    let [_, bytes, _, flags, file, _] = arguments;
    let is_file = file as i32 >= 0 && flags & ptrace::MAP_ANONYMOUS == 0;
    let address = u64::try_from(result).ok()?;
    (number == ptrace::MMAP && is_file)
        .then(|| (file as i32, address, bytes.next_multiple_of(PAGE)))
}

/// What a descriptor of a process leads to.
fn name_of(process: i32, file: i32) -> Vec<u8> {
    let link = fs::read_link(format!("/proc/{process}/fd/{file}")).unwrap_or_default();
    link.into_os_string().into_vec()
}

/// Whether something of this name may be learned. Devices and memory without a file are not,
/// and are left to the program, which may want a userfaultfd of its own for them.
fn is_learned(name: &[u8]) -> bool {
    let begins = |with: &[u8]| name.starts_with(with);
    let is_device = begins(b"/dev/") && !begins(b"/dev/shm/");
    begins(b"/")
        && !is_device
        && ![&b"/memfd:"[..], b"/SYSV", b"/anon_hugepage"].into_iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_learned() {
        for (name, expected) in [
            ("/usr/bin/a b", true),
            ("/dev/shm/c", true),
            ("/memfd:x (deleted)", false),
            ("/dev/dri/card0", false),
            ("socket:[5]", false),
            ("", false),
        ] {
            assert_eq!(is_learned(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn a_system_call_that_mapped_a_file_tells_where() {
        let call = |number, flags, file: i32| (number, [0, 5000, 1, flags, file as u64, 0]);
        for (name, call, result, expected) in [
            ("a file", call(ptrace::MMAP, 2, 3), 0x7000_0000, Some((3, 0x7000_0000, 8192))),
            ("memory", call(ptrace::MMAP, 2 | ptrace::MAP_ANONYMOUS, -1), 4096, None),
            ("a failure", call(ptrace::MMAP, 2, 3), -12, None),
            ("another call", call(ptrace::MMAP + 1, 2, 3), 4096, None),
        ] {
            assert_eq!(mapped(call, result), expected, "{name}");
        }
    }
}
