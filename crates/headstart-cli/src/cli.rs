//! The command line: which verbs there are. What a verb takes is in its file.

use clap::{Parser, Subcommand};

use crate::exit::ExitStatus;
use crate::{evict, pages};

/// Programs start as if their files were already in memory.
#[derive(Parser, Debug)]
#[command(name = "headstart", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Drop files from the page cache, and say what stayed and why
    Evict(evict::EvictArgs),
    /// Show which pages of files are in the page cache
    Pages(pages::PagesArgs),
}

impl Verb {
    /// Does it.
    pub fn run(self) -> anyhow::Result<ExitStatus> {
        match self {
            Self::Evict(args) => evict::run(args),
            Self::Pages(args) => pages::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
