//! File systems that read their metadata through the page cache of their block device, so that
//! prefetching the device's pages prefetches metadata; and the UUID in their superblock. Pure.
//!
//! Others keep metadata where user space can't read it: in the page cache of unnamed inodes (btrfs,
//! f2fs), in buffers (xfs), or in an ordinary file (EROFS that was mounted from a file).

use std::ffi::OsStr;
use std::ops::Range;

/// Where all of them have their superblock.
pub const OFFSET: u64 = 1024;
/// So much of it is needed.
pub const LENGTH: usize = 0x78;

/// Where a superblock has its magic number and its UUID.
struct Form {
    kinds: &'static [&'static str],
    magic: (usize, &'static [u8]),
    uuid: Range<usize>,
}

const FORMS: [Form; 2] = [
    // `struct ext4_super_block` of fs/ext4/ext4.h.
    Form { kinds: &["ext2", "ext3", "ext4"], magic: (0x38, &[0x53, 0xef]), uuid: 0x68..0x78 },
    // `struct erofs_super_block` of fs/erofs/erofs_fs.h.
    Form { kinds: &["erofs"], magic: (0, &[0xe2, 0xe1, 0xf5, 0xe0]), uuid: 0x30..0x40 },
];

fn form(kind: &OsStr) -> Option<&'static Form> {
    FORMS.iter().find(|form| form.kinds.iter().any(|known| kind == *known))
}

/// Whether a file system of this type reads its metadata through the page cache of its block
/// device.
pub fn is_in_device_cache(kind: &OsStr) -> bool {
    form(kind).is_some()
}

/// The UUID in a superblock of this type; none if it is of another.
pub fn uuid(kind: &OsStr, block: &[u8; LENGTH]) -> Option<[u8; 16]> {
    let form = form(kind)?;
    let (at, magic) = form.magic;
    block[at..].starts_with(magic).then(|| block[form.uuid.clone()].try_into().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_is_read_from_a_superblock_of_that_type_and_from_nothing_else() {
        for (kind, magic_at, magic, uuid_at) in
            [("ext4", 0x38, &[0x53, 0xef][..], 0x68), ("erofs", 0, &[0xe2, 0xe1, 0xf5, 0xe0], 0x30)]
        {
            let mut block = [0; LENGTH];
            block[uuid_at..uuid_at + 16].copy_from_slice(&[7; 16]);
            assert_eq!(uuid(kind.as_ref(), &block), None, "{kind} without a magic number");
            block[magic_at..magic_at + magic.len()].copy_from_slice(magic);
            for other in ["ext2", "ext4", "erofs", "xfs"] {
                let is_it = other == kind || (other, kind) == ("ext2", "ext4");
                assert_eq!(uuid(other.as_ref(), &block), is_it.then_some([7; 16]), "{other}");
            }
        }
    }
}
