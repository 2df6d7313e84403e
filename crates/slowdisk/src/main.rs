//! The command `slowdisk`: one file per verb; the only place that prints.
//! What the verbs do is in the library.
#![allow(clippy::disallowed_methods)] // Its files end.
#![forbid(unsafe_code)]

mod verb;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use slowdisk::error::Error;

/// Serves an image file as a block device with a modelled latency.
#[derive(Parser)]
#[command(name = "slowdisk", version)]
struct Cli {
    /// Where the state of all disks is kept.
    #[arg(long, global = true, value_name = "DIR", default_value = "/run/slowdisk")]
    state: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Up(verb::up::Args),
    Down(verb::down::Args),
    Remount(verb::remount::Args),
    Stats(verb::stats::Args),
    Status,
    Check(verb::check::Args),
    Cut(verb::cut::Args),
    Models(verb::models::Args),
    #[command(hide = true)]
    Serve(verb::serve::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.verb {
        Verb::Up(args) => verb::up::run(&cli.state, args),
        Verb::Down(args) => verb::down::run(&cli.state, args),
        Verb::Remount(args) => verb::remount::run(&cli.state, args),
        Verb::Stats(args) => verb::stats::run(&cli.state, args),
        Verb::Status => verb::status::run(&cli.state),
        Verb::Check(args) => verb::check::run(&cli.state, args),
        Verb::Cut(args) => verb::cut::run(&cli.state, args),
        Verb::Models(args) => verb::models::run(args),
        Verb::Serve(args) => verb::serve::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("slowdisk: {error:#}");
        ExitCode::from(match error.downcast_ref() {
            Some(Error::Permission) => 4,
            Some(Error::Missing { .. }) => 5,
            Some(Error::Model { .. }) => 2,
            _ => 1,
        })
    })
}
