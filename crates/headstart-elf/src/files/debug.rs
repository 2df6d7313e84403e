//! The separate debug file of a program or library, which has the symbols that were stripped: by
//! its build ID, else by the name and checksum in `.gnu_debuglink`, as gdb(1) finds it.

use super::read::read;
use crate::image::{Image, symbols};
use crc::{CRC_32_ISO_HDLC, Crc, Table};
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where distributions put debug files.
pub const DEBUG_FILES: &str = "/usr/lib/debug";
const CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

/// What names a debug file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// `NT_GNU_BUILD_ID`
    BuildId,
    /// `.gnu_debuglink`
    DebugLink,
}

/// A debug file.
#[derive(Debug)]
pub struct Debug {
    /// Where it is.
    pub path: PathBuf,
    /// What named it.
    pub by: By,
    /// All bytes.
    pub bytes: Vec<u8>,
}

/// The debug file of the file `path`, if there is one that belongs to it. `dir` is where
/// distributions put them.
pub fn find(image: &Image, path: &Path, dir: &Path) -> Option<Debug> {
    let id = symbols::build_id(image);
    // Most files have none; one that is damaged has no symbols.
    let by_id = id.and_then(|id| {
        let path = by_build_id(dir, id)?;
        let bytes = read(&path).ok()?.bytes;
        let is_it = symbols::build_id_in(&bytes) == Some(id);
        is_it.then_some(Debug { path, by: By::BuildId, bytes })
    });
    by_id.or_else(|| {
        let (name, checksum) = link(image)?;
        let parent = path.parent()?;
        let below = dir.join(parent.strip_prefix("/").unwrap_or(parent));
        let places = [parent.join(name), parent.join(".debug").join(name), below.join(name)];
        places.into_iter().filter(|place| place != path).find_map(|path| {
            let bytes = read(&path).ok()?.bytes;
            let is_it = CRC.checksum(&bytes) == checksum;
            is_it.then_some(Debug { path, by: By::DebugLink, bytes })
        })
    })
}

/// The name and the CRC-32 of a debug file in `.gnu_debuglink`.
fn link<'a>(image: &Image<'a>) -> Option<(&'a OsStr, u32)> {
    let section = image.section(".gnu_debuglink").filter(|section| section.is_in_file())?;
    let begin = usize::try_from(section.offset).ok()?;
    let end = begin.checked_add(usize::try_from(section.size).ok()?)?;
    let (rest, checksum) = image.data.get(begin..end)?.split_last_chunk()?;
    let name = rest.split(|byte| *byte == 0).next()?;
    let is_name = !name.is_empty() && !name.contains(&b'/') && !matches!(name, b"." | b"..");
    is_name.then(|| (OsStr::from_bytes(name), u32::from_le_bytes(*checksum)))
}

/// Where the debug file of a build ID is, below the directory of debug files.
pub fn by_build_id(dir: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let [first, rest] = [&[*first], rest].map(symbols::hexadecimal);
    Some(dir.join(".build-id").join(first).join(rest + ".debug"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_file_is_named_by_its_build_id() {
        let path = by_build_id(Path::new("/debug"), &[0xab, 0x01, 0xff]);
        assert_eq!(path.as_deref(), Some(Path::new("/debug/.build-id/ab/01ff.debug")));
        assert_eq!(by_build_id(Path::new("/debug"), &[]), None);
    }

    #[test]
    fn a_debug_file_of_another_build_is_not_used() {
        let own = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&own).unwrap();
        let image = Image::parse(&bytes).unwrap();
        let Some(id) = symbols::build_id(&image) else { return };
        assert_eq!(symbols::build_id_in(&bytes), Some(id));
        let dir = tempfile::tempdir().unwrap();
        let path = by_build_id(dir.path(), id).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy("/bin/sh", &path).unwrap();
        assert!(find(&image, &own, dir.path()).is_none());
        std::fs::copy(&own, &path).unwrap();
        let found = find(&image, &own, dir.path()).unwrap();
        assert_eq!((found.path, found.by), (path, By::BuildId));
    }
}
