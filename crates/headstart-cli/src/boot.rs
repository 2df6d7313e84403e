//! `headstart boot`: boots of the machine, learned and prefetched.

pub mod analyze;
mod bench;
mod enable;
mod record;
mod replay;
mod status;

use crate::exit::ExitStatus;

/// What to do with boots.
#[derive(clap::Subcommand, Debug)]
#[command(after_help = "\
`headstart boot enable` and two boots are all it takes. The phases of a boot are \
initramfs, until the machine's own init process begins; mounts, until \
local-fs.target; system, until the default target; and session, until a user has \
logged in and I/O has died down. A line `phase NAME until UNIT` in \
/etc/headstart/boot.conf adds one before the session, `phase NAME until UNIT before \
PHASE` elsewhere.

headstart=off on the kernel's command line disables headstart for a boot. A file \
/run/headstart/noreplay disables prefetching, and /run/headstart/cancel ends a running replay.")]
pub enum BootVerb {
    /// Learn and prefetch each boot from now on
    Enable(enable::EnableArgs),
    /// Undo what enable did
    Disable(enable::DisableArgs),
    /// Show what was learned, the last boots, and what prefetching gained
    Status(status::StatusArgs),
    /// Draw a recorded boot: phases, units, what was read when, and idle times
    Analyze(analyze::AnalyzeArgs),
    /// Measure how long boots take, by a command that boots a machine or from the history
    Bench(bench::BenchArgs),
    /// Record and learn this boot; run by a unit
    Record(record::RecordArgs),
    /// Prefetch the packs of boots; run by a unit
    Replay(replay::ReplayArgs),
}

/// Does it.
pub fn run(verb: BootVerb) -> anyhow::Result<ExitStatus> {
    match verb {
        BootVerb::Enable(args) => enable::enable(&args),
        BootVerb::Disable(args) => enable::disable(&args),
        BootVerb::Status(args) => status::run(&args),
        BootVerb::Analyze(args) => analyze::run(&args),
        BootVerb::Bench(args) => bench::run(&args),
        BootVerb::Record(args) => record::run(&args),
        BootVerb::Replay(args) => replay::run(args),
    }
}
