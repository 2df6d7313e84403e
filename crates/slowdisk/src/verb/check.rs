//! `slowdisk check`: is the disk as slow as its model?

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use slowdisk::lifecycle;
use slowdisk::load::{BUSY, Watch};
use slowdisk::measure;
use slowdisk::state;

/// Read from a disk and compare its times with its model's
///
/// Takes some seconds. Exit status 3 when a figure is off; it then also says
/// whether the machine was too busy.
#[derive(clap::Args)]
pub struct Args {
    /// Where it is mounted, or its loop device
    #[arg(value_name = "DIR|DEVICE")]
    target: PathBuf,
}

pub fn run(state: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    let (_, disk) = lifecycle::find(&state::entries(state)?, &args.target)?;
    let Some(path) = &disk.device else {
        anyhow::bail!("It is not up yet: wait for slowdisk up");
    };
    let Some(device) = &disk.model.device else {
        anyhow::bail!("{} is a plain loop device: nothing is modelled", disk.model_name);
    };
    let capacity = lifecycle::capacity(path)?;
    let own = disk.server.into_iter().chain([std::process::id()]).collect();
    let watch = Watch::begin(own)?;
    let mut all_hold = true;
    for load in measure::loads(device, capacity) {
        let figure = load.measure(path, device, capacity)?;
        all_hold &= figure.holds();
        say!(
            "{:<30} {:>10.1} modelled {:>10.1} measured {:>+6.1} % {}",
            figure.name,
            figure.modelled,
            figure.measured,
            figure.error() * 100.0,
            match (figure.holds(), figure.is_cpu_bound()) {
                (true, _) => "",
                (false, true) => "off, for the CPUs have no more time",
                (false, false) => "off",
            }
        );
    }
    let others = watch.others()?;
    say!("{:<30} {others:>10.2}", "CPUs used by others");
    if all_hold {
        return Ok(ExitCode::SUCCESS);
    }
    if others > BUSY {
        eprintln!("slowdisk: The machine is too busy to hold the model: try again when it is idle");
    }
    Ok(ExitCode::from(3))
}
