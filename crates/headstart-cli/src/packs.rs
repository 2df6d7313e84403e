//! Packs as the command line names them: a file, or the program that it is of.

use headstart::pack::store::{self, StoreError};
use std::path::{Path, PathBuf};

/// The directories where packs are looked for.
pub fn search_path() -> Result<Vec<PathBuf>, StoreError> {
    let is_root = rustix::process::geteuid().is_root();
    store::search_path(is_root, |name| std::env::var_os(name).map(PathBuf::from))
}

/// The file that is meant: the pack of a program, where there is no such file.
pub fn by_name(wanted: &Path) -> Result<PathBuf, StoreError> {
    store::by_name(wanted, search_path()?)
}
