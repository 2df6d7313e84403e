//! What the words of a command lead to: programs, and files that they load. It does not say which words
//! count; that is the key's business.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What the words of a command lead to, for the process that runs it.
pub trait Names {
    /// The real path of a program, as `$PATH` and symbolic links lead to it.
    fn program(&self, word: &OsStr) -> Option<PathBuf>;
    /// The real path of a file.
    fn file(&self, word: &OsStr) -> Option<PathBuf>;
    /// Whether there is such a file.
    fn is_file(&self, word: &OsStr) -> bool;
}

/// Of this process, with a function that finds programs.
impl<F: Fn(&OsStr) -> Option<PathBuf>> Names for F {
    fn program(&self, word: &OsStr) -> Option<PathBuf> {
        self(word)
    }

    fn file(&self, word: &OsStr) -> Option<PathBuf> {
        std::fs::canonicalize(word).ok()
    }

    fn is_file(&self, word: &OsStr) -> bool {
        Path::new(word).exists()
    }
}
