//! Relocations that are a large part of what a start reads of a file: packed, they are hardly any of
//! it.

use super::found::{Found, json_path};
use crate::advice::{Measure, Rule, Start};
use crate::facts::Facts;
use crate::observed::sum;
use crate::text::{number, path, percent, size, time};
use headstart::replay::benefit::WINDOW;
use headstart::replay::model::Model;
use std::collections::BTreeMap;

/// From this part of the bytes on.
const LEAST_PERCENT: u64 = 5;
/// What a packed relocation saves with a hot cache, in ns: 3.8 with Chromium, 9.2 with clang
/// (doc/advice.md).
const SAVED_NS: f64 = 3.8;
/// Bytes that the kernel maps at once, and so the least that a fault stands for.
const FAULT_AROUND: u64 = 64 << 10;

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    // Bytes that the start touches of each file, and its waits.
    let mut files = BTreeMap::<_, (u64, u64)>::new();
    for part in &facts.observed.parts {
        let (bytes, majors) = files.entry(&part.path).or_default();
        *bytes += part.bytes(FAULT_AROUND);
        *majors += sum(part.touches.iter().filter(|touch| touch.is_major)).count;
    }
    let found = files.into_iter().filter_map(|(file, (bytes, majors))| {
        let known = facts.files.get(file)?;
        let table = known.relocations?;
        let read = bytes.min(known.size).max(table.bytes);
        if table.bytes.saturating_mul(100) < read.saturating_mul(LEAST_PERCENT) {
            return None;
        }
        let hot = table.packed as f64 * SAVED_NS;
        // Without major faults the file was in memory.
        let model = known.model.filter(|_| majors > 0);
        let cold = model.map_or(0.0, |model| read_ns(&model, table.saved));
        let mut formula = format!("{} × {SAVED_NS} ns", number(table.packed));
        if cold > 0.0 {
            formula += &format!(" + {} to read {}", time(cold as u64), size(table.saved));
        }
        Some(Found {
            rule: Rule::Relocations,
            file: json_path(file),
            evidence: format!(
                "{} of the {} that the start reads of it are relocations ({}); packed they are {} less",
                size(table.bytes),
                size(read),
                percent(table.bytes, read),
                size(table.saved),
            ),
            start: Start::Recorded,
            gain_ns: hot + cold,
            formula,
            command: format!("sudo headstart elf repack {}", path(file)),
            note: String::new(),
            lowers: Some(Measure { file: json_path(file), ..Measure::default() }),
        })
    });
    found.collect()
}

/// How long a device takes for so many bytes, in windows of the kernel's readahead.
fn read_ns(model: &Model, bytes: u64) -> f64 {
    let windows = bytes.div_ceil(WINDOW) as f64;
    windows * f64::from(model.next_us) * 1e3
        + bytes as f64 * 1e3 / f64::from(model.bandwidth_mb_s.max(1))
}

#[cfg(test)]
mod tests {
    use super::super::examples::{CLOUD, facts, part};
    use super::*;
    use crate::facts::{FileFacts, Relocations};
    use headstart_faults::tables::Segment;

    #[test]
    fn a_table_of_five_percent_of_what_is_read_is_packed() {
        // 320 windows of 64 KiB are 20 MiB.
        let found = |bytes, packed, ns, model| {
            let mut facts = facts(vec![part(Segment::Rodata, (0..320).map(|n| (16 * n, ns)))]);
            let relocations = Some(Relocations { bytes, saved: bytes, packed });
            let file = FileFacts { size: 1 << 30, relocations, model, ..FileFacts::default() };
            facts.files.insert("/lib/x.so".into(), file);
            apply(&facts).pop().map(|found| found.gain_ns as u64)
        };
        let mib = 1 << 20;
        for (name, bytes, ns, model, gain) in [
            ("hot", mib, 2000, Some(CLOUD), Some(3_800_000)),
            ("cold", mib, 500_000, Some(CLOUD), Some(3_800_000 + 8 * 5_000_000 + 8_388_608)),
            ("device not measured", mib, 500_000, None, Some(3_800_000)),
            ("a small table", mib - 1, 2000, None, None),
        ] {
            assert_eq!(found(bytes, 1_000_000, ns, model), gain, "{name}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_packed_has_no_advice() {
        let mut facts = facts(vec![part(Segment::Rodata, [(0, 2000)])]);
        assert!(apply(&facts).is_empty());
        facts.files.insert("/lib/x.so".into(), FileFacts::default());
        assert!(apply(&facts).is_empty());
    }
}
