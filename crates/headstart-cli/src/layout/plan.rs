//! `headstart layout plan`: what a layout would gain.

use super::which::{WhatArgs, in_words, mounts, wanted_of};
use crate::exit::ExitStatus;
use crate::output::{self, Align, JsonPath, Table, counted, grouped, size};
use headstart::cache::residency::page_size;
use headstart::host::mounts::MountTable;
use headstart::pack::Pack;
use headstart::replay::device::{is_rotational, largest_request};
use headstart::replay::models::Models;
use headstart_layout::LayoutError;
use headstart_layout::compress::Sample;
use headstart_layout::examine::{Found, examine};
use headstart_layout::gain::{Device, Gain, Places, Reading, unpacking_us};
use headstart_layout::metadata::Metadata;
use headstart_layout::plan::{Piece, Plan};
use headstart_layout::reads::{Pieces, Replayed};
use headstart_layout::replays::replays;
use headstart_layout::skip::Skip;
use headstart_layout::volume::Volume;
use headstart_sys::fiemap::Extent;
use serde::Serialize;
use std::io::{self, Write};
use std::thread::available_parallelism;

/// The arguments of `headstart layout plan`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Extents, jumps (places where what is touched next lies elsewhere) and requests are counted now and \
with the layout, which is assumed to be in one piece. Times are those of a replay by the device model, \
with directories and inode tables; without a model there are none. Where that does not get shorter by \
2 %, nothing is gained. A prefetched start computes meanwhile, so it gains less. Its time is predicted for \
disks that are not rotational, if the last learned start had its files in memory.

Exit status: 0 a gain is expected; 3 nothing is to be gained here; 1 it failed.")]
pub struct PlanArgs {
    #[command(flatten)]
    what: WhatArgs,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    file_systems: Vec<OneDocument>,
    /// File systems that can't be laid out, in words.
    refused: Vec<String>,
}

#[derive(Serialize)]
struct OneDocument {
    mount_point: JsonPath,
    files: usize,
    ranges: usize,
    bytes: u64,
    /// What has to be free, and is taken until undo or release.
    donor_bytes: u64,
    /// What may be taken.
    room_bytes: u64,
    has_model: bool,
    /// Directories and inode tables, which stay where they are.
    metadata: Metadata,
    gain: Gain,
    is_gain_expected: bool,
    skipped: Vec<SkippedFile>,
    /// What the layout of files that share their blocks would take for good.
    shared_bytes: u64,
    /// How much smaller a sample gets, with --compress.
    sample: Option<Sample>,
}

#[derive(Serialize)]
struct SkippedFile {
    #[serde(flatten)]
    path: JsonPath,
    reason: Skip,
}

/// Why there is no time of a start.
const NO_START: &str = "a start is predicted once one was learned whose files were in memory: headstart replay \
     PROGRAM, and then headstart run --always PROGRAM";

/// A plan for one file system.
#[derive(Debug)]
pub struct Planned {
    /// What may be moved.
    pub found: Found,
    /// Bytes that a layout takes.
    pub donor_bytes: u64,
    /// Bytes that one may take.
    room: u64,
    /// Where it goes.
    pub plan: Plan,
    /// What is read too, and stays.
    pub metadata: Metadata,
    /// What the replays of the packs read.
    replays: Vec<Replayed>,
    /// What is gained if the donor is in one piece.
    pub gain: Gain,
    /// What is read from.
    device: Device,
    /// Whether something is gained.
    pub is_gain_expected: bool,
    /// How much smaller a sample gets, if it is to be compressed.
    pub sample: Option<Sample>,
}

impl Planned {
    /// Looks at the wanted files of a file system.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn of(
        packs: &[Pack],
        volume: &Volume,
        mounts: &MountTable,
        what: &WhatArgs,
    ) -> Result<Self, LayoutError> {
        let model = Models::here().of_device(volume.device);
        let metadata = Metadata::of(packs, volume.uuid, model.as_ref());
        let mut found =
            examine(&wanted_of(packs, model, what.gaps, what.compress), volume, mounts)?;
        let ranges = found.ranges.clone();
        let (plan, over) = Plan::of(ranges, page_size(), what.budget.unwrap_or(u64::MAX));
        let over = over.into_iter().filter_map(|file| found.files.get(file));
        let over: Vec<_> =
            over.map(|f| (volume.mount_point.join(&f.path), Skip::OverBudget)).collect();
        found.skipped.extend(over);
        let lowest = plan.pieces.iter().flat_map(|piece| &piece.old).map(|e| e.physical).min();
        let length = plan.donor_bytes;
        let donor_bytes = length.saturating_add(plan.tail(volume.block()?));
        let ideal = [Extent { logical: 0, physical: lowest.unwrap_or(0), length }];
        let sample = what.compress.map(|_| Sample::of(&volume.mount_point, &found, &plan));
        let device = Device { model, largest_request: largest_request(volume.device) };
        let in_memory_us = what.in_memory_us(packs);
        let replays = replays(packs, &in_memory_us, model, (volume, mounts), &found);
        let gain = Gain { before: Reading::default(), after: Reading::default() };
        let (room, is_gain_expected) = (volume.room()?, false);
        let mut out = Self {
            found,
            donor_bytes,
            room,
            plan,
            metadata,
            replays,
            gain,
            device,
            is_gain_expected,
            sample,
        };
        out.gain = out.gain_with(&out.plan, &ideal);
        out.is_gain_expected = out.is_expected(&out.gain, volume);
        Ok(out)
    }

    /// The bytes of a donor that has one part in so many more than it needs, in whole pages, as far as so many are free.
    pub fn donor_with_slack(&self, part: u64, free: u64) -> u64 {
        let slack = self.plan.donor_bytes / part;
        let bytes = self.donor_bytes.saturating_add(slack).min(free) / page_size() * page_size();
        bytes.max(self.donor_bytes)
    }

    /// What a plan of these files gains with this donor, or behind its begin as small as the sample gets.
    pub fn gain_with(&self, plan: &Plan, donor: &[Extent]) -> Gain {
        let replays = &self.replays;
        let size = |file: usize| self.found.files.get(file).map_or(0, |file| file.identity.size);
        let (old, new) = plan.trees(size);
        let before: Vec<_> = plan.pieces.iter().map(|piece| piece.old.clone()).collect();
        let place = |piece: &Piece| piece.new_place(donor).unwrap_or_else(|| piece.old.clone());
        let after: Vec<_> = match &self.sample {
            Some(sample) => sample.placed(plan, donor.first().map_or(0, |extent| extent.physical)),
            None => plan.pieces.iter().map(place).collect(),
        };
        let pieces = Pieces::of(plan);
        let moved = replays.iter().map(|replay| replay.moved(&pieces, &after)).collect();
        let unpacking_us = self.sample.map_or(0, |_| unpacking_us(plan.bytes(), cpus()));
        let replays = replays.clone();
        let before = Places { ranges: before, trees: old, replays, unpacking_us: 0 };
        let after = Places { ranges: after, trees: new, replays: moved, unpacking_us };
        Gain::of(&before, &after, donor, &self.metadata, self.device)
    }

    /// Whether that is something. Of a device that was not measured only a rotational one is known to
    /// be slow.
    pub fn is_expected(&self, gain: &Gain, volume: &Volume) -> bool {
        let has_model = self.device.model.is_some();
        let is_known = has_model || is_rotational(volume.device).unwrap_or(true);
        is_known && gain.is_expected()
    }

    fn files(&self) -> usize {
        let mut files: Vec<_> = self.plan.pieces.iter().map(|piece| piece.file).collect();
        files.sort_unstable();
        files.dedup();
        files.len()
    }
}

fn cpus() -> u32 {
    available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// Runs the verb.
pub fn run(args: &PlanArgs) -> anyhow::Result<ExitStatus> {
    let (packs, mounts) = (args.what.packs()?, mounts()?);
    let (volumes, refused) = args.what.volumes(&wanted_of(&packs, None, 0, None), &mounts)?;
    let planned = |volume: Volume| {
        let planned = Planned::of(&packs, &volume, &mounts, &args.what)?;
        Ok((volume, planned))
    };
    let planned = volumes.into_iter().map(planned).collect::<Result<Vec<_>, LayoutError>>()?;
    let status = match planned.iter().any(|(_, planned)| planned.is_gain_expected) {
        true => ExitStatus::Done,
        false if planned.is_empty() && !refused.is_empty() => ExitStatus::Failed,
        false => ExitStatus::Negative,
    };
    if args.what.json {
        let document = |(volume, planned): &(Volume, Planned)| document(volume, planned);
        output::print_json(&Document {
            schema: "headstart/layout-plan/1",
            file_systems: planned.iter().map(document).collect(),
            refused: refused.iter().map(ToString::to_string).collect(),
        })?;
        return Ok(status);
    }
    refused.iter().for_each(|error| output::error(error));
    output::print(|out| planned.iter().try_for_each(|(volume, one)| show(volume, one, out)))?;
    Ok(status)
}

fn document(volume: &Volume, planned: &Planned) -> OneDocument {
    let skipped = planned
        .found
        .skipped
        .iter()
        .map(|(path, reason)| SkippedFile { path: path.as_path().into(), reason: *reason });
    OneDocument {
        mount_point: volume.mount_point.as_path().into(),
        files: planned.files(),
        ranges: planned.plan.pieces.len(),
        bytes: planned.plan.bytes(),
        donor_bytes: planned.donor_bytes,
        room_bytes: planned.room,
        has_model: planned.device.model.is_some(),
        metadata: planned.metadata,
        gain: planned.gain,
        is_gain_expected: planned.is_gain_expected,
        skipped: skipped.collect(),
        shared_bytes: planned.found.shared_bytes,
        sample: planned.sample,
    }
}

fn show(volume: &Volume, planned: &Planned, out: &mut dyn Write) -> io::Result<()> {
    let (files, ranges) = (planned.files() as u64, planned.plan.pieces.len() as u64);
    let (place, all) = (output::shown(&volume.mount_point), size(planned.plan.bytes()));
    writeln!(out, "{place}: {all} in {} of {}", counted(ranges, "range"), counted(files, "file"))?;
    let Gain { before, after } = planned.gain;
    let mut table = Table::new([("", Align::Left), ("NOW", Align::Right), ("THEN", Align::Right)]);
    for (name, now, then) in [
        ("extents", before.extents, after.extents),
        ("jumps", before.jumps, after.jumps),
        ("requests", before.requests, after.requests),
        ("extent trees", before.trees, after.trees),
    ] {
        table.row([name.into(), grouped(now), grouped(then)]);
    }
    let seconds = |us: u64| format!("{:.2} s", us as f64 / 1e6);
    let replay = before.replay_us.zip(after.replay_us);
    let start = before.start_us.zip(after.start_us);
    for (name, times) in [("replay", replay), ("start", start)] {
        if let Some((now, then)) = times {
            table.row([name.into(), seconds(now), seconds(then)]);
        }
    }
    table.write(out)?;
    if planned.device.model.is_some_and(|model| model.seek().is_none()) && start.is_none() {
        writeln!(out, "{NO_START}")?;
    }
    let Metadata { places, us, .. } = planned.metadata;
    if places > 0 {
        let time = us.map_or_else(String::new, |us| format!(", {} of both times", seconds(us)));
        let places = counted(places, "place");
        writeln!(out, "directories and inode tables stay where they are: {places}{time}")?;
    }
    let room = size(planned.room);
    writeln!(
        out,
        "takes {} until undo or release; {room} may be taken",
        size(planned.donor_bytes)
    )?;
    if let Some(sample) = planned.sample {
        let (bytes, compressed) = (size(sample.bytes), size(sample.compressed));
        writeln!(out, "compressed, {bytes} of it take about {compressed}")?;
    }
    let skipped = planned.found.counts();
    if !skipped.is_empty() {
        writeln!(out, "skipped files: {}", in_words(&skipped))?;
    }
    if planned.found.shared_bytes > 0 {
        let shared = size(planned.found.shared_bytes);
        writeln!(out, "to move those that are shared would take {shared} more for good")?;
    }
    if !planned.is_gain_expected {
        writeln!(out, "{}", no_gain(planned))?;
    }
    Ok(())
}

/// Why nothing is gained.
pub fn no_gain(planned: &Planned) -> &'static str {
    let has_model = planned.device.model.is_some();
    match (planned.plan.pieces.is_empty(), has_model, planned.sample.is_some()) {
        (true, ..) => "nothing to gain here: none of these files can be moved",
        (_, true, _) if planned.gain.halves_requests() => {
            "no time to gain here: bytes limit these starts. But requests fall by half or more: where their \
             number is limited for all that use the disk, headstart layout apply --force leaves more to others"
        }
        (_, true, true) => {
            "nothing to gain here: neither seeks, requests nor bytes limit these starts, or they do not get \
             smaller"
        }
        (_, true, false) => "nothing to gain here: neither seeks nor requests limit these starts",
        (_, false, _) => {
            "nothing to gain here: the ranges are in order already, or the device is not rotational; \
             headstart doctor --reprobe measures it"
        }
    }
}
