//! Replaces files that belong to others or that others may read: configuration, units, models
//! of devices. Atomic, without a lock, and with owner, mode and attributes as they were.

use super::directory::Directory;
use super::temporary;
use rustix::fs::{Gid, Mode, Uid, XattrFlags};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Writes a file in one step: it is old or new, never half. Symbolic links are followed. A new
/// file, and the directories that it needs, may be read by all.
///
/// # Errors
/// What the kernel said; the file is as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let real = fs::canonicalize(path);
    let path = real.as_deref().unwrap_or(path);
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    let dir = Directory::open(parent, rustix::process::geteuid().as_raw())?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let before = match File::open(path) {
        Ok(file) => Some(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    temporary::replace(&dir, name, true, |file| {
        match &before {
            Some(before) => take_over(before, file)?,
            None => file.set_permissions(fs::Permissions::from_mode(0o644))?,
        }
        file.write_all(bytes)
    })
}

/// Gives a new file what the one has that it replaces.
fn take_over(before: &File, file: &File) -> io::Result<()> {
    let meta = before.metadata()?;
    let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
    rustix::fs::fchown(file, Some(uid), Some(gid))?;
    // After the owner, which clears bits of it.
    rustix::fs::fchmod(file, Mode::from_raw_mode(meta.mode()))?;
    let mut names = vec![0; 64 << 10];
    // File systems without attributes have none to lose.
    let Ok(length) = rustix::fs::flistxattr(before, &mut names[..]) else { return Ok(()) };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::fgetxattr(before, name, &mut value[..])?;
        rustix::fs::fsetxattr(file, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_file_may_be_read_by_all_and_nothing_stays_beside_it() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/b/unit");
        replace(&path, b"x").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"x".to_vec(), 0o644));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_and_the_file_behind_it_keeps_owner_mode_and_attributes() {
        let top = tempfile::tempdir().unwrap();
        let (link, file) = (top.path().join("cmdline"), top.path().join("real"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let attribute = rustix::fs::setxattr(&file, "user.test", b"v", XattrFlags::empty());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(1000), Some(1001)).unwrap();
        }
        let owner = |path: &Path| path.metadata().map(|m| (m.uid(), m.gid())).unwrap();
        let before = owner(&file);
        symlink("real", &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("real"));
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!((mode(&file), owner(&file)), (0o600, before));
        if attribute.is_ok() {
            let mut value = [0; 8];
            assert_eq!(rustix::fs::getxattr(&file, "user.test", &mut value).unwrap(), 1);
        }
    }
}
