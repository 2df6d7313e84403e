//! `slowdisk down`: takes disks down.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use slowdisk::state::State;
use slowdisk::{host, lifecycle};

/// Take a disk down, and clean up what killed servers left
#[derive(clap::Args)]
pub struct Args {
    /// Where it is mounted, or its loop device
    #[arg(value_name = "DIR|DEVICE", required_unless_present = "all")]
    target: Option<PathBuf>,
    /// Take all disks down
    #[arg(long, conflicts_with = "target")]
    all: bool,
}

pub fn run(state: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    host::require()?;
    let state = State::open(state)?;
    let entries = state.entries()?;
    let Some(target) = &args.target else {
        let mut result = ExitCode::SUCCESS;
        for entry in entries {
            if let Err(error) = lifecycle::tear_down(&entry) {
                eprintln!("slowdisk: {error}");
                result = ExitCode::FAILURE;
            }
        }
        return Ok(result);
    };
    let (entry, _) = lifecycle::find(&entries, target)?;
    lifecycle::tear_down(&entry)?;
    lifecycle::clean(&state)?;
    Ok(ExitCode::SUCCESS)
}
