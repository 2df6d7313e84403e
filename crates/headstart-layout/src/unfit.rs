//! Which ext4 file systems and kernels must not be laid out: those where a swap could lose data in a
//! crash, or that are damaged already. Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Where the superblock begins on its device, in bytes.
pub const OFFSET: u64 = 1024;
/// Its length.
pub const LENGTH: usize = 1024;

/// Why a file system must not be laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Its device has no superblock of ext4.
    Unknown,
    /// The kernel or e2fsck(8) found errors in it.
    Damaged,
    /// It has no journal, so a crash could leave a file with blocks that were not written.
    NoJournal,
    /// Fast commits do not log swaps, so a crash could take back what was synced after one.
    FastCommit,
    /// The kernel swaps no blocks in clusters.
    Bigalloc,
    /// Its blocks are larger than pages.
    LargeBlocks,
    /// It is mounted for reading only.
    ReadOnly,
    /// It is mounted without write barriers, so a power cut could lose any order of writes.
    NoBarrier,
    /// All data go through the journal, where the kernel swaps no blocks.
    JournalledData,
}

impl Unfit {
    /// In words that follow "is not laid out:", with what to do.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unknown => "its device has no superblock of ext4 that can be read",
            Self::Damaged => "errors were found in it; e2fsck -f repairs them, unmounted",
            Self::NoJournal => {
                "it has no journal, and a crash could lose data; tune2fs -O has_journal adds one, unmounted"
            }
            Self::FastCommit => {
                "its feature fast_commit does not log such moves, and a crash could lose data; tune2fs -O \
                 ^fast_commit removes it, unmounted"
            }
            Self::Bigalloc => "its feature bigalloc keeps blocks from being moved",
            Self::LargeBlocks => "its blocks are larger than pages of memory",
            Self::ReadOnly => "it is mounted for reading only",
            Self::NoBarrier => "it is mounted with nobarrier, and a power cut could lose data",
            Self::JournalledData => {
                "it is mounted with data=journal, which keeps blocks from being moved"
            }
        }
    }
}

/// Whether the superblock of a file system, and the options of its mount and of itself
/// (proc_pid_mountinfo(5)), allow a layout. `page` is the size of a page, in bytes.
///
/// # Errors
/// What does not.
pub fn check(block: &[u8; LENGTH], options: [&OsStr; 2], page: u64) -> Result<(), Unfit> {
    // `struct ext4_super_block` of fs/ext4/ext4.h.
    let short = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    let long = |at: usize| u32::from(short(at)) | u32::from(short(at + 2)) << 16;
    let [compatible, read_only] = [long(0x5c), long(0x64)];
    const MAGIC: u16 = 0xef53;
    const ERROR_FS: u16 = 2;
    const HAS_JOURNAL: u32 = 0x4;
    const FAST_COMMIT: u32 = 0x400;
    const BIGALLOC: u32 = 0x200;
    let block_bytes = 1024u64.checked_shl(long(0x18)).unwrap_or(u64::MAX);
    let checks = [
        (short(0x38) != MAGIC, Unfit::Unknown),
        // `s_state` and `s_error_count`.
        (short(0x3a) & ERROR_FS != 0 || long(0x194) != 0, Unfit::Damaged),
        (compatible & HAS_JOURNAL == 0, Unfit::NoJournal),
        (compatible & FAST_COMMIT != 0, Unfit::FastCommit),
        (read_only & BIGALLOC != 0, Unfit::Bigalloc),
        (block_bytes > page, Unfit::LargeBlocks),
    ];
    first(&checks)?;
    check_options(options)?;
    first(&[(has(options, "data=journal"), Unfit::JournalledData)])
}

/// The same by options alone, which is all that counts on xfs and btrfs.
///
/// # Errors
/// What does not.
pub fn check_options(options: [&OsStr; 2]) -> Result<(), Unfit> {
    let has = |option| has(options, option);
    first(&[(has("ro"), Unfit::ReadOnly), (has("nobarrier") || has("barrier=0"), Unfit::NoBarrier)])
}

fn has(options: [&OsStr; 2], option: &str) -> bool {
    let is_it = |word: &[u8]| word == option.as_bytes();
    options.iter().any(|list| list.as_bytes().split(|byte| *byte == b',').any(is_it))
}

fn first(checks: &[(bool, Unfit)]) -> Result<(), Unfit> {
    checks.iter().find_map(|(is, unfit)| is.then_some(Err(*unfit))).unwrap_or(Ok(()))
}

/// Whether a kernel of this release has the fix of CVE-2024-26704, by its number: without it, a swap
/// that fails halfway on ext4 may mark blocks as free twice. Distributions fix kernels and keep their
/// numbers. The numbers are those of the CVE's record (upstream commit 55583e899a53; the bug is of 3.18).
pub fn is_kernel_fixed(release: &str) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    let mut next = || parts.next().flatten();
    let (major, minor, patch): (Option<u32>, Option<u32>, Option<u32>) = (next(), next(), next());
    let Some(version) = major.zip(minor) else { return false };
    const FIXED: [((u32, u32), u32); 7] = [
        ((4, 19), 307),
        ((5, 4), 269),
        ((5, 10), 210),
        ((5, 15), 149),
        ((6, 1), 79),
        ((6, 6), 18),
        ((6, 7), 6),
    ];
    let is_fixed = |&(series, first): &((u32, u32), u32)| {
        version == series && patch.is_some_and(|patch| patch >= first)
    };
    version >= (6, 8) || FIXED.iter().any(is_fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> [u8; LENGTH] {
        let mut block = [0; LENGTH];
        block[0x18] = 2;
        block[0x38..0x3c].copy_from_slice(&[0x53, 0xef, 1, 0]);
        block[0x5c] = 0x3c;
        block
    }

    #[test]
    fn a_file_system_where_a_swap_could_lose_data_is_refused() {
        type Change = fn(&mut [u8; LENGTH]);
        let none: Change = |_| {};
        for (change, mount, own, expected) in [
            (none, "rw,noatime", "rw,errors=remount-ro", Ok(())),
            (none, "rw", "rw,data=writeback,nobarriers", Ok(())),
            (|b| b[0x38] = 0, "rw", "rw", Err(Unfit::Unknown)),
            (|b| b[0x3a] = 3, "rw", "rw", Err(Unfit::Damaged)),
            (|b| b[0x195] = 1, "rw", "rw", Err(Unfit::Damaged)),
            (|b| b[0x5c] = 0x38, "rw", "rw", Err(Unfit::NoJournal)),
            // e2fsprogs issue 137: e4defrag hangs for ever on such a file system, too.
            (|b| b[0x5d] = 4, "rw", "rw", Err(Unfit::FastCommit)),
            (|b| b[0x65] = 2, "rw", "rw", Err(Unfit::Bigalloc)),
            (|b| b[0x18] = 3, "rw", "rw", Err(Unfit::LargeBlocks)),
            (|b| b[0x1b] = 9, "rw", "rw", Err(Unfit::LargeBlocks)),
            (none, "ro,noatime", "rw", Err(Unfit::ReadOnly)),
            (none, "rw", "ro,norecovery", Err(Unfit::ReadOnly)),
            (none, "rw", "rw,nobarrier", Err(Unfit::NoBarrier)),
            (none, "rw", "rw,data=journal", Err(Unfit::JournalledData)),
        ] {
            let mut block = sound();
            change(&mut block);
            let found = check(&block, [mount.as_ref(), own.as_ref()], 4096);
            assert_eq!(found, expected, "{mount} {own}");
        }
    }

    #[test]
    fn a_kernel_is_fixed_from_a_number_on_in_each_series() {
        for (release, expected) in [
            ("6.18.44-fc-v657", true),
            ("6.8.0-31-generic", true),
            ("7.0", true),
            ("6.7.5", false),
            ("6.7.6", true),
            ("6.1.78", false),
            ("6.1.0-18-amd64", false),
            ("6.1.140", true),
            ("5.14.0-427.el9", false),
            ("5.15.149-generic", true),
            ("3.10.0", false),
            ("6.1", false),
            ("", false),
            ("linux", false),
            ("99999999999.1.1", false),
        ] {
            assert_eq!(is_kernel_fixed(release), expected, "{release}");
        }
    }
}
