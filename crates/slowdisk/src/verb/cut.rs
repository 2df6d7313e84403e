//! `slowdisk cut`: a disk dies.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use slowdisk::control::{Answer, Command, query};
use slowdisk::{lifecycle, state};

/// Let a disk die: from now on all requests fail, and none reaches its log
#[derive(clap::Args)]
pub struct Args {
    /// Where it is mounted, or its loop device
    #[arg(value_name = "DIR|DEVICE")]
    target: PathBuf,
}

pub fn run(state: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    let (entry, disk) = lifecycle::find(&state::entries(state)?, &args.target)?;
    match query(entry.dir(), &Command::Cut)? {
        Some(Answer::Done) => Ok(ExitCode::SUCCESS),
        Some(_) => anyhow::bail!("{} is a plain loop device, which can't be cut", disk.model_name),
        None => anyhow::bail!("Its server is dead: slowdisk down cleans up"),
    }
}
