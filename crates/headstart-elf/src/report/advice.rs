//! What to do about what a file costs, with the flags of each linker.

use super::counts::Counts;
use super::layout::{HashStyle, LargeFolios, Layout};
use crate::image::Image;
use crate::repack::Change;
use serde::Serialize;

/// Tables below that are one page or two.
const WORTH_PACKING: u64 = 4096;
/// Initialised pages that relocations copy, from which on that is worth a word: 4 MiB.
const MANY_PAGES: u64 = 1024;

/// Something to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Advice {
    /// What is the matter.
    pub finding: String,
    /// How to fix it: with what, and the flags or the command.
    pub fixes: Vec<(&'static str, &'static str)>,
}

/// Flags that pack relative relocations.
const PACK: [(&str, &str); 7] = [
    ("without relinking", "headstart elf repack --in-place FILE"),
    ("ld (x86 2.38, aarch64 2.43)", "-Wl,-z,pack-relative-relocs"),
    ("lld (15)", "-Wl,-z,pack-relative-relocs"),
    ("mold", "-Wl,-z,pack-relative-relocs"),
    ("gold", "can't; link with another one"),
    ("rustc", "-C link-arg=-Wl,-z,pack-relative-relocs"),
    ("go", "-ldflags='-linkmode=external -extldflags=-Wl,-z,pack-relative-relocs'"),
];
/// Flags that make address and offset equal modulo 2 MiB, and the load bias a multiple of it.
const ALIGN: [(&str, &str); 8] = [
    ("ld", "-Wl,-z,max-page-size=2097152"),
    ("lld", "-Wl,-z,max-page-size=2097152"),
    (
        "lld, with a file that is larger by zeros",
        "-Wl,-z,separate-loadable-segments -Wl,-z,max-page-size=2097152",
    ),
    ("mold", "-Wl,-z,max-page-size=2097152"),
    ("gold", "-Wl,-z,max-page-size=2097152"),
    ("rustc", "-C link-arg=-Wl,-z,max-page-size=2097152"),
    ("go", "-ldflags='-linkmode=external -extldflags=-Wl,-z,max-page-size=2097152'"),
    ("see also", "headstart replay --large-folios"),
];
const HASH: [(&str, &str); 6] = [
    ("ld", "-Wl,--hash-style=gnu"),
    ("lld", "-Wl,--hash-style=gnu"),
    ("mold", "-Wl,--hash-style=gnu"),
    ("gold", "-Wl,--hash-style=gnu"),
    ("rustc", "-C link-arg=-Wl,--hash-style=gnu"),
    ("go", "-ldflags='-linkmode=external -extldflags=-Wl,--hash-style=gnu'"),
];
const FEWER: [(&str, &str); 5] = [
    ("C, C++", "tables of offsets instead of pointers; -fvisibility=hidden"),
    ("C, C++, programs", "-no-pie, where address randomisation is not wanted"),
    ("ld, lld, mold, gold", "-Wl,--gc-sections, with -ffunction-sections -fdata-sections"),
    ("rustc, programs", "-C relocation-model=static, where address randomisation is not wanted"),
    ("go", "-buildmode=exe instead of pie"),
];

/// The advice for a file; `packing` is what `headstart elf repack` would do.
pub fn advise(
    image: &Image,
    counts: &Counts,
    packing: Option<&Change>,
    layout: &Layout,
) -> Vec<Advice> {
    let mut out = Vec::new();
    let mut add = |finding: String, fixes: &[(&'static str, &'static str)]| {
        out.push(Advice { finding, fixes: fixes.to_vec() });
    };
    let relative = counts.relative.saturating_sub(counts.unaligned);
    let saved = (relative * 24).saturating_sub(counts.as_relr_bytes);
    if saved >= WORTH_PACKING {
        let finding = format!(
            "{} relative relocations take {} bytes; packed (DT_RELR) they take {}",
            relative,
            relative * 24,
            counts.as_relr_bytes
        );
        // Without repacking where that can't be done.
        let from = usize::from(packing.is_none());
        add(finding, PACK.get(from..).unwrap_or(&[]));
    }
    match layout.large_folios {
        LargeFolios::NotCongruent => {
            let code = layout.segments.iter().filter(|one| one.flags.ends_with('x'));
            let congruent = code.map(|one| one.congruent).max().unwrap_or(1);
            add(
                format!(
                    "code can't be mapped by large folios of 2 MiB: its addresses and file \
                     offsets are equal modulo {congruent} bytes only"
                ),
                &ALIGN,
            );
        }
        LargeFolios::NotAligned => add(
            "code is hardly ever mapped by large folios of 2 MiB: the program is loaded at \
             any multiple of its alignment, which is less"
                .into(),
            &ALIGN,
        ),
        LargeFolios::Small | LargeFolios::Possible => {}
    }
    if layout.hash == HashStyle::Sysv && image.dynamic.is_some() {
        add(
            "symbols are looked up by the old hash table (DT_HASH), without a filter".into(),
            &HASH,
        );
    }
    if counts.pages_written >= MANY_PAGES {
        let finding = format!(
            "relocations write {} pages, each a private copy that starts make, packed or not",
            counts.pages_written
        );
        add(finding, &FEWER);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_linker_has_its_flag() {
        for fixes in [&PACK[..], &ALIGN, &HASH] {
            for linker in ["ld", "lld", "mold", "gold", "rustc", "go"] {
                let is_it = |with: &str| with.split([' ', ',']).next() == Some(linker);
                assert!(fixes.iter().any(|(with, _)| is_it(with)), "{linker} in {fixes:?}");
            }
        }
    }
}
