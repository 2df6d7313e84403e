//! Runs a program and all that it starts, and notes each function at its first call.
//!
//! Each function begins with a breakpoint, which goes away when it is hit: the program runs at
//! full speed from there on. What makes that safe:
//!
//! - Which addresses have breakpoints follows from what is mapped, not from what was hit. So a
//!   thread that hits one at the same time as another is told from a program with a breakpoint
//!   of its own, and children, which have a copy of their parent's memory or share it until
//!   exec, need no account of theirs.
//! - A breakpoint is set before any code of a mapping runs: when a program has been executed,
//!   or when mmap(2) has returned.
//! - A program whose main process has ended, or whose time is over, is let go without any.
//!
//! - The kernel resets `SIGTRAP` to its default where a breakpoint is hit while the signal is
//!   blocked, as it is in the program's own handler of it. So a process that gets one of its own
//!   loses all its breakpoints before, and one that ignores the signal has none.
//!
//! Where this differs from a run without headstart: functions that a program reads as data have
//! another first byte; and if a program calls a function for the first time while it blocks
//! `SIGTRAP`, and later sends itself that signal, its handler is not called.

pub mod layout;
pub mod memory;
mod recorder;
mod release;

pub use recorder::{Recorder, Skipped};

use headstart::host::contents;
use headstart::host::proc::{status, status_text};
use headstart_sys::process::Change;
use headstart_sys::ptrace::{self, Stop, Syscall};
use headstart_sys::{process, signals};
use layout::Module;
use memory::Memory;
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// Shared libraries too.
    pub libraries: bool,
    /// For how long; `None` until the program's end.
    pub limit: Option<Duration>,
}

/// Why a program was not followed.
#[derive(thiserror::Error, Debug)]
pub enum FollowError {
    /// Only one process may.
    #[error("process {0} traces it already, as strace and debuggers do; run it without that")]
    Traced(u64),
    /// Containers and security modules can forbid it.
    #[error("this user may not trace it ({0}); see kernel.yama.ptrace_scope, or run as root")]
    NotAllowed(io::Error),
    /// The kernel takes the privileges away.
    #[error("{} has privileges of its own (set-user-ID, set-group-ID or capabilities), which it \
             does not get when another user than root traces it; run as root", .0.display())]
    Privileged(PathBuf),
    /// No breakpoints are known.
    #[error("breakpoints are there for x86-64 only")]
    Machine,
    /// Something else.
    #[error("it can't be followed: {0}")]
    Other(#[from] io::Error),
}

/// Runs a program once. `start` executes it, in a child process, and returns the status to end
/// with only if that fails; `started` is called in this process when there is a child. Only while
/// there is a single thread.
///
/// # Errors
/// Those of [`FollowError`]; the program did not run then.
pub fn run(
    recorder: &mut Recorder,
    options: Options,
    start: impl FnOnce() -> u8,
    started: impl FnOnce(),
) -> Result<Change, FollowError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(FollowError::Machine);
    }
    let (go, sender) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let mut sender = Some(sender);
    let pid = process::fork(|| {
        drop(sender.take());
        let mut byte = [0];
        // Nothing comes where it can't be followed.
        if rustix::io::read(&go, &mut byte) == Ok(1) { start() } else { 1 }
    })?;
    drop(go);
    started();
    let pid = pid.as_raw_nonzero().get();
    let seized = ptrace::seize_for_breakpoints(pid);
    if seized.is_ok()
        && let Some(sender) = &sender
    {
        rustix::io::write(sender, b"g").map_err(io::Error::from)?;
    }
    drop(sender);
    if let Err(error) = seized {
        // It ends by itself.
        while !matches!(ptrace::next_stop(), Ok(Some((_, Stop::Gone(_)))) | Err(_)) {}
        let tracer = status(std::process::id() as i32, "TracerPid");
        return Err(match (Errno::from_io_error(&error), tracer) {
            (Some(Errno::PERM), Some(tracer @ 1..)) => FollowError::Traced(tracer),
            (Some(Errno::PERM), _) => FollowError::NotAllowed(error),
            _ => FollowError::Other(error),
        });
    }
    Followed::new(recorder, options, pid).until_the_end()
}

/// How often is waited for a last child, and how long. What can't be let go, as the ended first
/// thread of a process, tells nothing.
const PATIENCE: u32 = 1000;
const A_MOMENT: Duration = Duration::from_millis(1);

/// All that is followed.
struct Followed<'a> {
    recorder: &'a mut Recorder,
    options: Options,
    /// The program itself.
    main: i32,
    /// How it ended.
    ended: Option<Change>,
    threads: HashMap<i32, Thread>,
    processes: HashMap<i32, Process>,
    /// What is followed is let go.
    is_releasing: bool,
    /// Why the program was killed before it ran.
    refused: Option<PathBuf>,
}

struct Thread {
    process: i32,
    /// Number and arguments of the system call that it is in.
    call: Option<(u64, [u64; 6])>,
}

/// A process that can have breakpoints.
struct Process {
    memory: Memory,
    modules: Vec<Module>,
    /// It uses the signal of breakpoints itself.
    is_cleared: bool,
}

impl<'a> Followed<'a> {
    fn new(recorder: &'a mut Recorder, options: Options, main: i32) -> Self {
        let threads = HashMap::from([(main, Thread { process: main, call: None })]);
        Self {
            recorder,
            options,
            main,
            ended: None,
            threads,
            processes: HashMap::new(),
            is_releasing: false,
            refused: None,
        }
    }

    fn until_the_end(mut self) -> Result<Change, FollowError> {
        let until = self.options.limit.and_then(|limit| Instant::now().checked_add(limit));
        if let Some(limit) = self.options.limit {
            signals::wake_after(limit)?;
        }
        let mut patience = PATIENCE;
        loop {
            // The last child of a program may not have told that it is there.
            let is_last = self.ended.is_some() && self.threads.is_empty();
            match if is_last { ptrace::stopped() } else { ptrace::next_stop() } {
                Ok(Some((tid, stop))) => {
                    if self.on(tid, stop).is_err() {
                        // It was killed meanwhile, and its end is told yet.
                        self.threads.remove(&tid);
                    }
                }
                Ok(None) if is_last && patience == 0 => break,
                Ok(None) if is_last => {
                    patience -= 1;
                    std::thread::sleep(A_MOMENT);
                }
                Ok(None) => {}
                // Nothing is left.
                Err(_) => break,
            }
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            if !self.is_releasing && (is_over || self.ended.is_some()) {
                self.release();
            }
        }
        if let Some(path) = self.refused {
            return Err(FollowError::Privileged(path));
        }
        // It can only be unknown if somebody else has waited for it.
        self.ended.ok_or_else(|| io::Error::other("nobody knows how it ended").into())
    }

    /// Deals with a stop of a thread, and lets it run on.
    fn on(&mut self, tid: i32, stop: Stop) -> io::Result<()> {
        if let Stop::Gone(change) = stop {
            self.threads.remove(&tid);
            self.processes.remove(&tid);
            if tid == self.main {
                self.ended = Some(change);
            }
            return Ok(());
        }
        if !self.threads.contains_key(&tid) {
            self.begins(tid);
        }
        match stop {
            Stop::Exec => self.executed(tid),
            Stop::Syscall if !self.is_releasing => self.at_syscall(tid),
            _ => {}
        }
        match stop {
            Stop::Signal(signal) => {
                let pass_on = if signal == ptrace::TRAP { self.trapped(tid)? } else { signal };
                self.go_on(tid, pass_on)
            }
            _ if self.is_releasing => self.stopped_for_release(tid, stop),
            Stop::Group(signal) if signal != ptrace::TRAP => ptrace::leave_stopped(tid),
            _ => self.go_on(tid, 0),
        }
    }

    fn go_on(&mut self, tid: i32, signal: i32) -> io::Result<()> {
        if self.is_releasing {
            self.threads.remove(&tid);
            return ptrace::let_go(tid, signal);
        }
        if self.options.libraries {
            ptrace::resume(tid, signal)
        } else {
            ptrace::run_on(tid, signal)
        }
    }

    /// A thread was started by one that is followed.
    fn begins(&mut self, tid: i32) {
        let process = status(tid, "Tgid").and_then(|n| i32::try_from(n).ok()).unwrap_or(tid);
        self.threads.insert(tid, Thread { process, call: None });
        if process == tid {
            // It has the breakpoints of its parent.
            self.look_at(process);
            if self.is_releasing {
                self.clear(process);
            }
        }
    }

    /// A process has become another program: of its threads this one is left, under the number
    /// of the process.
    fn executed(&mut self, tid: i32) {
        self.threads.retain(|_, thread| thread.process != tid);
        self.threads.insert(tid, Thread { process: tid, call: None });
        self.processes.remove(&tid);
        let is_first = self.recorder.is_new_run();
        if let Some(path) = recorder::lost_privileges(tid) {
            if is_first {
                // Before its first instruction.
                let _ = signals::kill(tid, Signal::KILL.as_raw());
                self.refused = Some(path);
                return;
            }
            self.recorder.without_privileges(path);
        }
        if !self.is_releasing {
            self.set(tid);
        }
    }

    fn at_syscall(&mut self, tid: i32) {
        let Ok(now) = ptrace::syscall(tid) else { return };
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        match now {
            Syscall::Entry { number, arguments } => thread.call = Some((number, arguments)),
            Syscall::Elsewhere => thread.call = None,
            Syscall::Exit(result) => {
                let process = thread.process;
                if thread.call.take().is_some_and(|call| maps_code(call, result)) {
                    self.set(process);
                }
            }
        }
    }

    /// A thread is to get a `SIGTRAP`. The signal that it is to get: none if a breakpoint of
    /// ours has sent it.
    fn trapped(&mut self, tid: i32) -> io::Result<i32> {
        let by_breakpoint = ptrace::breakpoint(tid)?;
        let address = by_breakpoint.map_or_else(|| ptrace::before_pointer(tid), Ok)?;
        let process = self.threads.get(&tid).map_or(tid, |thread| thread.process);
        let mut found = self.find(process, address);
        if found.is_none() && by_breakpoint.is_some() {
            // A process that shares its memory has mapped something.
            self.look_at(process);
            found = self.find(process, address);
        }
        // A signal that was pending already takes the place of that of a breakpoint.
        found = found.filter(|_| by_breakpoint.is_some() || self.has_breakpoint(process, address));
        if by_breakpoint.is_none() || found.is_none() {
            self.sent_by_program(process);
        }
        let Some((file, point)) = found else { return Ok(ptrace::TRAP) };
        let Some(owner) = self.processes.get(&process) else { return Ok(ptrace::TRAP) };
        if let Some(point) = self.recorder.point(file, point) {
            owner.memory.clear_one(address, point)?;
        }
        ptrace::continue_at(tid, address)?;
        if !self.is_releasing {
            self.recorder.called(file, point);
        }
        Ok(if by_breakpoint.is_some() { 0 } else { ptrace::TRAP })
    }

    fn has_breakpoint(&self, process: i32, address: u64) -> bool {
        self.processes.get(&process).is_some_and(|owner| owner.memory.has(address))
    }

    /// A process is to get a `SIGTRAP` that is not from us. If it handles it, the signal is
    /// blocked meanwhile.
    fn sent_by_program(&mut self, process: i32) {
        let is_first = self
            .processes
            .get_mut(&process)
            .is_some_and(|owner| !std::mem::replace(&mut owner.is_cleared, true));
        if is_first && signal_set(process, "SigCgt", ptrace::TRAP) {
            self.clear(process);
            self.recorder.uses_traps(process, "it handles SIGTRAP, so its later calls are missing");
        }
    }

    /// The file and its point whose breakpoint is at an address.
    fn find(&self, process: i32, address: u64) -> Option<(usize, usize)> {
        self.processes.get(&process)?.modules.iter().find_map(|module| {
            let offset = module.offset_of(address)?;
            Some((module.file, self.recorder.code(module.file)?.point_at(offset)?))
        })
    }

    /// Finds out which known files a process has mapped. Those of them that are new.
    fn look_at(&mut self, process: i32) -> Vec<Module> {
        let modules = self.recorder.modules(process, self.options.libraries);
        if let Some(known) = self.processes.get_mut(&process) {
            let old = std::mem::replace(&mut known.modules, modules);
            let mut new = known.modules.clone();
            new.retain(|module| !old.contains(module));
            return new;
        }
        let Ok(memory) = Memory::of(process) else { return Vec::new() };
        self.processes
            .insert(process, Process { memory, modules: modules.clone(), is_cleared: false });
        modules
    }

    /// Sets breakpoints in what a process has mapped since.
    fn set(&mut self, process: i32) {
        if self.processes.get(&process).is_some_and(|owner| owner.is_cleared) {
            return;
        }
        if signal_set(process, "SigIgn", ptrace::TRAP) {
            self.recorder.uses_traps(process, "it ignores SIGTRAP, so it has no breakpoints");
            return;
        }
        for module in self.look_at(process) {
            let Some(code) = self.recorder.code(module.file) else { continue };
            let Some(owner) = self.processes.get(&process) else { continue };
            if let Err(error) = owner.memory.set(&module, code) {
                self.recorder.unwritable(module.file, &error);
            }
        }
    }
}

/// Whether a signal is in a set of a process or thread (proc_pid_status(5)).
fn signal_set(pid: i32, set: &str, signal: i32) -> bool {
    let text = contents::bytes(format!("/proc/{pid}/status")).unwrap_or_default();
    let set = status_text(&text, set).and_then(|set| u64::from_str_radix(set, 16).ok());
    set.is_some_and(|set| set & 1 << (signal - 1) != 0)
}

/// Whether a system call has mapped code of a file.
fn maps_code((number, arguments): (u64, [u64; 6]), result: i64) -> bool {
    let [_, _, protection, flags, _, _] = arguments;
    let is_code =
        protection & u64::from(ProtFlags::EXEC.bits()) != 0 && !(-4095..0).contains(&result);
    is_code
        && (number == ptrace::MPROTECT
            || (number == ptrace::MMAP && flags & ptrace::MAP_ANONYMOUS == 0))
}
