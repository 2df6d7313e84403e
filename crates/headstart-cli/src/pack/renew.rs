//! `headstart pack renew`: after an upgrade, packs are renewed for the files at their paths.
//! Package managers run it.

use crate::args;
use crate::exit::ExitStatus;
use crate::output::{self, counted};
use crate::packs::search_path;
use headstart::boot::machine::Machine;
use headstart::pack::store::{StoreError, packs_in};
use headstart::pack::upgrade::{RenewalReport, renew_packs};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The arguments of `headstart pack renew`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A replaced file is not prefetched until it is learned again. After this, the next start \
prefetches the same ranges of the new file, if it has about the same size, and learns the right \
ones. Without PACK, all learned packs of boots and programs are renewed. The hooks in dist/ let \
dpkg, rpm and pacman run it.")]
pub struct RenewArgs {
    /// Only these packs
    #[arg(value_name = "PACK")]
    packs: Vec<PathBuf>,

    /// Check files for this time at most
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = args::duration)]
    timeout: Duration,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Serialize)]
struct Renewed<'a> {
    schema: &'static str,
    packs: u64,
    #[serde(flatten)]
    files: headstart::pack::renew::Renewal,
    not_looked_at: u64,
    packs_not_looked_at: u64,
    without_uuid: u64,
    problems: &'a [String],
}

/// Renews.
pub fn run(args: &RenewArgs) -> anyhow::Result<ExitStatus> {
    let uid = rustix::process::geteuid().as_raw();
    let packs = if args.packs.is_empty() { learned(uid)? } else { args.packs.clone() };
    let outcome = renew_packs(packs, uid, args.timeout)?;
    if args.json {
        output::print_json(&Renewed {
            schema: "headstart/pack-renew/1",
            packs: outcome.packs,
            files: outcome.renewal,
            not_looked_at: outcome.not_looked_at,
            packs_not_looked_at: outcome.packs_not_looked_at,
            without_uuid: outcome.without_uuid,
            problems: &outcome.problems,
        })?;
    } else if !args.quiet {
        output::message(summary(&outcome));
    } else if !outcome.problems.is_empty() {
        output::message(outcome.problems.join("; "));
    }
    Ok(if outcome.problems.is_empty() { ExitStatus::Done } else { ExitStatus::Failed })
}

/// The packs that were learned here: of programs, and of boots.
fn learned(uid: u32) -> Result<Vec<PathBuf>, StoreError> {
    let of_programs = search_path()?;
    let of_boots = (uid == 0).then(|| Machine::at("/").state());
    let dirs = of_boots.into_iter().chain(of_programs.into_iter().take(1));
    let mut packs = Vec::new();
    for dir in dirs {
        packs.extend(packs_in(&dir, uid)?);
    }
    packs.sort();
    Ok(packs)
}

fn summary(outcome: &RenewalReport) -> String {
    let RenewalReport {
        renewal,
        packs,
        not_looked_at,
        packs_not_looked_at,
        without_uuid,
        problems,
    } = outcome;
    let mut parts = vec![match packs {
        0 => "no pack had to be renewed".to_owned(),
        _ => format!("renewed {}", counted(*packs, "pack")),
    }];
    for (count, what) in [
        (renewal.followed, "replaced and prefetched like before"),
        (renewal.stale, "replaced by something else"),
        (renewal.gone, "gone"),
        (*not_looked_at, "not looked at, for the time was up"),
        (*without_uuid, "not looked at, because the file system has no UUID"),
    ] {
        parts.extend((count > 0).then(|| format!("{} {what}", counted(count, "file"))));
    }
    parts.extend((*packs_not_looked_at > 0).then(|| {
        format!("{} not looked at, for the time was up", counted(*packs_not_looked_at, "pack"))
    }));
    parts.extend(problems.iter().cloned());
    parts.join("; ")
}
