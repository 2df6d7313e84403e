//! Which file systems always answer: those that the kernel serves from memory or a device of this
//! machine. On others a call may wait for a server for ever, and once the server has read the
//! request not even SIGKILL ends the wait (`request_wait_answer` of fs/fuse/dev.c).
//!
//! It is a list of types that answer, so that an unknown type counts as one that may not. It does
//! not look behind block devices (iSCSI, NBD, a loop device on NFS).

use super::mountinfo::Mount;
use super::table::MountTable;
use crate::host::id::Dev;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Types of file systems that need no server.
const LOCAL: [&str; 40] = [
    "bcachefs",
    "bdev",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "cramfs",
    "debugfs",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hfs",
    "hfsplus",
    "hugetlbfs",
    "iso9660",
    "jffs2",
    "jfs",
    "minix",
    "msdos",
    "nilfs2",
    "ntfs3",
    "overlay",
    "proc",
    "ramfs",
    "rootfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "ubifs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];

/// Whether a file system of this type needs no server.
pub fn is_local(kind: &OsStr) -> bool {
    LOCAL.iter().any(|local| kind == *local)
}

impl MountTable {
    /// Whether every file of a file system is reached without a server: where it is seen, and
    /// in all that it is mounted on. True for one that is seen nowhere.
    pub fn answers(&self, dev: Dev) -> bool {
        self.visible_of(dev).into_iter().all(|mount| self.mount_answers(mount))
    }

    /// Where the files begin that are not reached without a server.
    pub fn served(&self) -> Vec<&Path> {
        let served = self.visible().filter(|mount| !self.mount_answers(mount));
        served.map(|mount| mount.mount_point.as_path()).collect()
    }

    /// Whether the file at an absolute path is reached without a server.
    ///
    /// ```
    /// use headstart::host::mounts::{MountTable, parse};
    /// let text = b"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / /net rw - nfs4 server:/ rw\n";
    /// let table = MountTable::new(parse(text).expect("two mounts"), None);
    /// assert!(table.path_answers("/home/file".as_ref()));
    /// assert!(!table.path_answers("/net/file".as_ref()));
    /// ```
    pub fn path_answers(&self, path: &Path) -> bool {
        self.at(path).is_none_or(|mount| self.mount_answers(mount))
    }

    /// The file systems that the file at an absolute path waits for, the nearest first: those
    /// of its own and of all that this is mounted on that need a server.
    pub fn servers_at(&self, path: &Path) -> Vec<Dev> {
        self.at(path).map(|mount| self.servers(mount)).unwrap_or_default()
    }

    /// The same of the files of a file system, where it is seen.
    pub fn servers_of(&self, dev: Dev) -> Vec<Dev> {
        let mut servers = self.visible_of(dev).into_iter().map(|mount| self.servers(mount));
        servers.find(|servers| !servers.is_empty()).unwrap_or_default()
    }

    fn mount_answers(&self, mount: &Mount) -> bool {
        self.servers(mount).is_empty()
    }

    fn servers(&self, mount: &Mount) -> Vec<Dev> {
        let (mut found, mut above) = (Vec::new(), Some(mount));
        // As many steps as there are mounts: a hostile table may have a circle.
        for _ in self.mounts() {
            let Some(mount) = above else { break };
            if !is_local(&mount.fstype) || !self.layers_answer(mount) {
                found.push(mount.dev);
            }
            above = self.by_id(mount.parent.into()).filter(|parent| parent.id != mount.id);
        }
        found
    }

    /// Whether the layers of an overlay need no server, as far as its options name them by
    /// paths that are seen here. An overlay as a layer of another is taken as local.
    fn layers_answer(&self, mount: &Mount) -> bool {
        let is_there = |layer: &OsString| {
            let at = Path::new(layer).is_absolute().then(|| self.at(Path::new(layer))).flatten();
            at.is_none_or(|mount| is_local(&mount.fstype))
        };
        mount.fstype != "overlay" || layers(&mount.super_options).iter().all(is_there)
    }
}

/// The directories that the options of an overlay name (Documentation/filesystems/overlayfs.rst):
/// lower ones are separated by colons, and a backslash keeps a colon or comma in a name.
fn layers(options: &OsStr) -> Vec<OsString> {
    let mut found = Vec::new();
    for option in split(options.as_bytes(), b',') {
        let Some(at) = option.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (&option[..at], &option[at + 1..]);
        if matches!(name, b"lowerdir" | b"lowerdir+" | b"datadir+" | b"upperdir" | b"workdir") {
            let names = split(value, b':').into_iter().filter(|name| !name.is_empty());
            found.extend(names.map(|name| OsString::from_vec(without_backslashes(&name))));
        }
    }
    found
}

/// The parts of a text between separators that have no backslash before them.
fn split(text: &[u8], separator: u8) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut escaped = false;
    for &byte in text {
        if byte == separator && !escaped {
            parts.push(Vec::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(byte);
        }
        escaped = byte == b'\\' && !escaped;
    }
    parts
}

fn without_backslashes(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut escaped = false;
    for &byte in name {
        escaped = byte == b'\\' && !escaped;
        if !escaped {
            out.push(byte);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::mountinfo::tests::mount;
    use super::*;
    use proptest::prelude::*;

    fn of_type(mount: Mount, kind: &str, options: &str) -> Mount {
        Mount { fstype: kind.into(), super_options: options.into(), ..mount }
    }

    #[test]
    fn a_file_system_answers_where_it_and_all_below_it_need_no_server() {
        let below = "rw,lowerdir=/net/a\\:b:/srv,upperdir=/srv/u";
        let table = MountTable::new(
            vec![
                mount(1, 0, 1, "/", "/"),
                of_type(mount(2, 1, 2, "/", "/net"), "fuse.sshfs", "rw"),
                mount(3, 2, 3, "/", "/net/image"),
                of_type(mount(4, 1, 4, "/", "/srv"), "xfs", "rw"),
                of_type(mount(5, 1, 5, "/", "/over"), "overlay", "rw,lowerdir=l/X:/srv"),
                of_type(mount(6, 1, 6, "/", "/above"), "overlay", below),
                of_type(mount(7, 1, 7, "/", "/auto"), "autofs", "rw"),
                of_type(mount(8, 7, 8, "/", "/auto/boot"), "vfat", "rw"),
                of_type(mount(9, 1, 9, "/", "/new"), "newfs", "rw"),
                // Seen twice, once below a server.
                mount(10, 2, 10, "/", "/net/bind"),
                mount(11, 1, 10, "/", "/bind"),
            ],
            Some(1),
        );
        for (minor, path, expected) in [
            (1, "/usr", true),
            (2, "/net/x", false),
            (3, "/net/image/x", false),
            (4, "/srv/x", true),
            (5, "/over/x", true),
            (6, "/above/x", false),
            (8, "/auto/boot/x", false),
            (9, "/new/x", false),
            (10, "/net/bind/x", false),
            (99, "/nowhere", true),
        ] {
            assert_eq!(table.answers(Dev::new(8, minor)), expected, "{path}");
            assert_eq!(table.path_answers(Path::new(path)), expected, "{path}");
        }
        assert!(table.path_answers(Path::new("/bind/x")), "this way it does");
        let servers = |path: &str| table.servers_at(Path::new(path));
        assert_eq!(servers("/net/image/x"), [Dev::new(8, 2)]);
        assert_eq!(servers("/auto/boot/x"), [Dev::new(8, 7)]);
        assert_eq!(servers("/above/x"), [Dev::new(8, 6)]);
        assert_eq!(table.servers_of(Dev::new(8, 10)), servers("/net/bind/x"), "one way of two");
        assert!(servers("/usr").is_empty() && table.servers_of(Dev::new(8, 1)).is_empty());
        let served = ["/net", "/net/image", "/above", "/auto", "/auto/boot", "/new", "/net/bind"];
        assert_eq!(table.served(), served.map(Path::new));
    }

    #[test]
    fn layers_are_read_with_their_escapes() {
        let options = OsStr::new("rw,lowerdir=/a\\:b:/c\\,d::/e\\\\,upperdir=/u,xino=off,index");
        assert_eq!(layers(options), ["/a:b", "/c,d", "/e\\", "/u"].map(OsString::from));
        assert!(layers(OsStr::new("rw,lowerdir")).is_empty());
    }

    #[test]
    fn a_circle_of_mounts_ends() {
        let table =
            MountTable::new(vec![mount(1, 2, 1, "/", "/"), mount(2, 1, 2, "/", "/a")], None);
        assert!(table.path_answers(Path::new("/a/b")));
    }

    proptest! {
        #[test]
        fn no_options_make_the_parser_panic(options: Vec<u8>) {
            layers(OsStr::from_bytes(&options));
        }
    }
}
