//! The names of relocation kinds, as in the psABI of each processor.

use crate::image::Machine;
use object::elf;

/// The kind that adds the load bias.
pub fn relative(machine: Machine) -> Option<u32> {
    match machine {
        Machine::X86_64 => Some(elf::R_X86_64_RELATIVE.0),
        Machine::Aarch64 => Some(elf::R_AARCH64_RELATIVE.0),
        Machine::Riscv64 => Some(elf::R_RISCV_RELATIVE.0),
        // R_LARCH_RELATIVE
        Machine::Loongarch64 => Some(3),
        Machine::Other(_) => None,
    }
}

/// How a kind is called, without the prefix of the processor; `None` for rare ones.
pub fn name(machine: Machine, kind: u32) -> Option<&'static str> {
    const X86_64: [(u32, &str); 11] = [
        (1, "64"),
        (5, "COPY"),
        (6, "GLOB_DAT"),
        (7, "JUMP_SLOT"),
        (8, "RELATIVE"),
        (16, "DTPMOD64"),
        (17, "DTPOFF64"),
        (18, "TPOFF64"),
        (36, "TLSDESC"),
        (37, "IRELATIVE"),
        (38, "RELATIVE64"),
    ];
    const AARCH64: [(u32, &str); 10] = [
        (257, "ABS64"),
        (1024, "COPY"),
        (1025, "GLOB_DAT"),
        (1026, "JUMP_SLOT"),
        (1027, "RELATIVE"),
        (1028, "DTPMOD64"),
        (1029, "DTPREL64"),
        (1030, "TPREL64"),
        (1031, "TLSDESC"),
        (1032, "IRELATIVE"),
    ];
    const RISCV64: [(u32, &str); 8] = [
        (2, "64"),
        (3, "RELATIVE"),
        (4, "COPY"),
        (5, "JUMP_SLOT"),
        (7, "DTPMOD64"),
        (9, "DTPREL64"),
        (11, "TPREL64"),
        (58, "IRELATIVE"),
    ];
    const LOONGARCH64: [(u32, &str); 8] = [
        (2, "64"),
        (3, "RELATIVE"),
        (4, "COPY"),
        (5, "JUMP_SLOT"),
        (7, "DTPMOD64"),
        (9, "DTPREL64"),
        (11, "TPREL64"),
        (12, "IRELATIVE"),
    ];
    let names: &[(u32, &str)] = match machine {
        Machine::X86_64 => &X86_64,
        Machine::Aarch64 => &AARCH64,
        Machine::Riscv64 => &RISCV64,
        Machine::Loongarch64 => &LOONGARCH64,
        Machine::Other(_) => &[],
    };
    names.iter().find(|(one, _)| *one == kind).map(|(_, name)| *name)
}

/// Whether a kind writes to two words (a TLS descriptor).
pub fn writes_two_words(machine: Machine, kind: u32) -> bool {
    name(machine, kind) == Some("TLSDESC")
}

/// Whether a kind copies a variable of another file.
pub fn copies(machine: Machine, kind: u32) -> bool {
    name(machine, kind) == Some("COPY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relative_kind_of_each_processor_is_called_so() {
        for machine in [Machine::X86_64, Machine::Aarch64, Machine::Riscv64, Machine::Loongarch64] {
            let kind = relative(machine).unwrap();
            assert_eq!(name(machine, kind), Some("RELATIVE"), "{machine:?}");
        }
        assert!(writes_two_words(Machine::Aarch64, 1031));
        assert!(copies(Machine::X86_64, 5));
        assert_eq!(relative(Machine::Other(3)), None);
    }
}
