//! Which processes call exec, as soon as they do. The rest of the crate knows only the [`Source`].

pub mod frequent;
pub mod pace;
pub mod traced;

use std::io;
use std::os::fd::BorrowedFd;

/// A process that has become another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exec {
    /// Its number, in the first PID namespace.
    pub pid: u32,
    /// When it did, in nanoseconds of the monotonic clock.
    pub at: u64,
}

/// How many execs were not reported.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Lost(pub u64);

/// Reports execs.
pub trait Source {
    /// Can be read when there are execs.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Appends the execs since the last call, in the order of time, and does not wait for more.
    /// Programs that are executed many times a minute may be missing.
    ///
    /// # Errors
    /// The kernel refuses to hand them out; the source reports nothing more.
    fn read(&mut self, out: &mut Vec<Exec>) -> io::Result<Lost>;
}
