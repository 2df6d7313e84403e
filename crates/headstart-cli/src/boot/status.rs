//! `headstart boot status`: whether it is enabled, what was learned, and whether it helps.

use crate::exit::ExitStatus;
use crate::output::{self, Align, JsonPath, Table};
use headstart::boot::history::{BootRecord, Gain};
use headstart::boot::install;
use headstart::boot::machine::Machine;
use headstart::boot::mounted::Mounted;
use headstart::boot::packs::PackFile;
use headstart::boot::replay_records;
use headstart::host::error::causes;
use headstart::launch::policy::FREQUENT_IN_BOOTS;
use headstart::pack::store::StoreError;
use headstart::pack::{FileSystem, format_uuid};
use rustix::fs::StatVfsMountFlags;
use serde::Serialize;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The arguments of `headstart boot status`.
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    /// Use the image below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Serialize)]
struct Status {
    schema: &'static str,
    /// Units that are enabled.
    enabled: Vec<&'static str>,
    packs: Vec<PackStatus>,
    /// The boots that are kept, the last one first.
    boots: Vec<Boot>,
    gain: Option<Gain>,
    /// What this boot has prefetched until now.
    this_boot: Vec<replay_records::ReplayRecord>,
    problems: Vec<String>,
    hint: Option<String>,
}

/// A boot of the history.
#[derive(Serialize)]
struct Boot {
    number: u64,
    #[serde(flatten)]
    record: BootRecord,
}

/// What the next boot prefetches for a phase of a file system, if that is mounted then.
#[derive(Serialize)]
struct PackStatus {
    phase: String,
    file_system: FileSystem,
    /// Where that is mounted now, if it is.
    mounted_on: Option<JsonPath>,
    #[serde(flatten)]
    path: JsonPath,
    /// Whether it came with the image. For each file system the replay takes that or the
    /// one that was learned here.
    shipped: bool,
    boots_learned: u32,
    files: usize,
    bytes: u64,
    metadata_bytes: u64,
}

/// Shows it.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitStatus> {
    let status = look(&Machine::at(&args.root))?;
    if args.json {
        output::print_json(&status)?;
    } else {
        output::print(|out| write(out, &status))?;
    }
    Ok(ExitStatus::Done)
}

fn look(machine: &Machine) -> anyhow::Result<Status> {
    let (mut packs, mut problems) = (Vec::<PackStatus>::new(), Vec::new());
    let mut mounted = Mounted::default();
    mounted.look()?;
    let files = machine.packs();
    for phase in machine.phases()? {
        let before = packs.len();
        for file in files.iter().filter(|file| file.phase == phase.name) {
            match pack_status(machine, file, &mut mounted) {
                Ok(status) => packs.push(status),
                Err(StoreError::Missing(_)) => {}
                Err(error) => problems.push(causes(&error)),
            }
        }
        packs[before..].sort_by_key(|pack| (pack.mounted_on.is_none(), pack.mounted_on.clone()));
    }
    let boots = machine.boots();
    if let Some((_, last)) = boots.first() {
        problems.extend(last.problems.iter().cloned());
    }
    let gain = Gain::of(boots.iter().map(|(_, record)| record));
    let boots = boots.into_iter().map(|(number, record)| Boot { number, record }).collect();
    let mut status = Status {
        schema: "headstart/boot-status/2",
        enabled: install::enabled(machine),
        packs,
        gain,
        boots,
        this_boot: replay_records::all(machine),
        problems,
        hint: None,
    };
    status.hint = hint(machine, &status);
    Ok(status)
}

fn pack_status(
    machine: &Machine,
    file: &PackFile,
    mounted: &mut Mounted,
) -> Result<PackStatus, StoreError> {
    let (file_system, pack) = file.read(machine)?;
    let read = FREQUENT_IN_BOOTS.chosen(&pack);
    let files: HashSet<u32> = read.ranges.iter().map(|range| range.file).collect();
    let place = mounted.place_of(&file_system);
    Ok(PackStatus {
        phase: file.phase.clone(),
        mounted_on: place.map(|place| Path::new(&place).into()),
        file_system,
        path: file.path.as_path().into(),
        shipped: !file.is_own,
        boots_learned: pack.origin.starts,
        files: files.len(),
        bytes: read.data_bytes(),
        metadata_bytes: read.metadata_bytes(),
    })
}

/// The one thing to do when nothing was learned.
fn hint(machine: &Machine, status: &Status) -> Option<String> {
    if status.enabled.is_empty() {
        return Some("it is not enabled: run `headstart boot enable`, then boot twice".into());
    }
    let state = machine.state();
    if is_read_only(&state) {
        return Some(format!(
            "{} is on a read-only file system: boots are prefetched, but not learned",
            output::shown(&state)
        ));
    }
    if status.boots.is_empty() {
        return Some(
            "no boot was learned yet: boot once; if one was, \
             `journalctl -b -u headstart-boot-record` shows why it was not learned"
                .into(),
        );
    }
    let last = status.boots.first().map(|boot| &boot.record);
    last.filter(|boot| boot.missed_ms > 0).map(|boot| {
        format!(
            "the last boot's first {} ms of user space were not recorded: \
             `headstart boot enable --kernel-cmdline` lets the kernel record them",
            boot.missed_ms
        )
    })
}

/// Whether a directory, or the nearest there is above it, can't be written.
fn is_read_only(dir: &Path) -> bool {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    rustix::fs::statvfs(there).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn write(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    match &status.enabled[..] {
        [] => writeln!(out, "not enabled")?,
        units => writeln!(out, "enabled: {}", units.join(", "))?,
    }
    if !status.packs.is_empty() {
        writeln!(out, "\nThe next boot prefetches:")?;
        write_packs(out, &status.packs)?;
    }
    if !status.boots.is_empty() {
        writeln!(out, "\nThe last boots:")?;
        write_boots(out, &status.boots)?;
    }
    if let Some(gain) = status.gain {
        writeln!(out, "\n{}", words(gain))?;
    }
    for problem in &status.problems {
        writeln!(out, "\n{}", output::harmless(problem))?;
    }
    if let Some(hint) = &status.hint {
        writeln!(out, "\n{hint}")?;
    }
    Ok(())
}

fn write_packs(out: &mut dyn Write, packs: &[PackStatus]) -> io::Result<()> {
    let mut table = Table::new([
        ("PHASE", Align::Left),
        ("FILE SYSTEM", Align::Left),
        ("FROM", Align::Left),
        ("BOOTS", Align::Right),
        ("FILES", Align::Right),
        ("DATA", Align::Right),
        ("METADATA", Align::Right),
    ]);
    for pack in packs {
        table.row([
            pack.phase.clone(),
            place(pack),
            if pack.shipped { "the image" } else { "here" }.into(),
            pack.boots_learned.to_string(),
            pack.files.to_string(),
            output::size(pack.bytes),
            output::size(pack.metadata_bytes),
        ]);
    }
    table.write(out)
}

/// Where the file system of a pack is, or what it is.
fn place(pack: &PackStatus) -> String {
    let of = &pack.file_system;
    let kind = output::harmless(&of.kind);
    let name = || match &of.uuid {
        Some(uuid) => format_uuid(uuid),
        None => output::name(&of.source),
    };
    match &pack.mounted_on {
        Some(place) => format!("{} ({kind})", place.shown()),
        None => format!("{} ({kind}), not mounted", name()),
    }
}

fn write_boots(out: &mut dyn Write, boots: &[Boot]) -> io::Result<()> {
    let mut table = Table::new([
        ("BOOT", Align::Right),
        ("RECORDED", Align::Left),
        ("KERNEL", Align::Left),
        ("MOUNTS", Align::Right),
        ("TARGET", Align::Right),
        ("PREFETCHED", Align::Right),
        ("READY", Align::Right),
        ("LATE", Align::Right),
        ("MISSING", Align::Right),
        ("WASTED", Align::Right),
        ("LOST", Align::Right),
    ]);
    for Boot { number, record: boot } in boots {
        let seconds = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{:.2} s", ms / 1000.0));
        let outcome = boot.outcome();
        let (prefetched, ready, late, wasted) = match boot.replayed {
            true => (
                output::size(boot.prefetched_bytes()),
                format!("{:.1} %", outcome.ready_share() * 100.0),
                outcome.late_pages.to_string(),
                outcome.wasted_pages.to_string(),
            ),
            false => ("no".into(), "-".into(), "-".into(), "-".into()),
        };
        table.row([
            number.to_string(),
            date(boot.recorded_at),
            output::harmless(boot.kernel.split(' ').next().unwrap_or_default()),
            seconds(boot.local_fs_ms),
            seconds(boot.default_target_ms),
            prefetched,
            ready,
            late,
            outcome.missing_pages.to_string(),
            wasted,
            boot.lost_events.to_string(),
        ]);
    }
    table.write(out)
}

/// A time as `2026-01-31 12:34`, of UTC.
fn date(unix: u64) -> String {
    let text = output::time(unix);
    text.get(..16).unwrap_or(&text).replace('T', " ")
}

fn words(gain: Gain) -> String {
    let Gain { with, without, with_ms, without_ms } = gain;
    let gained = 100.0 * (1.0 - with_ms / without_ms);
    let verdict = match gained >= 0.0 {
        true => format!("{gained:.0} % sooner"),
        false => format!("{:.0} % later", -gained),
    };
    format!(
        "With prefetching the default target was reached after {:.2} s (median of {}), \
         without it after {:.2} s (median of {}): {verdict}.",
        with_ms / 1000.0,
        output::counted(with as u64, "boot"),
        without_ms / 1000.0,
        output::counted(without as u64, "boot"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_is_stated_either_way() {
        let gain = |with_ms| Gain { with: 3, without: 1, with_ms, without_ms: 10_000.0 };
        let sooner = words(gain(2500.0));
        assert!(sooner.contains("2.50 s (median of 3 boots)"), "{sooner}");
        assert!(sooner.ends_with("10.00 s (median of 1 boot): 75 % sooner."), "{sooner}");
        assert!(words(gain(11_000.0)).ends_with("10 % later."));
    }

    #[test]
    fn dates_are_short() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(u64::MAX), "9999-12-31 23:59");
    }
}
