//! What `headstart elf repack` and `undo` share: the system that files belong to, and files by
//! their names.

use crate::output;
use crate::packs::search_path;
use anyhow::Context;
use headstart::cache::walk::walk;
use headstart_elf::files::change::Settings;
use headstart_elf::files::dpkg::{Dpkg, is_original};
use headstart_elf::files::journal::Journal;
use headstart_elf::files::loader::Loaders;
use headstart_elf::files::obstacles::Running;
use headstart_elf::files::owned::Owned;
use headstart_elf::files::read;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the records of root are, below the root of a system.
const OF_ROOT: &str = "var/lib/headstart/elf";

/// The system.
#[derive(clap::Args, Debug)]
pub struct SystemArgs {
    /// The root directory of the system that the files belong to, such as of an image
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl SystemArgs {
    /// Settings for it; `owned` says which files belong to packages.
    pub fn settings(
        &self,
        owned: impl FnOnce(&Path) -> anyhow::Result<Option<Owned>>,
    ) -> anyhow::Result<Settings> {
        let root = std::fs::canonicalize(&self.root)
            .with_context(|| format!("Can't look at {}", output::shown(&self.root)))?;
        let is_root = rustix::process::geteuid().is_root();
        let of_user = || {
            // Beside the packs of this user.
            let packs = search_path().ok()?.into_iter().next()?;
            Some(packs.parent()?.join("elf"))
        };
        let journal = if is_root { Some(root.join(OF_ROOT)) } else { of_user() };
        let journal = journal.context("There is no directory for records; set HOME")?;
        Ok(Settings {
            minimum: 1,
            owned: owned(&root)?,
            divert: false,
            dpkg: Dpkg::at(&root),
            root,
            any_loader: false,
            loaders: Loaders::default(),
            running: Running::now(),
            check: None,
            journal: Journal::at(journal),
        })
    }
}

/// Files in groups of the names that each has.
pub type Groups = Vec<Vec<PathBuf>>;

/// The ELF files that paths mean, with all names of each that are among them, and what could not
/// be looked at.
pub fn found(paths: &[PathBuf]) -> (Groups, Vec<String>) {
    let found = walk(paths);
    let problems = found.errors.iter().map(|error| output::causes(error)).collect();
    let mut by_inode = BTreeMap::<(u64, u64), Vec<PathBuf>>::new();
    for path in found.files {
        let is_named = paths.contains(&path);
        // The packaged file of a repacked one is not used.
        if !is_named && (is_original(&path) || !read::is_elf(&path)) {
            continue;
        }
        // A link that was named is another name of what it leads to.
        let Ok(path) = std::fs::canonicalize(&path) else { continue };
        let Ok(meta) = path.symlink_metadata() else { continue };
        let names = by_inode.entry((meta.dev(), meta.ino())).or_default();
        if !names.contains(&path) {
            names.push(path);
        }
    }
    let mut groups: Groups = by_inode.into_values().collect();
    groups.sort();
    (groups, problems)
}
