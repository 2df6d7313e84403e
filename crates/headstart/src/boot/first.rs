//! The first boot of a machine, of which nothing is known but that it will be recorded:
//! the initramfs reads the recorder's program in one go before anything else wants the disk.
//!
//! Later boots have it in their packs. Without this it is read in pieces while the boot
//! reads too, and an arm moves for each of them. Waiting for it wins over reading it
//! beside the boot, which is in pieces again (doc/boot.md has the figures).

use super::install::PACKAGED;
use super::machine::Machine;
use rustix::fs::Advice;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// How long the boot waits at most.
pub const LIMIT: Duration = Duration::from_millis(100);
/// Bytes that are read at once: what the kernel reads ahead by itself.
const PIECE: usize = 128 << 10;

/// Reads the recorder's program, as far as that goes within the limit, when none of these
/// phases has a pack. Whether it did.
pub fn read_recorder(machine: &Machine, phases: &[String], limit: Duration) -> bool {
    let has_pack = phases.iter().flat_map(|phase| machine.packs(phase)).any(|pack| pack.exists());
    // What fails costs a slower boot at worst.
    !has_pack && read(machine, limit).is_ok()
}

fn read(machine: &Machine, limit: Duration) -> io::Result<()> {
    let began = Instant::now();
    let mut file = File::open(machine.place(PACKAGED))?;
    rustix::fs::fadvise(&file, 0, None, Advice::Sequential)?;
    let mut piece = vec![0; PIECE];
    while file.read(&mut piece)? > 0 && began.elapsed() < limit {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_recorder_is_read_where_no_phase_has_a_pack() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        let read = || read_recorder(&machine, &["system".into()], Duration::ZERO);
        assert!(!read(), "there is no program yet");
        let program = machine.place(PACKAGED);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, [7; 9000]).unwrap();
        assert!(read());
        let pack = machine.pack("system");
        fs::create_dir_all(pack.parent().unwrap()).unwrap();
        fs::write(pack, "").unwrap();
        assert!(!read(), "a pack has it");
    }
}
