//! Finds a system call instruction in a process: in the vdso(7), which the kernel maps into each.
//! x86-64 only.

use crate::host::contents;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// `AT_SYSINFO_EHDR` of getauxval(3).
const SYSINFO_EHDR: u64 = 33;
/// `syscall` (Intel SDM volume 2).
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// More than any vdso has.
const LARGEST: usize = 16 << 10;

/// The address of such an instruction in a process.
pub fn syscall_in(process: i32) -> Option<u64> {
    let base = base(&contents::bytes(format!("/proc/{process}/auxv")).ok()?)?;
    let memory = File::open(format!("/proc/{process}/mem")).ok()?;
    let mut code = vec![0; LARGEST];
    // It ends at the end of the mapping.
    let bytes = memory.read_at(&mut code, base).ok()?;
    let at = code[..bytes].windows(SYSCALL.len()).position(|two| two == SYSCALL)?;
    Some(base + at as u64)
}

/// Where the vdso begins, by /proc/PID/auxv: pairs of numbers.
fn base(auxv: &[u8]) -> Option<u64> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    auxv.chunks_exact(16).find_map(|pair| {
        let (key, value) = pair.split_at(8);
        (number(key)? == SYSINFO_EHDR).then(|| number(value))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_is_found_among_other_entries() {
        let auxv = |pairs: &[(u64, u64)]| {
            pairs.iter().flat_map(|(k, v)| [k.to_ne_bytes(), v.to_ne_bytes()]).flatten().collect()
        };
        let with: Vec<u8> = auxv(&[(6, 4096), (SYSINFO_EHDR, 0x7fff_0000), (0, 0)]);
        assert_eq!(base(&with), Some(0x7fff_0000));
        let without: Vec<u8> = auxv(&[(6, 4096), (0, 0)]);
        assert_eq!(base(&without), None);
        assert_eq!(base(&with[..20]), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn this_process_has_an_instruction_for_system_calls() {
        assert!(syscall_in(std::process::id() as i32).is_some());
        assert_eq!(syscall_in(-1), None);
    }
}
