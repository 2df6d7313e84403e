//! Packs as the command line names them: a file, or a program.

use headstart::host::user::User;
use headstart::pack::store::{self, StoreError};
use std::path::{Path, PathBuf};

/// The directories where packs are looked for.
pub fn search_path() -> Result<Vec<PathBuf>, StoreError> {
    let user = User::own();
    store::search_path(user.is_root(), user.variable)
}

/// The path itself, or the pack of the program with that name if there is no such file.
pub fn by_name(wanted: &Path) -> Result<PathBuf, StoreError> {
    store::by_name(wanted, search_path()?)
}
