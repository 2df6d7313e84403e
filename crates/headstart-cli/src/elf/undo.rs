//! `headstart elf undo`: makes repacked files what they were.

use super::settings::SystemArgs;
use crate::exit::ExitStatus;
use crate::output::{self, causes, counted};
use headstart_elf::files::change::Failure;
use std::path::PathBuf;

/// The arguments of `headstart elf undo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A record of each file that was repacked in place has the bytes that were changed, in \
/var/lib/headstart/elf, or in headstart/elf below $XDG_STATE_HOME. A file that something else \
replaced since stays as it is. Of a diverted file the packaged one comes back, and the diversion \
goes.

Exit status: 0 done; 1 a file could not be written; 3 one was not repacked, or was replaced since.")]
pub struct UndoArgs {
    /// The files, by any of their names
    #[arg(value_name = "FILE", required_unless_present_any = ["all", "diverted"])]
    paths: Vec<PathBuf>,

    /// All files that were repacked
    #[arg(long, conflicts_with = "paths")]
    all: bool,

    /// All files that were diverted (repack --divert), such as before headstart is removed
    #[arg(long, conflicts_with_all = ["paths", "all"])]
    diverted: bool,

    #[command(flatten)]
    system: SystemArgs,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the verb.
pub fn run(args: &UndoArgs) -> anyhow::Result<ExitStatus> {
    let settings = args.system.settings(|_| Ok(None))?;
    let mut status = ExitStatus::Done;
    let mut paths = args.paths.clone();
    if args.all || args.diverted {
        let (records, damaged) = settings.journal.all();
        if damaged > 0 {
            output::message(format_args!("{} can't be read", counted(damaged, "record")));
            status = ExitStatus::Failed;
        }
        let chosen = records.iter().filter(|record| args.all || record.is_diverted());
        paths.extend(chosen.filter_map(|record| settings.name_of(record)));
    }
    let mut count = 0;
    let unrecorded =
        if args.all || args.diverted { settings.undo_unrecorded() } else { Vec::new() };
    for (path, undone) in unrecorded {
        match undone {
            Ok(()) => count += 1,
            Err(failure) => {
                output::message(format_args!("{}: {}", output::shown(&path), causes(&failure)));
                status = ExitStatus::Failed;
            }
        }
    }
    for path in &paths {
        let full = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        match settings.undo(&full) {
            Ok(()) => count += 1,
            Err(failure) => {
                output::message(format_args!("{}: {}", output::shown(path), causes(&failure)));
                status = match (status, failure) {
                    (ExitStatus::Done, Failure::NotRepacked | Failure::Replaced { .. }) => {
                        ExitStatus::Negative
                    }
                    (status, Failure::NotRepacked | Failure::Replaced { .. }) => status,
                    _ => ExitStatus::Failed,
                };
            }
        }
    }
    if !args.quiet {
        output::message(format_args!("{} as before", counted(count, "file")));
    }
    Ok(status)
}
