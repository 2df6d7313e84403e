//! Which file systems can be laid out, and why others can't. Pure.

/// A kind of file system that can be laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Blocks are swapped with those of a donor.
    Ext4,
    /// Blocks are shared with copies in other places.
    Xfs,
    /// The same. Each subvolume is laid out on its own.
    Btrfs,
}

impl Kind {
    /// The kind with this name in mountinfo.
    ///
    /// # Errors
    /// Why a file system of this type can't be laid out, in words that follow a colon.
    pub fn of(fstype: &str) -> Result<Self, &'static str> {
        match fstype {
            "ext4" => Ok(Self::Ext4),
            "xfs" => Ok(Self::Xfs),
            "btrfs" => Ok(Self::Btrfs),
            "ext2" | "ext3" => Err("its files have no extents; ext4 has"),
            "f2fs" => Err(
                "it writes all blocks to new places, and its cleaner moves them again, so a layout \
                 would not last",
            ),
            "overlay" | "aufs" => Err(
                "it has no blocks of its own; learn the start outside of the container, or lay out the \
                 files of its layers",
            ),
            "squashfs" | "erofs" | "iso9660" | "udf" | "cramfs" | "romfs" => {
                Err("it is built once; headstart layout list writes the order for its builder")
            }
            "tmpfs" | "ramfs" | "rootfs" => Err("it is in memory"),
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "virtiofs" | "afs" => {
                Err("its disks are those of another machine, where a layout can be made")
            }
            _ => Err("the kernel has no call for it that moves blocks and keeps content and times"),
        }
    }

    /// Whether new copies can be compressed.
    pub fn compresses(self) -> bool {
        self == Self::Btrfs
    }

    /// Whether copies in other places share their blocks with the files.
    pub fn shares(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_file_systems_are_refused_each_with_its_reason() {
        for (fstype, part) in [
            ("ext3", "extents"),
            ("f2fs", "would not last"),
            ("overlay", "layers"),
            ("squashfs", "layout list"),
            ("erofs", "layout list"),
            ("tmpfs", "in memory"),
            ("nfs4", "another machine"),
            ("vfat", "no call"),
            ("fuse.sshfs", "no call"),
        ] {
            let why = Kind::of(fstype).unwrap_err();
            assert!(why.contains(part), "{fstype}: {why}");
        }
        assert_eq!(Kind::of("xfs").map(Kind::shares), Ok(true));
        assert_eq!(Kind::of("ext4").map(Kind::shares), Ok(false));
    }
}
