//! What headstart itself would save: the waits for files, less what the device needs to read the same.
//! Where waits were not recorded, those of major faults, and of minor ones that took as long as a wait.

use super::found::Found;
use crate::advice::{Faults, Measure, Rule, Start};
use crate::facts::{Facts, FileWaits};
use crate::observed::sum;
use crate::text::{number, percent, size, time};
use headstart::replay::benefit::{USUAL_PERCENT, WINDOW};
use headstart::replay::model::Model;
use headstart::replay::strategy::Order;

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    of_start(facts).into_iter().collect()
}

fn of_start(facts: &Facts) -> Option<Found> {
    let (waits, bytes, what, lowers) = match facts.waits {
        Some(FileWaits { sum, read_bytes }) => {
            let waits = FileWaits::KINDS.map(|kind| kind.name().to_owned()).to_vec();
            (sum, read_bytes, "waits for files", Measure { waits, ..Measure::default() })
        }
        None => {
            let touches = facts.observed.parts.iter().flat_map(|part| &part.touches);
            // Minor ones: without them, a start that reads forwards waits for nothing.
            let in_flight = sum(touches.filter(|touch| touch.is_wait() && !touch.is_major));
            let mut waits = facts.total.major;
            waits.count = waits.count.saturating_add(in_flight.count);
            waits.time_ns = waits.time_ns.saturating_add(in_flight.time_ns);
            let bytes = waits.count.saturating_mul(WINDOW);
            let (what, faults) = match in_flight.count {
                0 => ("major faults", Faults::Major),
                _ => ("faults that waited", Faults::All),
            };
            (waits, bytes, what, Measure { faults, ..Measure::default() })
        }
    };
    if waits.count == 0 || facts.command.is_empty() {
        return None;
    }
    let read = facts.model.map(|model| read_ns(&model, waits.count, bytes));
    let usual = waits.time_ns as f64 * USUAL_PERCENT as f64 / 100.0;
    let most = waits.time_ns as f64 - read.unwrap_or(0.0);
    let mut formula = format!("{} × {USUAL_PERCENT} %, the usual part", time(waits.time_ns));
    if let Some(read) = read.filter(|_| most < usual) {
        let (bytes, read) = (size(bytes), time(read as u64));
        formula = format!("{} − {read} in which the device delivers {bytes}", time(waits.time_ns));
    } else if read.is_none() {
        formula += "; the device was not measured (headstart doctor --reprobe)";
    }
    Some(Found {
        rule: Rule::Prefetch,
        file: None,
        evidence: format!(
            "{} {what} took {}, {} of the start",
            number(waits.count),
            time(waits.time_ns),
            percent(waits.time_ns, facts.wall_ns),
        ),
        start: Start::Recorded,
        gain_ns: usual.min(most),
        formula,
        command: format!("sudo headstart run -- {}", facts.command_line()),
        note: String::new(),
        lowers: Some(lowers),
    })
}

/// How long the device needs for so many requests with so many bytes together.
fn read_ns(model: &Model, requests: u64, bytes: u64) -> f64 {
    let moving = bytes as f64 * 1e3 / f64::from(model.bandwidth_mb_s.max(1));
    if model.depth == 1 || model.order() == Order::Elevator {
        return requests as f64 * f64::from(model.next_us) * 1e3 + moving;
    }
    moving.max(requests as f64 * 1e9 / f64::from(model.request_rate()))
}

#[cfg(test)]
mod tests {
    use super::super::examples::{CLOUD, facts, part};
    use super::*;
    use headstart_faults::tables::{Row, Segment, Sum};

    #[test]
    fn a_minor_fault_that_took_as_long_as_a_wait_is_one() {
        let touches = (0..20).map(|page| (page, if page < 10 { 90_000 } else { 2_000 }));
        let found = apply(&facts(vec![part(Segment::Rodata, touches)])).pop().unwrap();
        assert!(found.evidence.starts_with("10 faults that waited took 900"), "{}", found.evidence);
        assert_eq!(found.gain_ns as u64, 675_000);
    }

    #[test]
    fn of_waits_the_usual_part_is_gained_or_what_the_device_leaves() {
        const EMMC: Model = Model::of(330, 330, 150, 1, 3000);
        let ms = 1_000_000;
        for (name, count, model, gain) in [
            ("network volume", 100, Some(CLOUD), Some(450 * ms)),
            ("not measured", 100, None, Some(450 * ms)),
            // 200 × 330 µs, and 26.2 MB at 150 MB/s.
            ("eMMC", 200, Some(EMMC), Some(600 * ms - 66 * ms - 174_762_667)),
            ("none", 0, Some(CLOUD), None),
        ] {
            let major = Sum { count, time_ns: 600 * ms };
            let total = Row { major, ..Row::default() };
            let facts = Facts { model, total, command: vec!["x".into()], ..Facts::default() };
            let found = apply(&facts).pop().map(|found| found.gain_ns as u64);
            assert_eq!(found, gain, "{name}");
        }
    }

    #[test]
    fn waits_of_reads_count_where_they_were_recorded() {
        let sum = Sum { count: 100, time_ns: 1_000_000_000 };
        let waits = Some(FileWaits { sum, read_bytes: 50_000_000 });
        let command = vec!["x".into()];
        let found = apply(&Facts { waits, command, model: Some(CLOUD), ..Facts::default() }).pop();
        // 50 MB at 125 MB/s.
        let found = found.map(|found| (found.gain_ns as u64, found.lowers.unwrap().waits.len()));
        assert_eq!(found, Some((600_000_000, 6)));
    }

    #[test]
    fn a_process_that_runs_already_is_not_started_by_headstart() {
        let major = Sum { count: 9, time_ns: 1 << 30 };
        let facts = Facts { total: Row { major, ..Row::default() }, ..Facts::default() };
        assert!(apply(&facts).is_empty());
    }
}
