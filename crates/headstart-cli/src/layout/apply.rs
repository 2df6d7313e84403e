//! `headstart layout apply`, `resume` and `undo`: moves blocks.

use super::make_room::{MakeRoom, known};
use super::placed::Placed;
use super::plan::{Planned, no_gain};
use super::renewal::Renewal;
use super::which::{Document, WhatArgs, chosen, each, in_words, may_move, mounts, wanted_of};
use super::work::{Work, WorkArgs};
use crate::exit::ExitStatus;
use crate::output::{self, JsonPath, counted, size};
use headstart_layout::LayoutError;
use headstart_layout::apply::{Direction, Done, Go, standing, swap_all};
use headstart_layout::journal::Journal;
use headstart_layout::prepare::prepare;
use headstart_layout::skip::Skipped;
use headstart_layout::unfit::is_kernel_fixed;
use headstart_layout::volume::{Store, Volume};
use serde::Serialize;
use std::path::PathBuf;

/// The arguments of `headstart layout apply`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Files keep content, times, mode and names, so packs stay valid; these get to know the blocks with the \
extents of files that are moved in parts. The blocks where they were are kept \
until headstart layout undo or release, in .headstart-layout at the root of the file system. A \
signal stops it between two swaps, and headstart layout resume goes on. Whatever ends it, a crash \
too, each file is whole, and resume and undo can finish.

Exit status: 0 done, skipped files are counted; 3 nothing is to be gained; 1 stopped or failed; 4 \
this takes root.")]
pub struct ApplyArgs {
    #[command(flatten)]
    what: WhatArgs,

    #[command(flatten)]
    work: WorkArgs,

    /// Move even if nothing is gained by the device model
    #[arg(long)]
    force: bool,

    /// Where free space is in pieces, move other files aside first. On ext4 the layout then takes up to half more until
    /// release, or undo, which moves them back unless their old blocks are in use by then. On xfs undo does not move them
    /// back. On btrfs block groups are moved, one or up to 8 times the bytes of the layout, and undo does not move them
    /// back either
    #[arg(long)]
    make_room: bool,

    /// Move though this kernel may lack the fix of CVE-2024-26704, by its number
    #[arg(long)]
    trust_kernel: bool,
}

/// The arguments of `headstart layout resume` and `undo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A file that was written, replaced or removed since is skipped and counted. One that is in use is \
skipped, too, and the layout is kept, so that the command can be repeated.

Exit status: 0 done; 1 stopped, failed, or files were in use; 3 there is no layout; 4 this takes root.")]
pub struct ContinueArgs {
    /// A path on the file system; without one, all that have a layout
    path: Option<PathBuf>,

    #[command(flatten)]
    work: WorkArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct OneDocument {
    mount_point: JsonPath,
    moved_bytes: u64,
    already_bytes: u64,
    /// Of other files that were moved aside, or back.
    aside_bytes: u64,
    /// What was moved to make room and stays there: block groups of btrfs, other files on xfs.
    relocated_bytes: u64,
    skipped: Skipped,
    stopped: bool,
}

impl OneDocument {
    fn of(volume: &Volume, done: &Done) -> Self {
        Self {
            mount_point: volume.mount_point.as_path().into(),
            moved_bytes: done.bytes,
            already_bytes: done.already,
            aside_bytes: done.aside,
            relocated_bytes: 0,
            skipped: done.skipped.clone(),
            stopped: done.stopped,
        }
    }
}

/// Runs `layout apply`.
pub fn run(args: &ApplyArgs) -> anyhow::Result<ExitStatus> {
    if !may_move() {
        return Ok(ExitStatus::PermissionMissing);
    }
    let (packs, paths, mounts) = (args.what.packs()?, args.what.paths()?, mounts()?);
    let (volumes, refused) = args.what.volumes(&wanted_of(&packs, None, 0, None), &mounts)?;
    refused.iter().for_each(|error| output::error(error));
    if let [_, _, ..] = &volumes[..] {
        output::error(&LayoutError::Several {
            paths: volumes.into_iter().map(|volume| volume.mount_point).collect(),
        });
        return Ok(ExitStatus::Failed);
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    // The others don't swap blocks.
    let swaps = volumes.iter().any(|volume| !volume.kind.shares());
    if swaps && !args.trust_kernel && !is_kernel_fixed(&release) {
        output::error(&LayoutError::Kernel { release });
        return Ok(ExitStatus::Failed);
    }
    let known = if args.make_room { known(&packs)? } else { Vec::new() };
    let work = Work::begin(&args.work)?;
    let mut documents = Vec::new();
    let status = each(&volumes, |volume| {
        if args.make_room && !volume.makes_room()? {
            return Err(LayoutError::NoAside { path: volume.mount_point.clone() });
        }
        let plan = || Planned::of(&packs, volume, &mounts, &args.what);
        let mut planned = plan()?;
        let store = volume.create()?;
        if store.journal()?.is_some() {
            return Err(LayoutError::Exists { path: volume.dir() });
        }
        let mut room = args.make_room.then(|| MakeRoom {
            store: &store,
            volume,
            mounts: &mounts,
            known: &known,
            work: &work,
            again: &plan,
            relocated_bytes: 0,
        });
        let begun = begin(&store, volume, &mut planned, room.as_mut(), &paths, &work, args);
        let relocated_bytes = room.map_or(0, |room| room.relocated_bytes);
        let without_layout = |stopped| {
            let done = Done { stopped, ..Done::default() };
            let told = || OneDocument { relocated_bytes, ..OneDocument::of(volume, &done) };
            (relocated_bytes > 0).then(told)
        };
        match begun {
            Ok(Begun::Journal(journal, mut skipped)) => {
                for (skip, count) in planned.found.counts() {
                    *skipped.entry(skip).or_default() += count;
                }
                let renewal = Renewal::begin(volume, &journal, &mounts);
                let made = make((&store, volume, &journal), Direction::Apply, true, &work);
                renewal.finish();
                if made.is_err() {
                    documents.extend(without_layout(false));
                }
                let (status, mut done) = made?;
                for (skip, count) in skipped {
                    *done.skipped.entry(skip).or_default() += count;
                }
                documents.push(OneDocument { relocated_bytes, ..OneDocument::of(volume, &done) });
                report((volume, &journal), &done, Direction::Apply);
                if done.bytes > 0 || done.stopped {
                    return Ok(status);
                }
                let found = standing(&store, &journal, false, |_| Ok(Go::On))?;
                match (found.laid_out.new, found.aside.new) {
                    // A file system that swaps nothing needs no journal.
                    (0, 0) => store.remove_all().map(|()| ExitStatus::Failed),
                    (0, _) => {
                        output::message(
                            "only other files were moved; headstart layout undo moves them back",
                        );
                        Ok(ExitStatus::Failed)
                    }
                    _ => Ok(status),
                }
            }
            Ok(Begun::No(status, why)) => {
                documents.extend(without_layout(status == ExitStatus::Failed));
                output::message(format_args!("{}: {why}", output::shown(&volume.mount_point)));
                store.remove_all()?;
                Ok(status)
            }
            Err(error) => {
                documents.extend(without_layout(false));
                output::error(&error);
                match store.journal()? {
                    None => store.remove_all()?,
                    Some(_) => output::message(
                        "all files are whole. headstart layout undo moves other files back",
                    ),
                }
                Ok(ExitStatus::Failed)
            }
        }
    });
    if args.what.json {
        let schema = "headstart/layout-apply/1";
        output::print_json(&Document { schema, file_systems: documents })?;
    }
    let has_none = volumes.is_empty() && !refused.is_empty();
    Ok(if has_none { ExitStatus::Failed } else { status })
}

/// What came of the preparations.
enum Begun {
    /// All swaps are known and written down. Some files are skipped after all.
    Journal(Journal, Skipped),
    /// Nothing is moved, for this reason.
    No(ExitStatus, String),
}

/// Prepares a layout; nothing is swapped yet.
fn begin(
    store: &Store,
    volume: &Volume,
    planned: &mut Planned,
    mut room: Option<&mut MakeRoom>,
    packs: &[PathBuf],
    work: &Work,
    args: &ApplyArgs,
) -> Result<Begun, LayoutError> {
    let stopped = || Begun::No(ExitStatus::Failed, "stopped before files were laid out".into());
    let may = planned.is_gain_expected || args.force && !planned.plan.pieces.is_empty();
    if !may {
        return Ok(Begun::No(ExitStatus::Negative, no_gain(planned).into()));
    }
    let mut placed = Placed::allocate(store, volume, planned)?;
    if let Some(room) = &mut room {
        match room.place(placed, planned)? {
            Some(found) => placed = found,
            None => return Ok(stopped()),
        }
    }
    let relocated = room.map(|room| room.relocated_bytes);
    if !args.force && !planned.is_expected(&placed.gain, volume) {
        let mut why = "nothing to gain here: the free space is in too many pieces".to_owned();
        if let Some(advice) = placed.advice(volume, planned, relocated)? {
            why = format!("{why}; {advice}");
        }
        return Ok(Begun::No(ExitStatus::Negative, why));
    }
    if let Some(remarks) = placed.remarks(volume, planned, relocated)? {
        output::message(remarks);
    }
    let Placed { donor, plan, .. } = placed;
    let mut part = work.part("reading", volume, plan.bytes() + plan.aside_bytes());
    let (found, zstd) = (&planned.found, args.what.compress);
    let prepared = prepare(store, volume, found, &plan, donor, zstd, |done| part.go(done))?;
    let Some((mut journal, skipped)) = prepared else {
        return Ok(stopped());
    };
    if journal.swaps.is_empty() {
        let why = format!("no file can be moved any more: {}", in_words(&skipped));
        return Ok(Begun::No(ExitStatus::Negative, why));
    }
    journal.packs = packs.to_vec();
    store.write_journal(&journal)?;
    Ok(Begun::Journal(journal, skipped))
}

/// Swaps, and reads all from the disk when it was moved.
fn make(
    (store, volume, journal): (&Store, &Volume, &Journal),
    direction: Direction,
    is_just_read: bool,
    work: &Work,
) -> Result<(ExitStatus, Done), LayoutError> {
    let what = if direction == Direction::Apply { "moving" } else { "moving back" };
    let mut part = work.part(what, volume, journal.bytes());
    let mut done = swap_all(store, journal, direction, is_just_read, |done| part.go(done))?;
    drop(part);
    if done.stopped {
        return Ok((ExitStatus::Failed, done));
    }
    let mut part = work.part("checking", volume, journal.bytes());
    let standing = standing(store, journal, true, |read| {
        let go = part.go(read)?;
        done.stopped |= go == Go::Stop;
        Ok(go)
    })?;
    drop(part);
    match standing.damaged.first() {
        Some(path) => Err(LayoutError::Content { path: path.clone() }),
        None if done.stopped => Ok((ExitStatus::Failed, done)),
        None => Ok((ExitStatus::Done, done)),
    }
}

/// Runs `layout resume`.
pub fn resume(args: &ContinueArgs) -> anyhow::Result<ExitStatus> {
    go_on(args, Direction::Apply, "headstart/layout-resume/1")
}

/// Runs `layout undo`.
pub fn undo(args: &ContinueArgs) -> anyhow::Result<ExitStatus> {
    go_on(args, Direction::Undo, "headstart/layout-undo/1")
}

fn go_on(
    args: &ContinueArgs,
    direction: Direction,
    schema: &'static str,
) -> anyhow::Result<ExitStatus> {
    if !may_move() {
        return Ok(ExitStatus::PermissionMissing);
    }
    let (volumes, mounts) = (chosen(args.path.as_deref())?, mounts()?);
    let work = Work::begin(&args.work)?;
    let (mut documents, mut is_any) = (Vec::new(), false);
    let status = each(&volumes, |volume| {
        let Some(store) = volume.open()? else { return Ok(ExitStatus::Done) };
        let Some(journal) = store.journal()? else {
            // Nothing was moved yet.
            store.remove_all()?;
            return Ok(ExitStatus::Done);
        };
        is_any = true;
        volume.fit(&mounts)?;
        let renewal = Renewal::begin(volume, &journal, &mounts);
        let made = make((&store, volume, &journal), direction, false, &work);
        renewal.finish();
        let (mut status, done) = made?;
        if done.has_rest() {
            status = ExitStatus::Failed;
        }
        report((volume, &journal), &done, direction);
        documents.push(OneDocument::of(volume, &done));
        let is_of_others = journal.swaps.is_empty();
        if (direction == Direction::Undo || is_of_others) && !done.has_rest() {
            store.remove_all()?;
        }
        match direction {
            // As where there was none, so that apply is next.
            Direction::Apply if is_of_others && !done.has_rest() => Ok(ExitStatus::Negative),
            _ => Ok(status),
        }
    });
    if args.json {
        output::print_json(&Document { schema, file_systems: documents })?;
    }
    if !is_any && status == ExitStatus::Done {
        output::message("there is no layout here");
        return Ok(ExitStatus::Negative);
    }
    Ok(status)
}

fn report((volume, journal): (&Volume, &Journal), done: &Done, direction: Direction) {
    let (place, moved) = (output::shown(&volume.mount_point), size(done.bytes));
    let word = if direction == Direction::Apply { "moved" } else { "moved back" };
    let aside = match done.aside {
        0 => String::new(),
        bytes => format!(", and {} of other files", size(bytes)),
    };
    output::message(format_args!("{place}: {moved} {word}{aside}"));
    let skipped: u64 = done.skipped.values().sum();
    if skipped > 0 {
        let files = counted(skipped, "file");
        output::message(format_args!("{files} skipped: {}", in_words(&done.skipped)));
    }
    match (direction, done.stopped) {
        (_, true) => output::message(
            "stopped; all files are whole. headstart layout resume goes on, undo moves all back",
        ),
        (Direction::Apply, false) if journal.swaps.is_empty() && !done.has_rest() => {
            output::message("only other files were moved; headstart layout apply begins again");
        }
        (Direction::Apply, false) if done.bytes + done.aside == 0 => {
            output::message("nothing was moved");
        }
        (Direction::Apply, false) => output::message(
            "headstart layout undo moves all back; release frees the blocks where it was",
        ),
        (Direction::Undo, false) if done.has_rest() => {
            output::message("files are in use; repeat headstart layout undo when they are not");
        }
        (Direction::Undo, false) => {}
    }
}
