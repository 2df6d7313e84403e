//! Identities as the kernel gives them in trace events.

use std::fmt;

/// A super block's device number in the kernel's own encoding,
/// `major << 20 | minor` (`include/linux/kdev_t.h`), as trace events carry it.
///
/// This is `s_dev`, which for btrfs is not the `st_dev` of a subvolume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dev(pub u32);

impl Dev {
    const MINOR_BITS: u32 = 20;

    /// From major and minor numbers; minors have 20 bits.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self(major << Self::MINOR_BITS | minor & ((1 << Self::MINOR_BITS) - 1))
    }

    /// From the `st_dev` or `st_rdev` of stat(2), which user space encodes
    /// otherwise.
    pub fn from_stat(dev: u64) -> Self {
        Self::new(rustix::fs::major(dev), rustix::fs::minor(dev))
    }

    /// The major number.
    pub const fn major(self) -> u32 {
        self.0 >> Self::MINOR_BITS
    }

    /// The minor number.
    pub const fn minor(self) -> u32 {
        self.0 & ((1 << Self::MINOR_BITS) - 1)
    }
}

impl fmt::Display for Dev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major(), self.minor())
    }
}

impl std::str::FromStr for Dev {
    type Err = std::num::ParseIntError;

    /// From the form `major:minor`, as sysfs and mountinfo write it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self::new(major.parse()?, minor.parse()?))
    }
}

impl fmt::Debug for Dev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dev({self})")
    }
}

/// An inode of one super block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InodeId {
    /// The super block's device number.
    pub dev: Dev,
    /// The inode number.
    pub ino: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minors_of_twenty_bits_survive_both_encodings() {
        for (major, minor) in [(254, 3), (0, 0xfffff), (259, 70_000), (8, 255)] {
            let dev = Dev::new(major, minor);
            assert_eq!((dev.major(), dev.minor()), (major, minor));
            assert_eq!(Dev::from_stat(rustix::fs::makedev(major, minor)), dev);
        }
    }
}
