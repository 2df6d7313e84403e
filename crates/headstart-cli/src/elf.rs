//! `headstart elf`: what ELF files cost at the start of a program, and how to fix it.

mod order;
mod repack;
mod report;
mod settings;
mod undo;

use crate::exit::ExitStatus;

/// What to do with ELF files.
#[derive(clap::Subcommand, Debug)]
pub enum ElfVerb {
    /// Tell what relocations, initializers and layout cost, and how to fix it
    Report(report::ReportArgs),
    /// Pack the relocations of finished programs and libraries, so that starts read less
    Repack(Box<repack::RepackArgs>),
    /// Make repacked files what they were
    Undo(undo::UndoArgs),
    /// Tell which functions a start calls in which order, and write that for linkers
    Order(Box<order::OrderArgs>),
}

/// Does it.
pub fn run(verb: ElfVerb) -> anyhow::Result<ExitStatus> {
    match verb {
        ElfVerb::Report(args) => report::run(&args),
        ElfVerb::Repack(args) => repack::run(&args),
        ElfVerb::Undo(args) => undo::run(&args),
        ElfVerb::Order(args) => order::run(*args),
    }
}
