//! Work that may be left behind: it runs in a child, and nobody waits for the child's end once it
//! has reported its status. A thread of it may wait for a file server that does not answer, and
//! then the process can't end.

use crate::exit::{ExitStatus, status_of};
use crate::parent::status_in_shell;
use anyhow::Context;
use headstart_sys::{descriptors, interrupt, process};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Does `work` in a child and ends with its status. Whatever ends this process ends the child.
/// Only while there is a single thread.
pub fn apart(work: impl FnOnce() -> anyhow::Result<ExitStatus>) -> anyhow::Result<ExitStatus> {
    let (receive, send) = pipe_with(PipeFlags::CLOEXEC).context("Can't make a pipe")?;
    let pid = process::fork(|| {
        // Without these the child would go on alone, and end all the same.
        let _ = interrupt::close_all_before_the_end();
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
        let status = status_of(work()).number() as u8;
        let _ = set_parent_process_death_signal(None);
        // A failure means that nobody waits for the status any more.
        let _ = rustix::io::write(&send, &[status]);
        descriptors::close_all();
        status
    })
    .context("Can't start a process")?;
    drop(send);
    let mut status = [0];
    loop {
        match rustix::io::read(&receive, &mut status) {
            Err(Errno::INTR) => {}
            Ok(1) => return Ok(ExitStatus::Program(status[0])),
            _ => break,
        }
    }
    // It was killed before.
    let (change, _) = process::wait(pid).context("Can't wait for the process that replays")?;
    Ok(ExitStatus::Program(status_in_shell(change)))
}
