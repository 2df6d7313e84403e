//! A helper for a process that is about to become another program. The process keeps its number,
//! parent and descriptors; the helper is not its child.
//!
//! [`split`] starts it; [`Program`] is the side that becomes the program, [`Helper`] the other side.
//! Two pipes connect them: with one the helper says when the program may start, the other shows the
//! helper whether it has. clone(2), fork(2), setsid(2), pidfd_open(2).

use crate::exec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitOptions, getpid, pidfd_open, waitpid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

/// Says that the program may start.
const GO: u8 = b'g';
/// Begins a request to write a mark; the file, the text and a zero byte after each follow.
const MARK: u8 = b'm';

/// The side of the process that becomes the program.
#[derive(Debug)]
pub struct Program {
    told: OwnedFd,
    tell: OwnedFd,
}

/// The side of the helper.
#[derive(Debug)]
pub struct Helper {
    told: OwnedFd,
    tell: OwnedFd,
    program: Pid,
    end: OwnedFd,
}

/// Whether the program was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// Not yet.
    NotYet,
    /// It was, or its process has ended.
    Yes,
    /// It could not be.
    Failed,
}

/// What the intermediate process needs, and the helper that it forks.
struct Split<F> {
    told: OwnedFd,
    tell: OwnedFd,
    program: Pid,
    help: F,
    /// The side of the program, which the helper closes.
    other: Program,
}

/// Starts a helper, which leads a session of its own, does `help` and ends with the status that
/// this returns. Nothing of it is to be seen by the program: it is no child of it, and no signal
/// tells of it. Only the first process of a PID namespace, which every orphan becomes a child of,
/// keeps an intermediate process as a child of which neither wait(2) nor a signal tells. Only while
/// there is a single thread.
///
/// # Errors
/// What pipe(2), mmap(2) or clone(2) said.
pub fn split(help: impl FnOnce(Helper) -> u8) -> io::Result<Program> {
    let (go_out, go_in) = pipe_with(PipeFlags::CLOEXEC)?;
    let (start_out, start_in) = pipe_with(PipeFlags::CLOEXEC)?;
    let other = Program { told: go_out, tell: start_in };
    let split = Split { told: start_out, tell: go_in, program: getpid(), help, other };
    let pid = start_intermediate(&split)?;
    if !split.program.is_init() {
        reap(pid);
    }
    Ok(split.other)
}

/// Starts the intermediate process. As it ends after a fork, it uses the memory of this process,
/// which does nothing but wait for it: to copy that would take as long as the helper's own fork. Not
/// so for the first process of a PID namespace, which does not wait. A signal stops or ends either
/// process as if they had nothing in common, unlike with vfork(2).
fn start_intermediate<F: FnOnce(Helper) -> u8>(split: &Split<F>) -> io::Result<Pid> {
    let share = if split.program.is_init() { 0 } else { libc::CLONE_VM };
    let argument = ptr::from_ref(split).cast_mut().cast();
    // SAFETY: the caller has a single thread, so a copy is whole; where memory is shared, this
    // process waits until the other has ended, and uses nothing of the C library meanwhile. The
    // stack is the other's own. The argument lives longer, and is what `intermediate` expects.
    // Without a signal in the flags none tells of its end, which might stay pending, and be the
    // program's.
    let pid = unsafe { libc::clone(intermediate::<F>, new_stack()?, share, argument) };
    if pid == -1 {
        return Err(io::Error::last_os_error());
    }
    Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Forks the helper and ends, so that it has no parent to wait for it. The intermediate process of
/// the first one of a PID namespace stays until the helper has ended.
extern "C" fn intermediate<F: FnOnce(Helper) -> u8>(split: *mut libc::c_void) -> libc::c_int {
    let split: *const Split<F> = split.cast_const().cast();
    // SAFETY: takes nothing; fails only for a leader of a process group, which a child is not.
    unsafe { libc::setsid() };
    // SAFETY: still a single thread. Unlike clone(2) it tells the C library of the new process.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: it is in the memory of the caller of clone(2), of which this process has a copy.
        // What it owns belongs to this copy alone, and nothing drops it elsewhere in this process.
        let split = unsafe { ptr::read(split) };
        end(split.help());
    }
    // SAFETY: as above; only looked at, so that nothing of it is dropped.
    let stays = unsafe { (*split).program.is_init() };
    if stays && pid > 0 {
        // SAFETY: closes every descriptor; this process needs none.
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
        Pid::from_raw(pid).into_iter().for_each(reap);
    }
    0
}

/// Ends this process without the exit handlers of the one it was forked from.
fn end(status: u8) -> ! {
    // SAFETY: takes a number.
    unsafe { libc::_exit(status.into()) }
}

impl<F: FnOnce(Helper) -> u8> Split<F> {
    /// Helps, in the helper process.
    fn help(self) -> u8 {
        let Self { told, tell, program, help, other } = self;
        drop(other);
        let helper = pidfd_open(program, PidfdFlags::empty());
        let helper = helper.map(|end| Helper { told, tell, program, end });
        // Had it ended before, the number might be that of another process by now.
        match helper.map_err(io::Error::from).and_then(|helper| Ok((helper.started()?, helper))) {
            Ok((Started::NotYet, helper)) => help(helper),
            // There is nothing to help.
            _ => 1,
        }
    }
}

/// The upper end of a new stack for another process, as large as that of a thread. It is never
/// unmapped: the one process becomes another program, the other is the helper.
fn new_stack() -> io::Result<*mut libc::c_void> {
    const BYTES: usize = 2 << 20;
    // An overflow hits a page that can't be accessed.
    const GUARD: usize = 64 << 10;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
    // SAFETY: a new mapping, whose address the kernel chooses.
    let low = unsafe { mmap_anonymous(ptr::null_mut(), BYTES, access, flags)? };
    // SAFETY: a part of that mapping, which nothing uses yet.
    unsafe { mprotect(low, GUARD, MprotectFlags::empty())? };
    Ok(low.wrapping_byte_add(BYTES))
}

/// Waits for a child, also one of which no signal tells. Not by the C library, whose `errno` the
/// child may use too.
fn reap(pid: Pid) {
    let all = WaitOptions::from_bits_retain(libc::__WALL.cast_unsigned());
    while waitpid(Some(pid), all).is_err_and(|error| error == Errno::INTR) {}
}

impl Program {
    /// Waits until the helper says that the program may start, until it has gone, or for this
    /// time. Writes the marks that it requests.
    pub fn wait(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut said = Vec::new();
        while wait_for(&self.told, until.saturating_duration_since(Instant::now())) {
            let mut bytes = [0; 512];
            match rustix::io::read(&self.told, &mut bytes) {
                Ok(0) => return,
                Ok(count) => said.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
            while let Some(first) = said.first() {
                if *first == GO {
                    return;
                }
                let Some(length) = write_mark(&said) else { break };
                said.drain(..length);
            }
        }
    }

    /// Becomes the program: `argv` with the descriptors and signals that this process was
    /// started with. Returns only when that fails, with the reason; the helper is told.
    pub fn exec(self, argv: &[impl AsRef<OsStr>]) -> io::Error {
        let error = exec::exec(argv);
        // The helper notices the end of this process, too.
        let _ = rustix::io::write(&self.tell, b"f");
        error
    }
}

/// Writes the mark that a message requests; the length of the message, once it is whole.
fn write_mark(said: &[u8]) -> Option<usize> {
    let mut ends = said.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
    let (file, text) = (ends.next()?, ends.next()?);
    let path = OsString::from_vec(said[1..file].to_vec());
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(opened) = rustix::fs::open(&path, flags, Mode::empty()) {
        // Without it the helper learns nothing.
        let _ = rustix::io::write(&opened, &said[file + 1..text]);
    }
    Some(text + 1)
}

impl Helper {
    /// The process of the program.
    pub fn program(&self) -> Pid {
        self.program
    }

    /// A descriptor that can be read when the process of the program has ended.
    pub fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// A descriptor that can be read, or has been closed, when the program was executed or
    /// could not be.
    pub fn start(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }

    /// Has the program's process write `text` into `file`, before it becomes the program: a
    /// trace then tells how the kernel counts it.
    ///
    /// # Errors
    /// It has gone on, or the path has a zero byte.
    pub fn request_mark(&self, file: &Path, text: &str) -> io::Result<()> {
        if file.as_os_str().as_bytes().contains(&0) || text.contains('\0') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let message = [&[MARK], file.as_os_str().as_bytes(), &[0], text.as_bytes(), &[0]].concat();
        self.say(&message)
    }

    /// Lets the program start.
    ///
    /// # Errors
    /// It did not wait any longer.
    pub fn go(&self) -> io::Result<()> {
        self.say(&[GO])
    }

    /// Whether the program was executed.
    ///
    /// # Errors
    /// What poll(2) or read(2) said.
    pub fn started(&self) -> io::Result<Started> {
        if !wait_for(&self.told, Duration::ZERO) {
            return Ok(Started::NotYet);
        }
        let mut byte = [0];
        match rustix::io::read(&self.told, &mut byte)? {
            0 => Ok(Started::Yes),
            _ => Ok(Started::Failed),
        }
    }

    fn say(&self, message: &[u8]) -> io::Result<()> {
        match rustix::io::write(&self.tell, message)? {
            written if written == message.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// Whether something can be read within this time, or its other end is closed.
fn wait_for(fd: &impl AsFd, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut fds, Some(&left)) {
            Err(Errno::INTR) => {}
            answer => return answer.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Change, fork, wait};
    use std::fs;

    const LONG: Duration = Duration::from_secs(60);

    /// How a process ends that forks a helper, which does `help`, and becomes `argv`.
    fn outcome(argv: &[&str], limit: Duration, help: impl Fn(Helper)) -> Change {
        let program = || {
            let helps = |helper| {
                help(helper);
                0
            };
            let program = split(helps).unwrap();
            program.wait(limit);
            program.exec(argv);
            99
        };
        wait(fork(program).unwrap()).unwrap().0
    }

    /// What a helper says in this file, once it has.
    fn said(file: &Path) -> String {
        let from = Instant::now();
        while !file.exists() {
            assert!(from.elapsed() < LONG, "the helper said nothing");
            std::thread::yield_now();
        }
        fs::read_to_string(file).unwrap()
    }

    fn say(file: &Path, text: &str) {
        let written = file.with_extension("new");
        fs::write(&written, text).unwrap();
        fs::rename(written, file).unwrap();
    }

    #[test]
    fn a_program_starts_when_its_helper_says_so_or_has_gone_or_takes_too_long() {
        let exits = ["sh", "-c", "exit 7"];
        assert_eq!(outcome(&exits, LONG, |helper| helper.go().unwrap()), Change::Exited(7));
        assert_eq!(outcome(&exits, LONG, drop), Change::Exited(7));
        let late = |helper: Helper| while helper.started().unwrap() == Started::NotYet {};
        assert_eq!(outcome(&exits, Duration::from_millis(1), late), Change::Exited(7));
    }

    #[test]
    fn the_helper_is_told_whether_the_program_was_executed_and_of_its_end() {
        let dir = tempfile::tempdir().unwrap();
        for (argv, expected, status) in
            [(["true"], "Yes", 0), (["/nonexistent/program"], "Failed", 99)]
        {
            let file = dir.path().join(expected);
            let tells = |helper: Helper| {
                helper.go().unwrap();
                let started = loop {
                    match helper.started().unwrap() {
                        Started::NotYet => {}
                        other => break other,
                    }
                };
                assert!(wait_for(&helper.end(), LONG));
                say(&file, &format!("{started:?}"));
            };
            assert_eq!(outcome(&argv, LONG, tells), Change::Exited(status));
            assert_eq!(said(&file), expected);
        }
    }

    #[test]
    fn the_program_writes_the_requested_marks() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mark");
        fs::write(&file, "").unwrap();
        let asks = |helper: Helper| {
            helper.request_mark(Path::new("/nonexistent/mark"), "lost").unwrap();
            helper.request_mark(&file, "here").unwrap();
            helper.go().unwrap();
        };
        assert_eq!(outcome(&["true"], LONG, asks), Change::Exited(0));
        assert_eq!(fs::read_to_string(&file).unwrap(), "here");
    }
}
