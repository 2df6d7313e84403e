//! Makes each page that a program touches through a mapping show by itself.
//!
//! A fault maps up to 15 neighbours of its page that are in memory, and the kernel reports
//! them all alike: a third of what a start seems to touch it never looks at. In mappings
//! that are registered with userfaultfd(2) a fault maps its page alone. So the program and
//! all that it starts are followed from system call to system call, and each mapping of a
//! file is registered as soon as it is there. This takes time at each system call, so it
//! is for starts that are recorded on purpose. The driver; what the events then mean is in
//! [`crate::profile::neighbours`].
//!
//! Not registered are shared mappings of files that are not open for writing, and programs
//! that had already limited their system calls by seccomp(2): there, neighbours show as ever.

mod vdso;

use headstart_sys::ptrace::{self, Stop, Syscall};
use headstart_sys::signals;
use headstart_sys::userfault::{self, Userfault};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, str};

/// A page of a mapping; addresses and lengths are multiples of it.
const PAGE: u64 = 4096;

/// Follows a program and what it starts until all have ended, or until `enough`, which is
/// looked at when a signal arrives. `begun` is told whether that works before the program
/// runs on.
///
/// Signals are held back by then ([`signals::hold_back`]): the kernel sends one for each
/// stop of the program.
pub fn follow(pid: i32, enough: &AtomicBool, begun: impl FnOnce(io::Result<()>)) {
    let started = ptrace::seize(pid);
    let works = started.is_ok();
    begun(started);
    if !works {
        return;
    }
    let mut followed = Followed::default();
    followed.threads.insert(pid, Thread { process: pid, call: None });
    let mut leaving = false;
    loop {
        match ptrace::stopped() {
            // Nobody is left.
            Err(_) => return,
            Ok(Some((tid, stop))) => {
                // A thread that was killed meanwhile says so in its next stop.
                let _ = if leaving { leave(tid, stop) } else { followed.on(tid, stop) };
            }
            Ok(None) => {
                if !leaving && enough.load(Ordering::Relaxed) {
                    leaving = true;
                    for tid in followed.threads.keys() {
                        let _ = ptrace::interrupt(*tid);
                    }
                }
                // Without signals there would be nothing to wait for.
                if signals::next().is_err() {
                    return;
                }
            }
        }
    }
}

/// Lets a stopped thread go, with the signal that it is to get.
fn leave(tid: i32, stop: Stop) -> io::Result<()> {
    match stop {
        Stop::Gone => Ok(()),
        Stop::Signal(signal) => ptrace::leave(tid, signal),
        _ => ptrace::leave(tid, 0),
    }
}

/// All that is followed.
#[derive(Default)]
struct Followed {
    threads: HashMap<i32, Thread>,
    /// By process. Of those that could not be registered there is none.
    memories: HashMap<i32, Memory>,
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
            Stop::Gone => {
                self.threads.remove(&tid);
                self.memories.remove(&tid);
                Ok(())
            }
            Stop::Syscall => {
                self.at_syscall(tid);
                ptrace::resume(tid, 0)
            }
            Stop::Exec => {
                // Of all its threads this one is left, under the number of the process.
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

    /// A thread was started by one that is followed.
    fn begins(&mut self, tid: i32) {
        let Some(process) = status(tid, "Tgid").and_then(|n| i32::try_from(n).ok()) else { return };
        self.threads.insert(tid, Thread { process, call: None });
        // A process of its own, stopped on its way back from fork(2).
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
                        if let Some((address, bytes)) = call.and_then(|call| mapped(call, result)) {
                            // What can't be registered shows its neighbours.
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
        match registered(tid, process) {
            Some(faults) => self.memories.insert(process, Memory::Registered(faults)),
            None => self.memories.remove(&process),
        };
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
    ptrace::run_syscall(tid, at, userfault::CLOSE, close).ok()?;
    let faults = faults.ok()?;
    for (address, bytes) in files_in(&fs::read_to_string(format!("/proc/{process}/maps")).ok()?) {
        let _ = faults.page_by_page(address, bytes);
    }
    Some(faults)
}

/// Where a system call has mapped a file, and how many bytes.
fn mapped((number, arguments): (u64, [u64; 6]), result: i64) -> Option<(u64, u64)> {
    let [_, bytes, _, flags, file, _] = arguments;
    let is_file = file as i32 >= 0 && flags & userfault::MAP_ANONYMOUS == 0;
    let address = u64::try_from(result).ok()?;
    (number == userfault::MMAP && is_file).then(|| (address, bytes.next_multiple_of(PAGE)))
}

/// Address and length of the mappings of files in the text of /proc/PID/maps.
fn files_in(maps: &str) -> impl Iterator<Item = (u64, u64)> + '_ {
    maps.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) =
            (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        // Behind access, offset and device.
        let inode: u64 = fields.nth(3)?.parse().ok()?;
        (inode > 0 && start < end).then(|| (start, end - start))
    })
}

/// A number in /proc/TID/status.
fn status(tid: i32, name: &str) -> Option<u64> {
    let text = fs::read(format!("/proc/{tid}/status")).ok()?;
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let (key, value) = str::from_utf8(line).ok()?.split_once(':')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_files_are_found() {
        let maps = "5581a000-5581c000 r--p 00000000 fd:00 1234   /usr/bin/a b\n\
                    7ffd0000-7ffd1000 rw-p 00000000 00:00 0      [stack]\n\
                    7ffd2000-7ffd3000 r-xp 00001000 fd:00 99\n\
                    nonsense\n7-6 r--p 0 0:0 5\n";
        let found: Vec<_> = files_in(maps).collect();
        assert_eq!(found, [(0x5581_a000, 0x2000), (0x7ffd_2000, 0x1000)]);
    }

    #[test]
    fn a_system_call_that_mapped_a_file_tells_where() {
        let call = |number, flags, file: i32| (number, [0, 5000, 1, flags, file as u64, 0]);
        for (name, call, result, expected) in [
            ("a file", call(userfault::MMAP, 2, 3), 0x7000_0000, Some((0x7000_0000, 8192))),
            ("memory", call(userfault::MMAP, 2 | userfault::MAP_ANONYMOUS, -1), 4096, None),
            ("a failure", call(userfault::MMAP, 2, 3), -12, None),
            ("another call", call(userfault::MMAP + 1, 2, 3), 4096, None),
        ] {
            assert_eq!(mapped(call, result), expected, "{name}");
        }
    }

    #[test]
    fn numbers_of_a_process_are_found_in_its_status() {
        let own = std::process::id();
        assert_eq!(status(own as i32, "Tgid"), Some(u64::from(own)));
        assert_eq!(status(own as i32, "Nonsense"), None);
        assert_eq!(status(-1, "Tgid"), None);
    }
}
