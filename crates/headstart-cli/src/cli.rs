//! The command line: the verbs. The arguments of a verb are in its file.

use clap::{Parser, Subcommand};
use std::ffi::OsString;

use crate::exit::ExitStatus;
use crate::{
    bench, boot, compare, daemon, doctor, elf, evict, faults, forget, layout, list, output, pack,
    pages, record, replay, report, run, show, unit,
};

/// Programs start as if their files were already in memory.
#[derive(Parser, Debug)]
#[command(name = "headstart", version, disable_help_subcommand = true)]
#[command(after_help = "\
The main job is `headstart run` in front of a command. The other subcommands do parts of it, \
or show results: record learns, replay prefetches, boot does both for the boot of the machine, \
unit for a service and daemon for all programs; list, show, pack and forget manage packs; pages shows the page cache, \
and evict drops files from it; faults and elf tell what else a start costs; report writes a page with \
all of it; layout moves files on the disk; doctor checks what \
this machine supports.

Data is printed on standard output, messages on standard error. With --json, a \
command prints one document; its member `schema` names the format.")]
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
    /// Learn which pages a start touches, without prefetching
    Record(record::RecordArgs),
    /// Prefetch packs or lists of files
    Replay(replay::ReplayArgs),
    /// Learn the boots of this machine and prefetch what they touch
    #[command(subcommand)]
    Boot(boot::BootVerb),
    /// Prefetch and learn a systemd service at each start
    Unit(unit::UnitArgs),
    /// Learn and prefetch all programs by themselves, with a service
    #[command(subcommand)]
    Daemon(daemon::DaemonVerb),
    /// List the programs that are learned
    List(list::ListArgs),
    /// Forget what was learned of programs
    Forget(forget::ForgetArgs),
    /// Show what a pack holds
    Show(show::ShowArgs),
    /// Merge, verify, compare, renew or import packs
    #[command(subcommand)]
    Pack(pack::PackVerb),
    /// Check kernel, privileges and devices, and print fixes
    Doctor(doctor::DoctorArgs),
    /// Measure starts cold, prefetched and hot, and say whether prefetching helps
    Bench(Box<bench::BenchArgs>),
    /// Compare the counters of two sets of results, benchmarks or recordings of page faults
    Compare(compare::CompareArgs),
    /// Drop files from the page cache, and say what stayed and why
    Evict(evict::EvictArgs),
    /// Show which pages of files are in the page cache
    Pages(pages::PagesArgs),
    /// Record the page faults of a program: how many, where, and how long they take
    Faults(Box<faults::FaultsArgs>),
    /// Write a page with what is known of the starts of a program, to be mailed
    Report(report::ReportArgs),
    /// Tell what programs and libraries cost at the start, and fix it
    #[command(subcommand)]
    Elf(elf::ElfVerb),
    /// Move what starts read into one place of the disk, and back
    #[command(subcommand)]
    Layout(layout::LayoutVerb),
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
            Self::Daemon(verb) => daemon::run(verb),
            Self::List(args) => list::run(&args),
            Self::Forget(args) => forget::run(&args),
            Self::Show(args) => show::run(args),
            Self::Pack(verb) => pack::run(verb),
            Self::Doctor(args) => doctor::run(args),
            Self::Bench(args) => bench::run(*args),
            Self::Compare(args) => compare::run(args),
            Self::Evict(args) => evict::run(args),
            Self::Pages(args) => pages::run(args),
            Self::Faults(args) => faults::run(*args),
            Self::Report(args) => report::run(&args),
            Self::Elf(verb) => elf::run(verb),
            Self::Layout(verb) => layout::run(verb),
        }
    }
}

/// The arguments of `headstart run` by themselves.
#[derive(Parser, Debug)]
struct Run {
    #[command(flatten)]
    args: run::RunArgs,
}

/// The arguments of a command line of `headstart run` that is right. Every start of a program
/// waits for this, and the arguments of all verbs take five times as long to build.
fn run_args(words: impl IntoIterator<Item = OsString>) -> Option<run::RunArgs> {
    let mut words = words.into_iter().skip(1).peekable();
    words.next_if(|verb| verb == "run").and_then(|verb| {
        let parsed = Run::try_parse_from(std::iter::once(verb).chain(words));
        parsed.ok().map(|run| run.args)
    })
}

/// The verb of this process's command line. Ends the process if that is wrong or --help.
pub fn parse() -> Verb {
    if let Some(args) = run_args(std::env::args_os()) {
        return Verb::Run(args);
    }
    let parsed = Cli::try_parse().map(|cli| cli.verb);
    parsed.unwrap_or_else(|error| {
        // The message repeats words of the command line, so it is made with escaped ones.
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
    fn run_is_parsed_by_itself_as_among_all_verbs() {
        for words in [
            "headstart run true",
            "headstart run -- -x",
            "headstart run --pack a.pack -vv --max-delay 7ms --budget 1M true --quite -o",
            "headstart run --until idle --name n -- sh -c run",
            "headstart run",
            "headstart run --help",
            "headstart run --version",
            "headstart run --pcak a.pack -- true",
            "headstart run -e true",
            "headstart record true",
            "headstart",
        ] {
            let words = || words.split(' ').map(OsString::from);
            let alone = run_args(words());
            let among = match Cli::try_parse_from(words()) {
                Ok(Cli { verb: Verb::Run(args) }) => Some(args),
                _ => None,
            };
            assert_eq!(
                format!("{alone:?}"),
                format!("{among:?}"),
                "{:?}",
                words().collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn run_and_record_name_a_pack_alike() {
        assert!(parsed("run --pack a.pack true").is_ok());
        assert!(parsed("record --pack a.pack true").is_ok());
    }
}
