//! The user for whom packs are found and trusted, and the variables that name the directories.

use std::path::PathBuf;

/// A user.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The variables of the user's environment that name a path.
    pub variable: fn(&str) -> Option<PathBuf>,
}

impl User {
    /// The one whom this process works for.
    pub fn own() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            variable: |name| std::env::var_os(name).map(PathBuf::from),
        }
    }

    /// Whether that is root.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }
}
