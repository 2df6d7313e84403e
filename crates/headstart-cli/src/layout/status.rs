//! `headstart layout status`, `verify` and `release`.

use super::which::{Document, chosen, each, in_words, may_move};
use super::work::{Work, WorkArgs};
use crate::exit::ExitStatus;
use crate::output::{self, JsonPath, counted, size};
use headstart_layout::LayoutError;
use headstart_layout::apply::{Go, Standing, standing};
use headstart_layout::journal::Journal;
use headstart_layout::skip::Skipped;
use headstart_layout::volume::Volume;
use serde::Serialize;
use std::path::PathBuf;

/// The arguments of `headstart layout status`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit status: 0 all that was laid out is in its place; 3 a part is not, or there is no layout; 1 it \
failed; 4 this takes root.")]
pub struct StatusArgs {
    #[command(flatten)]
    which: WhichArgs,
}

/// The arguments of `headstart layout verify`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Files that were written since are counted and not compared.

Exit status: 0 all files that were not written since hold what they held; 1 one does not, or it \
failed; 3 there is no layout; 4 this takes root.")]
pub struct VerifyArgs {
    #[command(flatten)]
    which: WhichArgs,

    #[command(flatten)]
    work: WorkArgs,
}

/// The arguments of `headstart layout release`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Files stay where they are. The layout can't be undone any more.

Exit status: 0 done; 3 there is no layout; 1 it failed; 4 this takes root.")]
pub struct ReleaseArgs {
    /// A path on the file system; without one, all that have a layout
    path: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct WhichArgs {
    /// A path on the file system; without one, all that have a layout
    path: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct OneDocument {
    mount_point: JsonPath,
    made_at: u64,
    files: usize,
    ranges: usize,
    /// Bytes of other files that are moved aside, and how many of them are there.
    aside_bytes: u64,
    aside_new_bytes: u64,
    /// What undo and release give back.
    donor_bytes: u64,
    /// Bytes of what is laid out at their new places, at their old ones, and elsewhere since they were written.
    new_bytes: u64,
    old_bytes: u64,
    elsewhere_bytes: u64,
    /// Files that are laid out and are what they were; those that are not, by reason.
    same_files: u64,
    other_files: Skipped,
    damaged: Vec<JsonPath>,
}

impl OneDocument {
    fn of(volume: &Volume, journal: &Journal, standing: &Standing) -> Self {
        Self {
            mount_point: volume.mount_point.as_path().into(),
            made_at: journal.made_at,
            files: journal.laid_out_files(),
            ranges: journal.swaps.len(),
            aside_bytes: journal.aside_bytes(),
            aside_new_bytes: standing.aside.new,
            donor_bytes: journal.donor_bytes(),
            new_bytes: standing.laid_out.new,
            old_bytes: standing.laid_out.old,
            elsewhere_bytes: standing.laid_out.elsewhere,
            same_files: standing.same,
            other_files: standing.others.clone(),
            damaged: standing.damaged.iter().map(|path| path.as_path().into()).collect(),
        }
    }
}

/// Runs `layout status`.
pub fn status(args: &StatusArgs) -> anyhow::Result<ExitStatus> {
    look(&args.which, None, "headstart/layout-status/1")
}

/// Runs `layout verify`.
pub fn verify(args: &VerifyArgs) -> anyhow::Result<ExitStatus> {
    look(&args.which, Some(&args.work), "headstart/layout-verify/1")
}

/// Looks at layouts; with `work`, also reads their files.
fn look(
    args: &WhichArgs,
    work: Option<&WorkArgs>,
    schema: &'static str,
) -> anyhow::Result<ExitStatus> {
    if !may_move() {
        return Ok(ExitStatus::PermissionMissing);
    }
    let volumes = chosen(args.path.as_deref())?;
    let work = work.map(Work::begin).transpose()?;
    let (mut documents, mut is_any) = (Vec::new(), false);
    let status = each(&volumes, |volume| {
        let Some(store) = volume.open()? else { return Ok(ExitStatus::Done) };
        is_any = true;
        let Some(journal) = store.journal()? else {
            output::message(format_args!(
                "{}: a layout was stopped before anything was moved; headstart layout release \
                 removes its rest",
                output::shown(&volume.mount_point)
            ));
            return Ok(ExitStatus::Negative);
        };
        let mut part = work.as_ref().map(|work| work.part("reading", volume, journal.bytes()));
        let mut is_stopped = false;
        let found = standing(&store, &journal, part.is_some(), |done| {
            let go = part.as_mut().map_or(Ok(Go::On), |part| part.go(done))?;
            is_stopped |= go == Go::Stop;
            Ok(go)
        })?;
        drop(part);
        if !args.json {
            show(volume, &journal, &found).map_err(|error| LayoutError::Io {
                what: "Can't show",
                path: volume.dir(),
                source: std::io::Error::other(error),
            })?;
        }
        let status = match () {
            () if is_stopped || !found.damaged.is_empty() => ExitStatus::Failed,
            () if work.is_none() && found.laid_out.old + found.laid_out.elsewhere > 0 => {
                ExitStatus::Negative
            }
            () => ExitStatus::Done,
        };
        documents.push(OneDocument::of(volume, &journal, &found));
        Ok(status)
    });
    if args.json {
        output::print_json(&Document { schema, file_systems: documents })?;
    } else if !is_any && status == ExitStatus::Done {
        output::message("there is no layout here");
    }
    Ok(if is_any || status != ExitStatus::Done { status } else { ExitStatus::Negative })
}

fn show(volume: &Volume, journal: &Journal, standing: &Standing) -> anyhow::Result<()> {
    output::print(|out| {
        writeln!(
            out,
            "{}: {} in {} of {}, made {}",
            output::shown(&volume.mount_point),
            size(journal.bytes() - journal.aside_bytes()),
            counted(journal.swaps.len() as u64, "range"),
            counted(journal.laid_out_files() as u64, "file"),
            output::time(journal.made_at)
        )?;
        writeln!(out, "  at the new place  {}", size(standing.laid_out.new))?;
        writeln!(out, "  at the old place  {}", size(standing.laid_out.old))?;
        writeln!(out, "  elsewhere         {}", size(standing.laid_out.elsewhere))?;
        if !journal.aside.is_empty() {
            let (there, all) = (size(standing.aside.new), size(journal.aside_bytes()));
            writeln!(out, "  moved aside       {there} of {all} of other files")?;
        }
        if !standing.others.is_empty() {
            writeln!(out, "  other files: {}", in_words(&standing.others))?;
        }
        for path in &standing.damaged {
            writeln!(out, "  other content than before: {}", output::shown(path))?;
        }
        let kept = size(journal.donor_bytes());
        writeln!(out, "  {kept} kept for headstart layout undo; release frees them")
    })
}

/// Runs `layout release`.
pub fn release(args: &ReleaseArgs) -> anyhow::Result<ExitStatus> {
    if !may_move() {
        return Ok(ExitStatus::PermissionMissing);
    }
    let volumes = chosen(args.path.as_deref())?;
    let mut is_any = false;
    let status = each(&volumes, |volume| {
        let Some(store) = volume.open()? else { return Ok(ExitStatus::Done) };
        is_any = true;
        store.remove_all()?;
        output::message(format_args!(
            "{}: the layout stays, and can't be undone any more",
            output::shown(&volume.mount_point)
        ));
        Ok(ExitStatus::Done)
    });
    if !is_any && status == ExitStatus::Done {
        output::message("there is no layout here");
        return Ok(ExitStatus::Negative);
    }
    Ok(status)
}
