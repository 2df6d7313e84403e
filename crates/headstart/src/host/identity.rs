//! Whether a file is still the one that was learned.

use rustix::fs::Stat;
use serde::Serialize;

/// The identity of a learned file, to compare with the file at its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Identity {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of last modification, in nanoseconds of Unix time.
    pub mtime_ns: i64,
    /// Time of last change of the inode, in nanoseconds of Unix time.
    pub ctime_ns: i64,
}

/// The bits of an overlay's inode number that `xino` leaves to the layer. The upper bits identify
/// the layer; inode numbers of disks do not reach them.
pub(crate) const LAYER_INO: u64 = (1 << 48) - 1;

impl Identity {
    /// Whether a file that is `now` this is the one that was learned: an overlay gives the
    /// inode of a layer another number.
    pub fn is_still(&self, now: &Self) -> bool {
        self == now || *self == Self { ino: now.ino & LAYER_INO, ..*now }
    }
}

/// The identity of a file.
pub fn identity_of(stat: &Stat) -> Identity {
    let nanoseconds = |seconds: i64, rest: u64| {
        seconds.wrapping_mul(1_000_000_000).wrapping_add(rest.cast_signed())
    };
    Identity {
        ino: stat.st_ino,
        size: stat.st_size.cast_unsigned(),
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_still_the_same_when_an_overlay_adds_the_layer_to_its_number() {
        let learned = Identity { ino: 5, size: 1, mtime_ns: 2, ctime_ns: 3 };
        for (now, expected) in [
            (learned, true),
            (Identity { ino: 5 | 1 << 63, ..learned }, true),
            (Identity { ino: 5 | 1 << 40, ..learned }, false),
            (Identity { ino: 6, ..learned }, false),
            (Identity { ino: 5 | 1 << 63, ctime_ns: 4, ..learned }, false),
        ] {
            assert_eq!(learned.is_still(&now), expected, "{now:?}");
        }
    }
}
