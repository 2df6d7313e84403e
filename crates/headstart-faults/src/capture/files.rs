//! Reads the sections of the files in which faults were.

use crate::recording::{Object, Recording};
use crate::sections::Sections;
use crate::tables::SectionsOf;
use headstart_elf::files::sections;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The sections of all ELF files with faults; `root` is where the paths of the recorded process
/// begin. Files that can't be read any more have none.
pub fn sections_of(recording: &Recording, root: &Path) -> SectionsOf {
    let places = recording.faults.iter().flat_map(|fault| [fault.mapping, fault.behind]);
    let files = places.filter_map(|mapping| recording.mapping(mapping));
    let files = files.filter(|mapping| mapping.object == Object::File);
    let names: BTreeSet<u32> = files.map(|mapping| mapping.name).collect();
    let read = |name: u32| {
        let path = in_root(root, recording.name(name));
        Some((name, Sections::new(&sections::read(&path).ok()?)))
    };
    names.into_iter().filter_map(read).collect()
}

fn in_root(root: &Path, path: &[u8]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_root_of_the_process() {
        for (root, path, expected) in
            [("/", "/lib/a", "/lib/a"), ("/proc/7/root", "/lib/a", "/proc/7/root/lib/a")]
        {
            assert_eq!(in_root(Path::new(root), path.as_bytes()), Path::new(expected));
        }
    }
}
