//! A control group with a memory limit, of either version, which is removed with its value.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Enters a control group and becomes the command.
const ENTER: &str = "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"";

/// A control group of our own; its processes have ended when it is dropped.
#[derive(Debug)]
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// With so many bytes of memory; `None` where there is none to be had.
    pub fn with_memory(bytes: u64) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let one = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = if one.is_dir() {
            (one, "memory.limit_in_bytes")
        } else {
            let root = Path::new("/sys/fs/cgroup");
            // It may be so already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            (root, "memory.max")
        };
        let name = format!("headstart-test-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let dir = root.join(name);
        fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }

    /// The first words of a command that enters it.
    pub fn wrapper(&self) -> [&str; 5] {
        ["/bin/sh", "-c", ENTER, "sh", self.0.to_str().unwrap()]
    }

    /// A program in it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let [sh, words @ ..] = self.wrapper();
        let mut command = Command::new(sh);
        command.args(words).arg(program);
        command
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
