//! `slowdisk stats`: the counters of a disk, while it runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use slowdisk::control::{Answer, Command, query};
use slowdisk::counters::{Stats, Transfers};
use slowdisk::lifecycle;
use slowdisk::state::{self, Disk};

/// Print what passed through a disk since it came up or since the last reset
#[derive(clap::Args)]
pub struct Args {
    /// Where it is mounted, or its loop device
    #[arg(value_name = "DIR|DEVICE")]
    target: PathBuf,
    /// One JSON document, with the course of things over time
    #[arg(long)]
    json: bool,
    /// Set the counters to zero in the same instant
    #[arg(long)]
    reset: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    model: &'a str,
    image: &'a Path,
    overhead: slowdisk::engine::Overhead,
    #[serde(flatten)]
    stats: &'a Stats,
}

pub fn run(state: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    let (entry, disk) = lifecycle::find(&state::entries(state)?, &args.target)?;
    let stats = match query(entry.dir(), &Command::Stats { reset: args.reset })? {
        Some(Answer::Stats(stats)) => stats,
        Some(_) => anyhow::bail!(
            "{} is a plain loop device, nobody counts: see /sys/block/{}/stat",
            disk.model_name,
            disk.device.iter().filter_map(|d| d.file_name()?.to_str()).collect::<String>()
        ),
        None => anyhow::bail!("Its server is dead: slowdisk down cleans up"),
    };
    if args.json {
        let schema = "slowdisk/stats/1";
        let (model, image, overhead) = (&disk.model_name, &disk.image, disk.overhead);
        let document = Document { schema, model, image, overhead, stats: &stats };
        say!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        print(&disk, &stats);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(disk: &Disk, stats: &Stats) {
    let ms = |ns: u64| ns as f64 / 1e6;
    let transfers = |name: &str, t: &Transfers| {
        let (mib, share) = (t.bytes as f64 / f64::from(1 << 20), t.sequential_share() * 100.0);
        say!("{name:<9} {:>9}  {mib:>10.1} MiB  {share:>5.1} % sequential", t.requests);
    };
    say!("model     {}", disk.model_name);
    say!("elapsed   {:>9.0} ms, idle {:.0} ms", ms(stats.elapsed_ns), ms(stats.idle_ns()));
    transfers("reads", &stats.reads);
    transfers("writes", &stats.writes);
    say!("flushes   {:>9}, discards {}", stats.flushes, stats.discards);
    let deepest = stats.depth_ns.len().saturating_sub(1);
    let mean = stats.mean_depth();
    say!("depth     {mean:>9.2} when busy, at most {deepest}, now {}", stats.depth);
    if stats.errors > 0 {
        say!("errors    {:>9}", stats.errors);
    }
    let (share, latest) = (stats.late_share() * 100.0, ms(stats.latest_ns));
    say!("late      {:>9} ({share:.2} %), at most by {latest:.2} ms", stats.late);
    if stats.late_share() > slowdisk::counters::TOO_LATE {
        eprintln!("slowdisk: The machine was too busy to hold the model");
    }
}
