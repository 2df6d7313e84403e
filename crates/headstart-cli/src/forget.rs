//! `headstart forget`: removes packs of programs and the files next to them.

use crate::args;
use crate::exit::ExitStatus;
use crate::output;
use crate::packs::{by_name, search_path};
use headstart::launch::learned_packs::learned_packs;
use headstart::launch::retention::forget;
use headstart::replay::models::Models;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The arguments of `headstart forget`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The next start of a forgotten program is learned as if it were the first. Programs that \
are no longer started need not be forgotten by hand: a user has 1,000 packs or 256 MiB of \
them at most, and those of least benefit are forgotten then.")]
pub struct ForgetArgs {
    /// The packs, as files or as names of programs that have one; see `headstart list`
    #[arg(value_name = "PACK", required_unless_present = "unused_for")]
    packs: Vec<PathBuf>,

    /// All of your packs that were neither learned nor read for this time, such as 30d
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    unused_for: Option<Duration>,
}

/// Forgets.
pub fn run(args: &ForgetArgs) -> anyhow::Result<ExitStatus> {
    // All names are looked up before anything is removed.
    let named = args.packs.iter().map(|wanted| by_name(wanted));
    let mut packs = named.collect::<Result<Vec<_>, _>>()?;
    packs.extend(args.unused_for.map(unused).transpose()?.into_iter().flatten());
    packs.sort();
    packs.dedup();
    for pack in &packs {
        forget(pack)?;
        output::message(format_args!("forgot {}", output::shown(pack)));
    }
    if packs.is_empty() {
        output::message("there is no such pack");
    }
    Ok(ExitStatus::Done)
}

/// Packs of the first directory, which are this user's own, that were not used for this time.
fn unused(for_time: Duration) -> anyhow::Result<Vec<PathBuf>> {
    let uid = rustix::process::geteuid().as_raw();
    let own: Vec<_> = search_path()?.into_iter().take(1).collect();
    let before = SystemTime::now().duration_since(UNIX_EPOCH)?.saturating_sub(for_time).as_secs();
    let packs = learned_packs(&own, &Models::here(), uid)?.into_iter();
    Ok(packs.filter(|pack| pack.used_at <= before).map(|pack| pack.path.to_path()).collect())
}
