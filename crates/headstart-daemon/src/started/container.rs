//! Reads of which image a process in a container is: from /proc, and from what podman and docker keep.
//! Where that is, a process may choose: nothing is opened that needs a server, and no more is read than a
//! few MiB of a file.

use super::files::real_path;
use super::image::{self, Image, Layers};
use headstart::host::contents;
use headstart::host::mounts::MountTable;
use rustix::fs::{FileType, Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where docker keeps its containers if its layers do not tell.
const DOCKER: &str = "/var/lib/docker";
/// The most that is read of a list of images, in bytes.
const MOST_BYTES: i64 = 4 << 20;

/// The image that a process is started from, and the device number of the file system that it is on, if
/// that is known; none if it is in no container whose image can be told.
pub(super) fn image(pid: u32, ours: &MountTable) -> Option<(Image, Option<u64>)> {
    let groups = contents::bytes(format!("/proc/{pid}/cgroup")).ok()?;
    let theirs = MountTable::of_process(i32::try_from(pid).ok()?).ok()?;
    let Some(mut layers) = Layers::of_root(theirs.mounts()) else {
        return image::application(&groups).map(|image| (image, None));
    };
    let base = theirs.at(Path::new("/")).and_then(|root| directory_of_layers(root.dev, ours));
    let resolve = |layer: &PathBuf| {
        let path = base.as_ref().map_or_else(|| layer.clone(), |base| base.join(layer));
        real_path(&path, ours).unwrap_or(path)
    };
    layers.lower = layers.lower.iter().map(resolve).collect();
    let top = layers.lower.first()?;
    let of_podman = || {
        let (dir, id) = layer_of(top)?;
        let images = read(&dir.parent()?.join("overlay-images/images.json"), ours)?;
        image::of_podman(&images, id)
    };
    let of_docker = || {
        let id = image::container_id(&groups)?;
        let root = layer_of(top).and_then(|(dir, _)| dir.parent());
        let config =
            |root: &Path| read(&root.join("containers").join(id).join("config.v2.json"), ours);
        image::of_docker(&root.and_then(config).or_else(|| config(Path::new(DOCKER)))?)
    };
    let image = of_podman().or_else(of_docker).unwrap_or_else(|| Image::of_layers(&layers));
    let is_local = ours.path_answers(top);
    let dev = is_local.then(|| rustix::fs::lstat(top).ok().map(|stat| stat.st_dev)).flatten();
    Some((image, dev))
}

/// The directory of all layers, of an overlay that is mounted here too, as `DIR/ID/merged`.
fn directory_of_layers(dev: headstart::host::id::Dev, ours: &MountTable) -> Option<PathBuf> {
    let visible = ours.visible_of(dev);
    visible.first()?.mount_point.parent()?.parent().map(Path::to_owned)
}

/// `DIR` and `ID` in `DIR/ID/diff`.
fn layer_of(path: &Path) -> Option<(&Path, &OsStr)> {
    let layer = path.parent().filter(|_| path.file_name().is_some_and(|name| name == "diff"))?;
    Some((layer.parent()?, layer.file_name()?))
}

/// A file that is no larger than it may be.
fn read(path: &Path, ours: &MountTable) -> Option<Vec<u8>> {
    let path = real_path(path, ours)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let stat = rustix::fs::fstat(&file).ok()?;
    let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    (is_plain && stat.st_size <= MOST_BYTES).then(|| contents::rest_of(file).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_has_a_number_in_the_directory_of_all() {
        for (path, expected) in [
            ("/s/overlay/ab/diff", Some(("/s/overlay", "ab"))),
            ("ab/diff", Some(("", "ab"))),
            ("/s/snapshots/7/fs", None),
            ("diff", None),
            ("/", None),
        ] {
            let expected = expected.map(|(dir, id)| (Path::new(dir), OsStr::new(id)));
            assert_eq!(layer_of(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn this_process_is_in_no_container_that_has_an_image_or_has_one_that_is_named() {
        let found = image(std::process::id(), &MountTable::read().unwrap());
        assert!(found.is_none_or(|(image, _)| !image.name.is_empty()));
        assert_eq!(image(u32::MAX, &MountTable::read().unwrap()), None);
    }

    #[test]
    fn what_is_no_plain_file_or_too_large_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let ours = MountTable::read().unwrap();
        let path = dir.join("images.json");
        assert_eq!(read(&path, &ours), None);
        std::fs::write(&path, "[]").unwrap();
        assert_eq!(read(&path, &ours), Some(b"[]".to_vec()));
        File::options().write(true).open(&path).unwrap().set_len(MOST_BYTES as u64 + 1).unwrap();
        assert_eq!((read(&path, &ours), read(&dir, &ours)), (None, None));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(read(&path, &ours), None);
    }
}
