//! The mounts of this process, as they are now: read again only when the kernel says that they have
//! changed (proc_pid_mountinfo(5)). The driver.

use headstart::host::mounts::{MountTable, MountsError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

const FILE: &str = "/proc/self/mountinfo";
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The mounts, and what says that they have changed.
#[derive(Debug)]
pub struct CurrentMounts {
    changes: File,
    table: Arc<MountTable>,
}

impl CurrentMounts {
    /// Reads them.
    ///
    /// # Errors
    /// There is no /proc.
    pub fn read() -> Result<Self, MountsError> {
        let failed = |source| MountsError::Read { path: PathBuf::from(FILE), source };
        // Before the table, so that no change is missed between.
        let changes = File::open(FILE).map_err(failed)?;
        Ok(Self { changes, table: Arc::new(MountTable::read()?) })
    }

    /// As they are now; as they were, where they can't be read.
    pub fn now(&mut self) -> &Arc<MountTable> {
        let mut changed = [PollFd::new(&self.changes, PollFlags::PRI)];
        if poll(&mut changed, Some(&AT_ONCE)).is_ok_and(|changed| changed > 0)
            && let Ok(table) = MountTable::read()
        {
            self.table = Arc::new(table);
        }
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_mounts_of_this_process_have_a_root() {
        let mut mounts = CurrentMounts::read().unwrap();
        assert!(mounts.now().at(Path::new("/")).is_some());
        assert!(mounts.now().path_answers(Path::new("/proc/self")));
    }
}
