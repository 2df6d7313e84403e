//! The kernel's readahead window of a device: too small where sequential reads wait for each window, too
//! large where it reads what nobody touches.

use super::found::Found;
use crate::advice::{Faults, Measure, Rule, Start};
use crate::facts::Facts;
use crate::observed::{PAGE, is_sequential, sum};
use crate::text::{number, percent, size, time, word};
use headstart::replay::benefit::WINDOW;
use headstart::replay::model::Model;
use headstart_faults::tables::Sum;
use std::collections::BTreeMap;

/// Fewer waits gain too little.
const LEAST: u64 = 8;
/// The largest window that is advised, in bytes.
const LARGEST: u64 = 4 << 20;
/// From this part of what was read on, untouched pages are too many.
const UNTOUCHED_PERCENT: u64 = 25;

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    too_small(facts).into_iter().chain(too_large(facts)).collect()
}

/// For each setting, the waits of sequential reads.
fn too_small(facts: &Facts) -> Vec<Found> {
    let mut by_setting: BTreeMap<&str, (u64, Model, Sum)> = BTreeMap::new();
    for part in &facts.observed.parts {
        let Some(file) = facts.files.get(&part.path) else { continue };
        let (Some((window, setting)), Some(model)) = (&file.readahead, file.model) else {
            continue;
        };
        let steps = part.waited_steps();
        let on = steps.iter().filter(|step| is_sequential(step, window / PAGE));
        let more = sum(on.map(|step| &step.touch));
        let (.., all) = by_setting.entry(setting).or_insert((*window, model, Sum::default()));
        all.count += more.count;
        all.time_ns = all.time_ns.saturating_add(more.time_ns);
    }
    let advice = by_setting.into_iter().filter_map(|(setting, (window, model, waits))| {
        let better = window_for(&model);
        if waits.count < LEAST || window == 0 || better < window * 2 {
            return None;
        }
        let (now, then) = (ns_per_byte(&model, window), ns_per_byte(&model, better));
        Some(Found {
            rule: Rule::Readahead,
            file: None,
            evidence: format!(
                "{} faults go on where the readahead of {} ended, and waited {}; the device has {} \
                 and {} MB/s",
                number(waits.count),
                size(window),
                time(waits.time_ns),
                time(u64::from(model.latency_us) * 1000),
                model.bandwidth_mb_s,
            ),
            start: Start::Recorded,
            gain_ns: waits.time_ns as f64 * (1.0 - then / now),
            formula: format!(
                "{} × (1 − {then:.2}/{now:.2} ns a byte with {} instead of {})",
                time(waits.time_ns),
                size(better),
                size(window)
            ),
            command: set(better, setting),
            note: String::new(),
            lowers: Some(Measure { faults: Faults::All, ..Measure::default() }),
        })
    });
    advice.collect()
}

/// The window with which half of the bandwidth is used: bandwidth × latency, as a power of two.
fn window_for(model: &Model) -> u64 {
    let bytes = u64::from(model.bandwidth_mb_s).saturating_mul(model.latency_us.into());
    bytes.clamp(WINDOW, LARGEST).next_power_of_two()
}

fn ns_per_byte(model: &Model, window: u64) -> f64 {
    let latency = f64::from(model.latency_us) * 1e3 / window as f64;
    latency + 1e3 / f64::from(model.bandwidth_mb_s.max(1))
}

fn set(bytes: u64, setting: &str) -> String {
    format!("echo {} | sudo tee {}", bytes >> 10, word(setting))
}

/// What a recorded start brought in and did not touch.
fn too_large(facts: &Facts) -> Option<Found> {
    let learned = facts.learned.as_ref()?;
    let (run, model) = (learned.last_run.as_ref()?, facts.model?);
    let (window, setting) = main_setting(facts)?;
    let totals = &run.totals;
    let read = totals.missing.saturating_add(totals.late).saturating_add(totals.untouched);
    if *window <= WINDOW || totals.untouched.saturating_mul(100) < read.max(1) * UNTOUCHED_PERCENT {
        return None;
    }
    let bytes = totals.untouched.saturating_mul(run.page_size);
    Some(Found {
        rule: Rule::Readahead,
        file: None,
        evidence: format!(
            "the last learned start read {} that it did not touch ({} of what it read itself), with a \
             readahead of {}",
            size(bytes),
            percent(totals.untouched, read),
            size(*window),
        ),
        start: Start::Cold,
        gain_ns: bytes as f64 * 1e3 / f64::from(model.bandwidth_mb_s.max(1)),
        formula: format!("{} at {} MB/s", size(bytes), model.bandwidth_mb_s),
        command: set(WINDOW, setting),
        note: String::new(),
        lowers: None,
    })
}

/// The setting that most files with faults have.
fn main_setting(facts: &Facts) -> Option<&(u64, String)> {
    let mut files: BTreeMap<&(u64, String), u64> = BTreeMap::new();
    let measured = facts.files.values().filter(|file| file.model.is_some());
    for setting in measured.filter_map(|file| file.readahead.as_ref()) {
        *files.entry(setting).or_default() += 1;
    }
    files.into_iter().max_by_key(|(_, files)| *files).map(|(setting, _)| setting)
}

#[cfg(test)]
mod tests {
    use super::super::examples::{CLOUD, facts, part};
    use super::*;
    use crate::facts::{FileFacts, Learned};
    use headstart::outcome::last_run::{LastRun, Totals};
    use headstart_faults::tables::Segment;

    fn known(window: u64) -> FileFacts {
        let readahead = Some((window, "/sys/class/bdi/8:1/read_ahead_kb".into()));
        FileFacts { readahead, model: Some(CLOUD), ..FileFacts::default() }
    }

    #[test]
    fn a_window_that_sequential_reads_wait_for_is_enlarged() {
        for (name, window, step, advised) in [
            ("small", 128 << 10, 32, true),
            ("large enough", 1 << 20, 256, false),
            ("scattered", 128 << 10, 5000, false),
        ] {
            let touches = (0..20).map(|n| (step * n, 6_000_000));
            let mut facts = facts(vec![part(Segment::Rodata, touches)]);
            facts.files.insert("/lib/x.so".into(), known(window));
            let found = apply(&facts).pop();
            assert_eq!(found.is_some(), advised, "{name}");
            if let Some(found) = found {
                assert!(found.command.starts_with("echo 1024 | sudo tee /sys/class/bdi/8:1/"));
                // 46.1 ns a byte now, 12.8 then.
                assert!((found.gain_ns / (19.0 * 6e6) - 0.723).abs() < 0.01, "{}", found.formula);
            }
        }
    }

    #[test]
    fn the_setting_is_that_of_most_files() {
        let mut facts = Facts::default();
        for number in 0..20 {
            let disk = if number % 3 == 0 { "8:16" } else { "8:0" };
            let readahead = Some((1 << 20, disk.to_owned()));
            let file = FileFacts { readahead, model: Some(CLOUD), ..FileFacts::default() };
            facts.files.insert(format!("/{number}").into(), file);
        }
        facts.files.insert("/not-measured".into(), FileFacts::default());
        assert_eq!(main_setting(&facts).map(|(_, disk)| &**disk), Some("8:0"));
        assert_eq!(main_setting(&Facts::default()), None);
    }

    #[test]
    fn a_window_that_reads_much_that_nobody_touches_is_made_smaller() {
        for (window, untouched, advised) in
            [(8 << 20, 1000, true), (8 << 20, 100, false), (128 << 10, 1000, false)]
        {
            let mut facts = Facts { model: Some(CLOUD), ..Facts::default() };
            facts.files.insert("/lib/x.so".into(), known(window));
            let totals = Totals { missing: 900, late: 100, untouched, ..Totals::default() };
            let last_run = Some(LastRun { totals, page_size: 4096, ..LastRun::default() });
            facts.learned = Some(Learned { last_run, ..Learned::default() });
            let gain = apply(&facts).pop().map(|found| found.gain_ns.round() as u64);
            assert_eq!(gain, advised.then_some(32_768_000), "{window} {untouched}");
        }
    }
}
