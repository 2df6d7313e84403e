//! `headstart list`: the packs of programs.

use crate::exit::ExitStatus;
use crate::output::{self, Align, Table, size};
use crate::packs::search_path;
use headstart::launch::learned_packs::{LearnedPack, learned_packs};
use headstart::replay::models::Models;
use serde::Serialize;
use std::io::{self, Write};

/// The arguments of `headstart list`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
COMMAND shows the words that identify the program; a hash (#…) stands for inline code and for \
arguments of wrappers. The pack that was used last comes first. USED is when it was last learned \
or read; most file systems note reads once a day.")]
pub struct ListArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    packs: &'a [LearnedPack],
}

/// Lists.
pub fn run(args: &ListArgs) -> anyhow::Result<ExitStatus> {
    let uid = rustix::process::geteuid().as_raw();
    let mut packs = learned_packs(&search_path()?, &Models::here(), uid)?;
    packs.sort_by(|a, b| b.used_at.cmp(&a.used_at).then_with(|| a.command.cmp(&b.command)));
    if args.json {
        output::print_json(&Document { schema: "headstart/list/1", packs: &packs })?;
    } else if packs.is_empty() {
        output::message("no program is learned yet; `headstart run -- COMMAND` learns one");
    } else {
        output::print(|out| print_table(&packs, out))?;
    }
    Ok(ExitStatus::Done)
}

fn print_table(packs: &[LearnedPack], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new([
        ("PROGRAM", Align::Left),
        ("STARTS", Align::Right),
        ("FILES", Align::Right),
        ("IN PACK", Align::Right),
        ("USED", Align::Left),
        ("PACK", Align::Left),
    ]);
    for pack in packs {
        table.row([
            output::harmless(pack.title()),
            pack.starts.to_string(),
            pack.files.to_string(),
            size(pack.data_bytes),
            output::time(pack.used_at),
            pack.path.shown(),
        ]);
    }
    table.write(out)
}
