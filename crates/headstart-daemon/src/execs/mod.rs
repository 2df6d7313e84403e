//! Which processes call exec, as soon as they do. The rest of the crate knows only the [`Source`].

mod buffers;
pub mod forks;
pub mod frequent;
pub mod pace;
pub mod reads;
pub mod traced;

use std::io;
use std::os::fd::BorrowedFd;

/// A process that has become another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exec {
    /// Its number, in the first PID namespace; that of one of its threads, if a read was seen.
    pub pid: u32,
    /// When it was seen, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// By what.
    pub seen: Seen,
}

/// By what a start was seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Seen {
    /// Its exec.
    Exec,
    /// A request to a disk, of a program with a name that is executed often. The process may be an old one.
    Read,
    /// A fork, or the name that a child took. The process may do no job of its own.
    Fork,
}

/// How many execs were not reported.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Lost(pub u64);

/// Reports execs.
pub trait Source {
    /// Can be read when there are execs.
    fn fd(&self) -> BorrowedFd<'_>;

    /// When the next [`read`](Self::read) is due even if nothing can be read, in nanoseconds of the monotonic
    /// clock.
    fn due(&self) -> Option<u64> {
        None
    }

    /// Can be read when there is something that does not wait until more has gathered.
    fn urgent(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Appends the execs since the last call, in the order of time, and does not wait for more.
    /// Of programs that are executed many times a minute only those may be there that read from a disk.
    ///
    /// # Errors
    /// The kernel refuses to hand them out; the source reports nothing more.
    fn read(&mut self, out: &mut Vec<Exec>) -> io::Result<Lost>;
}
