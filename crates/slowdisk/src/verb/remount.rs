//! `slowdisk remount`: the cheap way to a cold cache.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use slowdisk::state::State;
use slowdisk::{host, lifecycle};

/// Unmount and mount again: a cold cache for this disk alone
#[derive(clap::Args)]
pub struct Args {
    /// Where it is mounted, or its loop device
    #[arg(value_name = "DIR|DEVICE")]
    target: PathBuf,
}

pub fn run(state: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    host::require()?;
    let state = State::open(state)?;
    let (_, disk) = lifecycle::find(&state.entries()?, &args.target)?;
    lifecycle::remount(&disk)?;
    Ok(ExitCode::SUCCESS)
}
