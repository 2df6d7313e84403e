//! `slowdisk up`: brings a disk up and prints its loop device.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use slowdisk::engine::Overhead;
use slowdisk::model::Model;
use slowdisk::state::{Disk, State};
use slowdisk::{host, lifecycle};

/// Bring a disk up; prints its loop device when it can be used
///
/// Each time it begins from the same bytes: the image is copied into memory
/// and never written to, unless writes are to be kept.
#[derive(clap::Args)]
pub struct Args {
    /// A built-in model (see slowdisk models) or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    model: String,
    /// The disk image
    #[arg(long, value_name = "FILE")]
    image: PathBuf,
    /// Where to mount its file system
    #[arg(long, value_name = "DIR", required_unless_present = "no_mount")]
    mount: Option<PathBuf>,
    /// Only make the loop device
    #[arg(long, conflicts_with_all = ["mount", "options"])]
    no_mount: bool,
    /// Options for mount(8)
    #[arg(long, value_name = "OPTIONS")]
    options: Option<String>,
    /// The kernel's readahead, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    readahead_kb: u32,
    /// Work on the image itself, which should then be on tmpfs
    #[arg(long)]
    keep_writes: bool,
    /// Write all requests, and what they write, to this file, too (src/log.rs has its form)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

pub fn run(state: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    let model = Model::find(&args.model)?;
    host::require()?;
    let state = State::open(state)?;
    for entry in lifecycle::clean(&state)? {
        eprintln!("slowdisk: Cleaned up what was left of {}", entry.display());
    }
    let disk = Disk {
        image: lifecycle::absolute(&args.image),
        model_name: args.model.clone(),
        model,
        mount: args.mount.as_deref().map(lifecycle::absolute),
        options: args.options.clone(),
        keep_writes: args.keep_writes,
        log: args.log.as_deref().map(lifecycle::absolute),
        server: None,
        device: None,
        overhead: Overhead::default(),
    };
    let mut server = Command::new("/proc/self/exe");
    server.arg("serve");
    let up = lifecycle::up(&state, disk, args.readahead_kb, server)?;
    for warning in &up.warnings {
        eprintln!("slowdisk: {warning}");
    }
    say!("{}", up.device.display());
    Ok(ExitCode::SUCCESS)
}
