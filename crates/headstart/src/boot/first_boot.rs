//! The first boot of a machine, without packs: the initramfs reads the recorder's program
//! sequentially before anything else uses the disk.
//!
//! Later boots have it in their packs. Without this it is read in pieces in parallel with the boot,
//! and a rotational disk seeks for each piece. The boot waits for it: reading it in parallel is in
//! pieces again (doc/boot.md has the figures).

use super::install::recorder;
use super::machine::Machine;
use super::mounted::Mounted;
use crate::host::mounts::MountsError;
use rustix::fs::Advice;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// How long the boot waits at most.
pub const LIMIT: Duration = Duration::from_millis(100);
/// Bytes that are read at once: the kernel's usual readahead.
const PIECE: usize = 128 << 10;

/// Reads the recorder's program, for at most the limit, if no pack of these phases is of a
/// mounted file system. Returns whether it did.
pub fn read_recorder(machine: &Machine, phases: &[String], limit: Duration) -> bool {
    // A failure costs a slower boot at worst.
    !is_prefetched(machine, phases).unwrap_or(true) && read(machine, limit).is_ok()
}

/// Whether something will be prefetched. Packs of other machines and broken ones do not
/// count.
fn is_prefetched(machine: &Machine, phases: &[String]) -> Result<bool, MountsError> {
    let mut mounted = Mounted::default();
    mounted.look()?;
    // It stops at the first, since the boot waits.
    let files = machine.packs().into_iter().filter(|file| phases.contains(&file.phase));
    let mut packs = files.filter_map(|file| file.read(machine).ok());
    Ok(packs.any(|(of, _)| mounted.has(&of)))
}

fn read(machine: &Machine, limit: Duration) -> io::Result<()> {
    let began = Instant::now();
    let mut file = File::open(machine.place(&recorder(machine)))?;
    rustix::fs::fadvise(&file, 0, None, Advice::Sequential)?;
    let mut piece = vec![0; PIECE];
    while file.read(&mut piece)? > 0 && began.elapsed() < limit {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::install::enable;
    use crate::boot::test_packs::{away, here, keep_pack};
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_recorder_is_read_where_no_pack_is_of_something_that_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        let read = || read_recorder(&machine, &["system".into()], Duration::ZERO);
        assert!(!read(), "there is no program yet");
        let program = machine.place("/usr/bin/headstart");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, [7; 9000]).unwrap();
        assert!(read(), "there is no pack");
        let here_too = machine.place("/usr/local/bin/headstart");
        enable(&machine, Path::new("/usr/local/bin/headstart"), "").unwrap();
        assert!(!read(), "it is not the recorder's");
        fs::create_dir_all(here_too.parent().unwrap()).unwrap();
        fs::rename(&program, &here_too).unwrap();
        assert!(read(), "it is, as its unit says");
        for (fs, expected) in [(away(), true), (here("proc"), false)] {
            let path = machine.pack("system", &fs);
            keep_pack(&machine, "system", &fs);
            assert_eq!(read(), expected, "{fs:?}");
            fs::write(path, "cut").unwrap();
            assert!(read(), "the pack is broken");
        }
        fs::write(machine.state().join("system.pack"), "of an older form").unwrap();
        assert!(read(), "what is not named like a pack is none");
    }
}
