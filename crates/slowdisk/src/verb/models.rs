//! `slowdisk models`: lists the built-in models or prints one.

use std::process::ExitCode;

use slowdisk::model::{BUILT_IN, Model};

/// List the built-in models, or print one as a start for your own
#[derive(clap::Args)]
pub struct Args {
    /// The one to print
    name: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(wanted) = &args.name else {
        for (name, text) in BUILT_IN {
            say!("{name:<11} {}", Model::parse(name, text)?.description);
        }
        return Ok(ExitCode::SUCCESS);
    };
    Model::find(wanted)?;
    match BUILT_IN.iter().find(|(name, _)| name == wanted) {
        Some((_, text)) => say!("{}", text.trim_end()),
        None => say!("{}", std::fs::read_to_string(wanted)?.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}
