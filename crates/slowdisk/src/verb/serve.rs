//! `slowdisk serve`: the process behind a disk, started by `up`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use slowdisk::server;
use slowdisk::state::Entry;

/// The process behind a disk
#[derive(clap::Args)]
pub struct Args {
    /// The disk's directory in the state
    entry: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // A signal to the terminal's processes shall not take the disk away.
    rustix::process::setsid()?;
    server::serve(&Entry::at(&args.entry), |ready| {
        let line = serde_json::to_string(ready).unwrap_or_default();
        // Should `up` be gone, the next one cleans up.
        drop(writeln!(std::io::stdout(), "{line}"));
    })?;
    Ok(ExitCode::SUCCESS)
}
