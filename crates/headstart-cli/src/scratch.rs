//! A directory for files that nobody else needs, removed with its value.

use crate::output;
use anyhow::Context;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one, whose name has this word in it.
    ///
    /// # Errors
    /// It can't be made, or is there.
    pub fn new(word: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("headstart-{word}-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("Can't make the directory {}", output::shown(&path)))?;
        Ok(Self(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            output::message(format_args!("can't remove {}: {e}", output::shown(&self.0)));
        }
    }
}
