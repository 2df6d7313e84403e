//! File systems and block devices in use, and what headstart can do on them.
//!
//! Pure: it reads through a function that the caller passes.

use crate::host::json_path::JsonPath;
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::check::Check;
use crate::host::id::Dev;
use crate::host::mounts::MountTable;
use crate::host::superblock::is_in_device_cache;
use crate::replay::model::Model;

/// How inodes of a file system become paths, from fast to slow.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum PathResolution {
    /// Any inode can be opened by its number alone.
    ByHandle,
    /// So can it once XFS_IOC_BULKSTAT has told its generation.
    ByBulkstat,
    /// BTRFS_IOC_INO_LOOKUP gives the path of an inode.
    ByLookup,
    /// Directories are walked until the inode turns up.
    ByWalk,
}

/// How the metadata of a file system is brought in ahead of a start.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum MetadataAhead {
    /// By readahead on the block device, as recorded.
    ByDevice,
    /// By opening the files early.
    ByOpening,
}

/// A mounted file system with something behind it.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct FileSystem {
    /// Where; of several places the first.
    pub mount_point: JsonPath,
    /// Its type.
    pub kind: String,
    /// What was given as the device.
    pub source: String,
    /// The super block's device number.
    pub dev: String,
    /// The block device, by its number: [`Device::dev`].
    pub device: Option<String>,
    /// The kernel's readahead window, in KiB, which is also the most of one readahead call.
    pub readahead_kb: Option<u64>,
    /// The file in sysfs that it was read from.
    pub readahead_source: Option<String>,
    /// How inodes become paths.
    pub paths: PathResolution,
    /// How metadata is brought in.
    pub metadata: MetadataAhead,
    /// Whether its files are reached through a server, which may not answer.
    pub needs_server: bool,
    /// Whether the kernel keeps its data in memory, as far as its options tell: what it does not
    /// keep is neither learned nor prefetched.
    pub keeps_data: bool,
}

/// A block device with a file system in use.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Device {
    /// Its number.
    pub dev: String,
    /// Its name below `/dev`.
    pub name: Option<String>,
    /// What the kernel reports. Not reliable: most virtual disks are reported as rotational.
    pub rotational: Option<bool>,
    /// The largest request, in KiB.
    pub request_kb: Option<u64>,
    /// How many requests it queues.
    pub queue: Option<u64>,
    /// How it behaved when it was measured.
    pub model: Option<Model>,
    /// Whether this user may read it, so that it can be measured.
    pub readable: bool,
}

/// What a user may do on a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct May {
    /// Request files by their inodes.
    pub by_inode: bool,
    /// Read its block device.
    pub read_device: bool,
}

impl FileSystem {
    /// The same for a user who may do this.
    #[must_use]
    pub fn for_user(self, may: May) -> Self {
        let paths = if may.by_inode { self.paths } else { PathResolution::ByWalk };
        let metadata = if may.read_device { self.metadata } else { MetadataAhead::ByOpening };
        Self { paths, metadata, ..self }
    }
}

/// How inodes of this type of file system become paths.
pub fn path_resolution(kind: &str) -> PathResolution {
    match kind {
        "ext2" | "ext3" | "ext4" | "f2fs" | "erofs" => PathResolution::ByHandle,
        "xfs" => PathResolution::ByBulkstat,
        "btrfs" => PathResolution::ByLookup,
        _ => PathResolution::ByWalk,
    }
}

/// How the metadata of this type of file system is brought in.
pub fn metadata_ahead(kind: &str) -> MetadataAhead {
    if is_in_device_cache(kind.as_ref()) {
        MetadataAhead::ByDevice
    } else {
        MetadataAhead::ByOpening
    }
}

/// Whether files of this type of file system come from somewhere slower than
/// memory; `nodev`: the types that `/proc/filesystems` says need no device.
fn is_backed(kind: &str, nodev: &[&str]) -> bool {
    const ALSO: [&str; 17] = [
        "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "overlay", "btrfs", "zfs",
        "ubifs", "fuse", "afs", "beegfs", "gpfs", "lustre", "vboxsf",
    ];
    !nodev.contains(&kind) || ALSO.contains(&kind) || kind.starts_with("fuse.")
}

/// Whether the kernel keeps data of this type of file system in memory with these options.
fn keeps_data(kind: &str, options: &OsStr) -> bool {
    let mut options = options.as_bytes().split(|byte| *byte == b',');
    match kind {
        // Documentation/filesystems/9p.rst; fs/9p/v9fs.c shows the mode as a number.
        "9p" => options.any(|o| o.starts_with(b"cache=") && o != b"cache=none" && o != b"cache=0"),
        "cifs" | "smb3" => !options.any(|option| option == b"cache=none"),
        "virtiofs" => !options.any(|option| option == b"dax" || option == b"dax=always"),
        _ => true,
    }
}

/// What can be done with files of a file system that needs a server.
pub(super) fn server(fs: &FileSystem) -> Option<Check> {
    const ID: &str = "file_server";
    let (at, kind) = (fs.mount_point.shown(), &fs.kind);
    let can = if fs.keeps_data {
        "their data is prefetched by separate threads, which headstart does not wait for when the server \
         does not answer; names are resolved for 2 s at most; metadata is not learned, and stays \
         cached as long as the server allows"
    } else {
        "the kernel caches none of their data, so nothing is learned or prefetched"
    };
    fs.needs_server
        .then(|| Check::degraded(ID, format!("Files on {at} ({kind}) need a server: {can}")))
}

/// The file systems among `mounts`, each once; `filesystems` is the text of
/// `/proc/filesystems`, `read` reads a small file, `node` gives the number of a
/// block device node, and `btrfs` the directory in sysfs of the btrfs on a device.
pub fn file_systems(
    mounts: &MountTable,
    filesystems: &str,
    read: impl Fn(&str) -> Option<String>,
    node: impl Fn(&str) -> Option<Dev>,
    btrfs: impl Fn(Dev) -> Option<String>,
) -> Vec<FileSystem> {
    let nodev: Vec<_> = filesystems.lines().filter_map(|l| l.strip_prefix("nodev\t")).collect();
    let mut found: Vec<FileSystem> = Vec::new();
    for mount in mounts.mounts() {
        let dev = mount.dev.to_string();
        let text = |name: &OsStr| name.to_string_lossy().into_owned();
        let (kind, source) = (text(&mount.fstype), text(&mount.source));
        if !is_backed(&kind, &nodev) || found.iter().any(|fs| fs.dev == dev) {
            continue;
        }
        let block = match mount.dev.major() {
            // btrfs has a number of its own.
            0 => Some(source.as_str()).filter(|s| s.starts_with('/')).and_then(&node),
            _ => Some(mount.dev),
        };
        let own = format!("/sys/class/bdi/{dev}/read_ahead_kb");
        let btrfs = || Some(format!("{}/bdi/read_ahead_kb", btrfs(block?)?));
        let settings = [Some(own), (kind == "btrfs").then(btrfs).flatten()];
        let setting =
            settings.into_iter().flatten().find_map(|path| Some((number(&read, &path)?, path)));
        let (readahead_kb, readahead_source) = setting.unzip();
        found.push(FileSystem {
            mount_point: mount.mount_point.as_path().into(),
            dev,
            device: block.map(|dev| dev.to_string()),
            readahead_kb,
            readahead_source,
            paths: path_resolution(&kind),
            metadata: metadata_ahead(&kind),
            needs_server: !mounts.answers(mount.dev),
            keeps_data: keeps_data(&kind, &mount.super_options),
            kind,
            source,
        });
    }
    found
}

/// The block devices of these file systems, each once; `model` knows those that
/// were measured.
pub fn devices(
    file_systems: &[FileSystem],
    read: impl Fn(&str) -> Option<String>,
    model: impl Fn(Dev) -> Option<Model>,
    readable: impl Fn(&str) -> bool,
) -> Vec<Device> {
    let mut found: Vec<Device> = Vec::new();
    for dev in file_systems.iter().filter_map(|fs| fs.device.as_ref()) {
        if found.iter().any(|device| device.dev == *dev) {
            continue;
        }
        // A partition has the queue of its disk.
        let queue = |name: &str| {
            let at = |up: &str| number(&read, &format!("/sys/dev/block/{dev}/{up}queue/{name}"));
            at("").or_else(|| at("../"))
        };
        let uevent = read(&format!("/sys/dev/block/{dev}/uevent")).unwrap_or_default();
        let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        found.push(Device {
            dev: dev.clone(),
            name: name.map(str::to_owned),
            rotational: queue("rotational").map(|flag| flag != 0),
            request_kb: queue("max_sectors_kb"),
            queue: queue("nr_requests"),
            model: dev.parse().ok().and_then(&model),
            readable: readable(name.unwrap_or(dev)),
        });
    }
    found
}

fn number(read: &impl Fn(&str) -> Option<String>, path: &str) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of device, mount point, type and source, and the options of the type.
    fn table(mounts: &[(Dev, &str, &str, &str, &str)]) -> MountTable {
        let line = |(number, (dev, at, kind, source, options)): (
            usize,
            &(Dev, &str, &str, &str, &str),
        )| {
            format!("{} 1 {dev} / {at} rw - {kind} {source} {options}\n", number + 1)
        };
        let lines: String = mounts.iter().enumerate().map(line).collect();
        MountTable::new(crate::host::mounts::parse(lines.as_bytes()).unwrap(), None)
    }

    const FILESYSTEMS: &str =
        "nodev\tproc\nnodev\ttmpfs\nnodev\toverlay\n\text4\n\tbtrfs\n\tfuseblk\n";

    fn sysfs(path: &str) -> Option<String> {
        let text = match path {
            "/sys/class/bdi/254:1/read_ahead_kb" => "128\n",
            "/sys/class/bdi/0:50/read_ahead_kb" => "15360\n",
            "/sys/fs/btrfs/aa-bb/bdi/read_ahead_kb" => "4096\n",
            "/sys/dev/block/254:1/../queue/rotational" => "1\n",
            "/sys/dev/block/254:1/../queue/max_sectors_kb" => "1280\n",
            "/sys/dev/block/254:1/uevent" => "MAJOR=254\nDEVNAME=vda1\n",
            "/sys/dev/block/8:0/queue/rotational" => "0\n",
            _ => return None,
        };
        Some(text.to_owned())
    }

    #[test]
    fn file_systems_are_listed_once_with_the_setting_that_counts() {
        let mounts = table(&[
            (Dev::new(254, 1), "/", "ext4", "/dev/vda1", "rw"),
            (Dev::new(0, 20), "/proc", "proc", "proc", "rw"),
            (Dev::new(254, 1), "/bind", "ext4", "/dev/vda1", "rw"),
            (Dev::new(0, 40), "/data", "btrfs", "/dev/sda", "rw"),
            (Dev::new(0, 50), "/net", "nfs4", "server:/export", "rw"),
            (Dev::new(0, 60), "/tmp", "tmpfs", "tmpfs", "rw"),
            (Dev::new(0, 61), "/ovl", "overlay", "overlay", "rw"),
        ]);
        let node = |path: &str| (path == "/dev/sda").then(|| Dev::new(8, 0));
        let btrfs = |dev| (dev == Dev::new(8, 0)).then(|| "/sys/fs/btrfs/aa-bb".to_owned());
        let found = file_systems(&mounts, FILESYSTEMS, sysfs, node, btrfs);
        let short: Vec<_> = found
            .iter()
            .map(|fs| (fs.mount_point.shown(), fs.device.as_deref(), fs.readahead_kb))
            .collect();
        let expected = [
            ("/".to_owned(), Some("254:1"), Some(128)),
            ("/data".to_owned(), Some("8:0"), Some(4096)),
            ("/net".to_owned(), None, Some(15360)),
            ("/ovl".to_owned(), None, None),
        ];
        assert_eq!(short, expected);
        let source = found[1].readahead_source.as_deref();
        assert_eq!(source, Some("/sys/fs/btrfs/aa-bb/bdi/read_ahead_kb"));

        let devices = devices(&found, sysfs, |_| None, |name| name == "vda1");
        let partition = Device {
            dev: "254:1".into(),
            name: Some("vda1".into()),
            rotational: Some(true),
            request_kb: Some(1280),
            queue: None,
            model: None,
            readable: true,
        };
        assert_eq!(devices[0], partition);
        assert_eq!((devices[1].dev.as_str(), devices[1].rotational), ("8:0", Some(false)));
        assert_eq!((devices.len(), devices[1].readable), (2, false));

        let root = &found[0];
        for (by_inode, read_device, paths, metadata) in [
            (true, true, PathResolution::ByHandle, MetadataAhead::ByDevice),
            (true, false, PathResolution::ByHandle, MetadataAhead::ByOpening),
            (false, false, PathResolution::ByWalk, MetadataAhead::ByOpening),
        ] {
            let seen = root.clone().for_user(May { by_inode, read_device });
            assert_eq!((seen.paths, seen.metadata), (paths, metadata));
        }
    }

    #[test]
    fn each_type_has_its_way_to_paths_and_metadata() {
        for (kind, paths, metadata) in [
            ("ext4", PathResolution::ByHandle, MetadataAhead::ByDevice),
            ("f2fs", PathResolution::ByHandle, MetadataAhead::ByOpening),
            ("erofs", PathResolution::ByHandle, MetadataAhead::ByDevice),
            ("xfs", PathResolution::ByBulkstat, MetadataAhead::ByOpening),
            ("btrfs", PathResolution::ByLookup, MetadataAhead::ByOpening),
            ("nfs4", PathResolution::ByWalk, MetadataAhead::ByOpening),
        ] {
            assert_eq!((path_resolution(kind), metadata_ahead(kind)), (paths, metadata), "{kind}");
        }
    }

    #[test]
    fn file_systems_that_need_a_server_say_what_is_done_with_their_files() {
        let mounts = table(&[
            (Dev::new(254, 1), "/", "ext4", "/dev/vda1", "rw"),
            (Dev::new(0, 50), "/ssh", "fuse.sshfs", "host:", "rw,user_id=0"),
            (Dev::new(0, 51), "/own", "fuse", "own", "rw"),
            (Dev::new(0, 52), "/net", "nfs4", "server:/", "rw"),
            (Dev::new(0, 53), "/win", "cifs", "//host/x", "rw,cache=strict"),
            (Dev::new(0, 54), "/raw", "cifs", "//host/x", "rw,cache=none"),
            (Dev::new(0, 55), "/host", "9p", "tag", "rw,trans=virtio"),
            (Dev::new(0, 56), "/kept", "9p", "tag", "rw,cache=f,trans=virtio"),
            (Dev::new(0, 57), "/over", "overlay", "overlay", "rw,lowerdir=/net/a:/b"),
            (Dev::new(0, 58), "/local", "overlay", "overlay", "rw,lowerdir=/a:/b"),
        ]);
        let found = file_systems(&mounts, "nodev\tfuse\n", |_| None, |_| None, |_| None);
        let lines: Vec<_> = found.iter().filter_map(server).collect();
        let expected = [
            ("/ssh (fuse.sshfs)", true),
            ("/own (fuse)", true),
            ("/net (nfs4)", true),
            ("/win (cifs)", true),
            ("/raw (cifs)", false),
            ("/host (9p)", false),
            ("/kept (9p)", true),
            ("/over (overlay)", true),
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, (name, is_prefetched)) in lines.iter().zip(expected) {
            assert_eq!(line.meaning.contains("is prefetched"), is_prefetched, "{line:?}");
            assert!(line.meaning.contains(name), "{line:?}");
        }
    }
}
