//! `headstart doctor`: what this machine can do for headstart.

use std::io::{self, Write};

use headstart::doctor::{
    Check, Device, Examination, FileSystem, Lack, LearnedPack, MetadataAhead, PathResolution,
    State, examine, reprobe, verdict,
};
use headstart::replay::model::Model;
use headstart::replay::strategy::Order;
use serde::Serialize;

use crate::exit::ExitStatus;
use crate::output::{self, Align, Colour, Table, harmless};

/// The arguments of `headstart doctor`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Each line has a state: ok; degraded, when headstart works but does less or is slower; \
or missing, when it can't record. The command that fixes it is below.

Exit status: 0 headstart can record and replay; \
4 this user lacks the permission; 5 this kernel lacks a feature.")]
pub struct DoctorArgs {
    /// Probe all devices again: random and sequential reads for up to 0.6 s each
    #[arg(long)]
    reprobe: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// What keeps headstart from recording; null: nothing.
    lack: Option<Lack>,
    #[serde(flatten)]
    found: &'a Examination,
}

/// Runs the verb.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitStatus> {
    let mut found = examine();
    if args.reprobe {
        for (device, error) in reprobe(&found) {
            output::message(format_args!("Can't probe {}: {error}", harmless(&device)));
        }
        found = examine();
    }
    let lack = verdict(&found.checks);
    if args.json {
        let document = Document { schema: "headstart/doctor/3", lack, found: &found };
        output::print_json(&document)?;
    } else {
        output::print(|out| write(out, &found, lack))?;
    }
    Ok(match lack {
        None => ExitStatus::Done,
        Some(Lack::Permission) => ExitStatus::PermissionMissing,
        Some(Lack::Kernel) => ExitStatus::KernelFeatureMissing,
    })
}

fn write(out: &mut dyn Write, found: &Examination, lack: Option<Lack>) -> io::Result<()> {
    write_checks(out, &found.checks)?;
    writeln!(out)?;
    write_file_systems(out, &found.file_systems)?;
    writeln!(out)?;
    write_devices(out, &found.devices)?;
    if !found.packs.is_empty() {
        writeln!(out)?;
        write_packs(out, &found.packs, &found.devices)?;
    }
    let verdict = match lack {
        None => "headstart can record and replay here.",
        Some(Lack::Permission) => "headstart can replay here; to record, it needs more rights.",
        Some(Lack::Kernel) => "headstart can replay here; to record, it needs another kernel.",
    };
    writeln!(out, "\n{verdict}")
}

fn write_checks(out: &mut dyn Write, checks: &[Check]) -> io::Result<()> {
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    for check in checks {
        let (state, colour) = match check.state {
            State::Ok => ("ok      ", Colour::Green),
            State::Degraded => ("degraded", Colour::Yellow),
            State::Missing => ("missing ", Colour::Red),
        };
        let state = output::coloured(state, colour);
        writeln!(out, "{state}  {:width$}  {}", check.id, harmless(&check.meaning))?;
        if let Some(fix) = &check.fix {
            writeln!(out, "{:8}  {:width$}  fix: {}", "", "", harmless(fix))?;
        }
    }
    Ok(())
}

/// A number that may not be known.
fn known(number: Option<u64>) -> String {
    number.map_or_else(|| "?".into(), |n| n.to_string())
}

fn write_file_systems(out: &mut dyn Write, file_systems: &[FileSystem]) -> io::Result<()> {
    let mut table = Table::new([
        ("FILE SYSTEM", Align::Left),
        ("TYPE", Align::Left),
        ("SOURCE", Align::Left),
        ("READAHEAD KiB", Align::Right),
        ("FROM", Align::Left),
        ("INODE TO PATH", Align::Left),
        ("METADATA PREFETCH", Align::Left),
    ]);
    for fs in file_systems {
        let paths = match fs.paths {
            PathResolution::ByHandle => "by handle",
            PathResolution::ByBulkstat => "by bulkstat",
            PathResolution::ByLookup => "by lookup",
            PathResolution::ByWalk => "by walk",
        };
        let metadata = match fs.metadata {
            MetadataAhead::ByDevice => "yes",
            MetadataAhead::ByOpening => "by opening files",
        };
        table.row([
            fs.mount_point.shown(),
            harmless(&fs.kind),
            harmless(&fs.source),
            known(fs.readahead_kb),
            fs.readahead_source.clone().unwrap_or_else(|| "?".into()),
            paths.into(),
            metadata.into(),
        ]);
    }
    table.write(out)
}

fn write_devices(out: &mut dyn Write, devices: &[Device]) -> io::Result<()> {
    let mut table = Table::new([
        ("DEVICE", Align::Left),
        ("NUMBER", Align::Left),
        ("REQUEST KiB", Align::Right),
        ("QUEUE", Align::Right),
        ("ROTATIONAL", Align::Left),
        ("RANDOM READ", Align::Right),
        ("SEQUENTIAL READ", Align::Right),
        ("MB/s", Align::Right),
        ("IOPS", Align::Right),
        ("QUEUE DEPTH", Align::Right),
        ("READ ORDER", Align::Left),
    ]);
    for device in devices {
        let rotational = match device.rotational {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let figure = |of: fn(Model) -> u32| known(device.model.map(|model| u64::from(of(model))));
        let time = |of: fn(Model) -> u32| {
            device.model.map_or_else(|| "?".into(), |m| format!("{:.2} ms", f64::from(of(m)) / 1e3))
        };
        table.row([
            device.name.as_deref().map_or_else(|| "?".into(), harmless),
            device.dev.clone(),
            known(device.request_kb),
            known(device.queue),
            rotational.into(),
            time(|model| model.latency_us),
            time(|model| model.next_us),
            figure(|model| model.bandwidth_mb_s),
            figure(|model| model.request_rate()),
            figure(|model| model.depth),
            match device.model.map(|model| model.order()) {
                Some(Order::Touch) => "touch".into(),
                Some(Order::Elevator) => "elevator".into(),
                None if device.readable => "touch (not probed: --reprobe)".into(),
                None => "touch (not probed: it can't be opened)".into(),
            },
        ]);
    }
    table.write(out)
}

fn write_packs(out: &mut dyn Write, packs: &[LearnedPack], devices: &[Device]) -> io::Result<()> {
    let mut table = Table::new([
        ("LEARNED", Align::Left),
        ("STARTS", Align::Right),
        ("DEVICE", Align::Left),
        ("I/O WAITS", Align::Right),
        ("TOTAL WAIT", Align::Right),
        ("COLD STARTS", Align::Left),
    ]);
    for pack in packs {
        let device = pack.device.as_ref().map_or("?", |dev| name_of(dev, devices));
        let [waits, time] = pack.expected.map_or_else(
            || ["?".into(), "?".into()],
            |e| [e.waits.to_string(), format!("{:.0} ms", e.wait_us as f64 / 1e3)],
        );
        table.row([
            harmless(pack.title()),
            pack.starts.to_string(),
            harmless(device),
            waits,
            time,
            gain(pack),
        ]);
    }
    table.write(out)?;
    for device in devices {
        if let Some(line) = expectation(device, packs) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn name_of<'a>(dev: &'a str, devices: &'a [Device]) -> &'a str {
    devices.iter().find(|d| d.dev == dev).and_then(|d| d.name.as_deref()).unwrap_or(dev)
}

fn gain(pack: &LearnedPack) -> String {
    match pack.gain {
        None => "device not probed".into(),
        Some(_) if !pack.has_benefit => "no expected benefit here".into(),
        Some((least, most)) => format!("{} faster", percent(least, most)),
    }
}

fn percent(least: f64, most: f64) -> String {
    format!("{:.0} to {:.0} %", least * 100.0, most * 100.0)
}

/// What is to be expected of the packs on a device, in one line; none when none lies
/// there or it was not measured.
fn expectation(device: &Device, packs: &[LearnedPack]) -> Option<String> {
    let model = device.model?;
    let mine = || packs.iter().filter(|pack| pack.device.as_ref() == Some(&device.dev));
    let gains = mine().filter(|pack| pack.has_benefit).filter_map(|pack| pack.gain);
    let range = gains.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let name = harmless(device.name.as_deref().unwrap_or(&device.dev));
    let expect = match range {
        Some((least, most)) => {
            format!(
                "expect cold starts {} faster, hot ones unchanged but for learning",
                percent(least, most)
            )
        }
        None if mine().next().is_some() => "no expected benefit here".into(),
        None => return None,
    };
    let (ms, rate) = (f64::from(model.latency_us) / 1e3, model.bandwidth_mb_s);
    Some(format!("{name}: {ms:.2} ms, {rate} MB/s: {expect}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_expect_of_a_device_is_the_range_of_its_packs() {
        let model = Model::of(80, 80, 500, 32, 50_000);
        let device = Device {
            dev: "8:1".into(),
            name: Some("sda1".into()),
            rotational: None,
            request_kb: None,
            queue: None,
            model: Some(model),
            readable: true,
        };
        let pack = |dev: &str, gain, has_benefit| LearnedPack {
            name: "a".into(),
            command: String::new(),
            path: std::path::Path::new("/a").into(),
            pack_bytes: 1,
            starts: 1,
            files: 1,
            data_bytes: 1,
            used_at: 0,
            device: Some(dev.into()),
            expected: None,
            gain: Some(gain),
            has_benefit,
        };
        let packs = [
            pack("8:1", (0.05, 0.1), true),
            pack("8:1", (0.1, 0.204), true),
            pack("8:1", (0.0, 0.01), false),
            pack("8:2", (0.9, 0.95), true),
        ];
        for (packs, expected) in [
            (
                &packs[..],
                Some("expect cold starts 5 to 20 % faster, hot ones unchanged but for learning"),
            ),
            (&packs[2..3], Some("no expected benefit here")),
            (&packs[3..], None),
        ] {
            let expected = expected.map(|text| format!("sda1: 0.08 ms, 500 MB/s: {text}"));
            assert_eq!(expectation(&device, packs), expected);
        }
        assert_eq!(expectation(&Device { model: None, ..device }, &packs), None);
    }
}
