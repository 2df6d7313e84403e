//! `headstart pack`: merge, verify, compare, renew and import packs.

mod import;
mod renew;

use crate::exit::ExitStatus;
use crate::output::{self, JsonPath, counted};
use crate::replay::named_pack;
use anyhow::Context;
use headstart::host::identity::identity_of;
use headstart::host::open::stat_learned;
use headstart::pack::changing::changes_often;
use headstart::pack::diff::diff;
use headstart::pack::merge::{Rule, merge};
use headstart::pack::store;
use rustix::io::Errno;
use serde::Serialize;
use std::path::PathBuf;

/// What to do with packs.
#[derive(clap::Subcommand, Debug)]
pub enum PackVerb {
    /// Merge packs into one with the ranges of all of them
    Merge {
        /// Where to write the result
        #[arg(short, long, value_name = "PACK")]
        output: PathBuf,
        /// The packs
        #[arg(required = true, num_args = 2.., value_name = "PACK")]
        packs: Vec<PathBuf>,
    },
    /// Check a pack, and whether its files have changed since; exit status 3 when some have
    Verify {
        /// The pack
        pack: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// After an upgrade: let packs prefetch the files that replaced learned ones
    Renew(renew::RenewArgs),
    /// Make a pack of what other tools recorded: strace, trace-cmd, perf, lists, other packs
    Import(import::ImportArgs),
    /// Compare two packs by files and pages; exit status 3 when they differ
    Diff {
        /// The first pack
        before: PathBuf,
        /// The second pack
        after: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

/// Does it.
pub fn run(verb: PackVerb) -> anyhow::Result<ExitStatus> {
    match verb {
        PackVerb::Merge { output, packs } => merge_all(&output, &packs),
        PackVerb::Verify { pack, json } => verify(&pack, json),
        PackVerb::Renew(args) => renew::run(&args),
        PackVerb::Import(args) => import::run(&args),
        PackVerb::Diff { before, after, json } => compare(&before, &after, json),
    }
}

fn merge_all(target: &std::path::Path, packs: &[PathBuf]) -> anyhow::Result<ExitStatus> {
    let mut packs = packs.iter().map(|path| named_pack(path));
    let first = packs.next().context("There is no pack to merge")??;
    let all = packs.try_fold(first, |all, next| {
        let next = next?;
        if all.origin.page_shift != next.origin.page_shift {
            anyhow::bail!("The packs are of machines with different page sizes");
        }
        Ok(merge(&all, &next, Rule::Union))
    })?;
    let bytes = store::lock(target)?.write(&all)?;
    output::message(format_args!(
        "wrote {}: {}, {} to prefetch, {} on disk",
        output::shown(target),
        counted(all.files.len() as u64, "file"),
        output::size(all.data_bytes()),
        output::size(bytes)
    ));
    Ok(ExitStatus::Done)
}

/// How a file of a pack is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum FileState {
    Same,
    Changed,
    /// As at each start, and read nevertheless.
    Changing,
    Missing,
    Unreadable,
}

#[derive(Serialize)]
struct Checked {
    #[serde(flatten)]
    path: JsonPath,
    state: FileState,
}

#[derive(Serialize)]
struct Verification {
    schema: &'static str,
    pack: JsonPath,
    same: usize,
    not_same: Vec<Checked>,
}

fn verify(path: &std::path::Path, json: bool) -> anyhow::Result<ExitStatus> {
    let pack = named_pack(path)?;
    let state = |file: &headstart::pack::File| {
        let path = pack.paths.path(file.node);
        let state = match stat_learned(&path) {
            Ok(stat) if file.identity.is_still(&identity_of(&stat)) => FileState::Same,
            Ok(_) if changes_often(file.changes) => FileState::Changing,
            Ok(_) | Err(Errno::LOOP) => FileState::Changed,
            Err(Errno::NOENT | Errno::NOTDIR) => FileState::Missing,
            Err(_) => FileState::Unreadable,
        };
        (path, state)
    };
    let not_same: Vec<_> =
        pack.files.iter().map(state).filter(|(_, state)| *state != FileState::Same).collect();
    let same = pack.files.len() - not_same.len();
    let verdict = if not_same.is_empty() { ExitStatus::Done } else { ExitStatus::Negative };
    if json {
        let not_same = not_same
            .iter()
            .map(|(path, state)| Checked { path: path.as_path().into(), state: *state })
            .collect();
        let schema = "headstart/pack-verify/1";
        output::print_json(&Verification { schema, pack: path.into(), same, not_same })?;
        return Ok(verdict);
    }
    output::print(|out| {
        for (path, state) in &not_same {
            let word = match state {
                FileState::Same => "same",
                FileState::Changed => "changed",
                FileState::Changing => "changing",
                FileState::Missing => "missing",
                FileState::Unreadable => "unreadable",
            };
            writeln!(out, "{word:<10} {}", output::shown(path))?;
        }
        let total = counted(pack.files.len() as u64, "file");
        writeln!(out, "{same} of {total} are what was learned")
    })?;
    Ok(verdict)
}

#[derive(Serialize)]
struct Comparison<'a> {
    schema: &'static str,
    #[serde(flatten)]
    diff: &'a headstart::pack::diff::Diff,
}

fn compare(
    before: &std::path::Path,
    after: &std::path::Path,
    json: bool,
) -> anyhow::Result<ExitStatus> {
    let diff = diff(&named_pack(before)?, &named_pack(after)?);
    if json {
        output::print_json(&Comparison { schema: "headstart/pack-diff/1", diff: &diff })?;
    } else {
        output::print(|out| {
            for file in &diff.files {
                let what = match (file.before, file.after) {
                    (Some(_), None) => "only in the first",
                    (None, Some(_)) => "only in the second",
                    (a, b) if a != b => "another file",
                    _ => "other pages",
                };
                let (less, more) = (file.removed_pages, file.added_pages);
                writeln!(out, "{what:<19} -{less} +{more} {}", file.path.shown())?;
            }
            let (less, more) = (diff.removed_metadata_pages, diff.added_metadata_pages);
            if less + more > 0 {
                writeln!(out, "{:<19} -{less} +{more} pages", "metadata")?;
            }
            Ok(())
        })?;
    }
    Ok(if diff.is_empty() { ExitStatus::Done } else { ExitStatus::Negative })
}
