//! Where the files of a process lie in its memory, by the text of `/proc/PID/maps`.

use headstart::host::id::InodeId;
use headstart::host::maps::mapped_files;

/// A part of a file whose bytes a process may execute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Module {
    /// Which of the known files.
    pub file: usize,
    /// Where it begins in memory.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Where it begins in the file.
    pub offset: u64,
}

impl Module {
    /// The offset in the file of an address.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.address).filter(|inside| *inside < self.bytes)?;
        self.offset.checked_add(inside)
    }

    /// The address of an offset in the file, which lies in this part.
    pub fn address_of(&self, offset: u64) -> u64 {
        self.address.wrapping_add(offset.wrapping_sub(self.offset))
    }
}

/// The modules in the text of a maps file. `file` says which of the known files one is, if any.
pub fn modules(maps: &[u8], mut file: impl FnMut(InodeId, &[u8]) -> Option<usize>) -> Vec<Module> {
    let executable = mapped_files(maps).filter(|mapped| mapped.may(b'x'));
    executable
        .filter_map(|mapped| {
            let file = file(mapped.id, mapped.path)?;
            let (address, bytes, offset) = (mapped.address, mapped.bytes, mapped.offset);
            Some(Module { file, address, bytes, offset })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_offsets_of_executable_parts_are_found_both_ways() {
        let maps = b"5000-6000 r--p 00000000 00:2c 17 /bin/a\n\
            6000-8000 r-xp 00001000 00:2c 17 /bin/a\n\
            9000-a000 r-xp 00000000 00:2c 18 /lib/b\n\
            b000-c000 r-xp 00000000 00:00 0 [vdso]\n";
        let only_a = |id: InodeId, path: &[u8]| (id.ino == 17 && path == b"/bin/a").then_some(3);
        let found = modules(maps, only_a);
        let module = Module { file: 3, address: 0x6000, bytes: 0x2000, offset: 0x1000 };
        assert_eq!(found, [module]);
        assert_eq!(module.offset_of(0x6010), Some(0x1010));
        assert_eq!(module.offset_of(0x5fff), None);
        assert_eq!(module.offset_of(0x8000), None);
        assert_eq!(module.address_of(0x1010), 0x6010);
    }
}
