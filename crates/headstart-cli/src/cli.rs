//! The command line: which verbs there are. What a verb takes is in its file.

use clap::{Parser, Subcommand};

use crate::exit::ExitStatus;
use crate::{
    bench, boot, compare, doctor, evict, forget, list, output, pack, pages, record, replay, run,
    show, unit,
};

/// Programs start as if their files were already in memory.
#[derive(Parser, Debug)]
#[command(name = "headstart", version, disable_help_subcommand = true)]
#[command(after_help = "\
The main job is `headstart run` in front of a command. The others do parts of it \
alone, or show what there is: record learns, replay prefetches, boot does both for \
the start of the machine and unit for a service, list, show, pack and forget deal with \
packs, pages and evict look at the page cache and clear it of files, and doctor says what this \
machine can do.

Data is printed on standard output, messages on standard error. With --json, a \
command gives one document whose member `schema` names its form.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Start a program with its files prefetched, and learn from the start
    Run(run::RunArgs),
    /// Learn which files a start touches, without prefetching
    Record(record::RecordArgs),
    /// Read ahead what packs or lists name
    Replay(replay::ReplayArgs),
    /// Learn the boots of this machine and prefetch what they touch
    #[command(subcommand)]
    Boot(boot::BootVerb),
    /// Let a service of systemd be prefetched and learned each time it starts
    Unit(unit::UnitArgs),
    /// List the programs that are learned
    List(list::ListArgs),
    /// Forget what was learned of programs
    Forget(forget::ForgetArgs),
    /// Show what a pack holds
    Show(show::ShowArgs),
    /// Merge, verify or compare packs, or take them over an upgrade
    #[command(subcommand)]
    Pack(pack::PackVerb),
    /// Say what this machine can do for headstart, and how to fix what it cannot
    Doctor(doctor::DoctorArgs),
    /// Measure starts cold, prefetched and hot, and say whether prefetching helps
    Bench(Box<bench::BenchArgs>),
    /// Tell which counters of two result files differ
    Compare(compare::CompareArgs),
    /// Drop files from the page cache, and say what stayed and why
    Evict(evict::EvictArgs),
    /// Show which pages of files are in the page cache
    Pages(pages::PagesArgs),
}

impl Verb {
    /// Does it.
    pub fn run(self) -> anyhow::Result<ExitStatus> {
        match self {
            Self::Run(args) => run::run(args),
            Self::Record(args) => record::run(args),
            Self::Replay(args) => replay::run(args),
            Self::Boot(verb) => boot::run(verb),
            Self::Unit(args) => unit::run(&args),
            Self::List(args) => list::run(&args),
            Self::Forget(args) => forget::run(&args),
            Self::Show(args) => show::run(args),
            Self::Pack(verb) => pack::run(verb),
            Self::Doctor(args) => doctor::run(args),
            Self::Bench(args) => bench::run(*args),
            Self::Compare(args) => compare::run(args),
            Self::Evict(args) => evict::run(args),
            Self::Pages(args) => pages::run(args),
        }
    }
}

/// The command line of this process. Ends the process where it is wrong or asks for help.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        // The message repeats words: of the same command line with words that are visible.
        let words = std::env::args_os().map(|word| output::shown(word.as_ref()));
        let error = Cli::try_parse_from(words).err().unwrap_or(error);
        error.exit()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn parsed(words: &str) -> Result<Cli, String> {
        let words = std::iter::once("headstart").chain(words.split(' '));
        Cli::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_mistyped_option_is_no_command() {
        for (words, option, meant) in [
            ("run --verbos -- true", "--verbos", "--verbose"),
            ("run --no-lern true", "--no-lern", "--no-learn"),
            ("run --pcak a.pack -- true", "--pcak", "--pack"),
            ("record --quite -- true", "--quite", "--quiet"),
            ("bench --run 5 -- true", "--run", "--runs"),
            ("boot bench --run 5 -- true", "--run", "--runs"),
        ] {
            let said = parsed(words).unwrap_err();
            assert!(said.contains(&format!("unexpected argument '{option}'")), "{words}: {said}");
            assert!(said.contains(&format!("'{meant}'")), "{words}: {said}");
        }
    }

    #[test]
    fn options_of_the_command_are_its_own() {
        for words in [
            "run true --quite",
            "run true -x --pack",
            "run -- -x",
            "record -q ls --all -- -o",
            "bench true --runs",
            "boot bench true --runs",
        ] {
            assert!(parsed(words).is_ok(), "{words}: {:?}", parsed(words).unwrap_err());
        }
    }

    #[test]
    fn run_and_record_name_a_pack_alike() {
        assert!(parsed("run --pack a.pack true").is_ok());
        assert!(parsed("record --pack a.pack true").is_ok());
    }
}
