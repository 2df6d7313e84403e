//! `headstart unit`: prefetches and learns systemd services.

mod follow;

use crate::exit::ExitStatus;
use crate::{args, installed, output};
use anyhow::bail;
use headstart::boot::machine::Machine;
use headstart::pack::key::Key;
use headstart::pack::store;
use headstart::service::install;
use output::JsonPath;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The arguments of `headstart unit`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The service's own unit file does not change. A drop-in pulls in a unit, headstart-unit@NAME, \
right before the service. That unit prefetches the service's pack, records what systemd \
starts in the service's control group, and learns it when reading has died down, after 10 s at the \
earliest and 5 min at the latest. The service waits until \
the trace is set up, 5 to 10 ms as a rule and a second at most (a tenth from the fourth start \
on), and starts even if that unit fails.

`journalctl -u headstart-unit@NAME` shows what a start gained.")]
pub struct UnitArgs {
    /// The service, such as nginx, nginx.service or getty@tty1
    #[arg(value_name = "NAME", required_unless_present_any = ["list"])]
    name: Option<String>,

    /// Undo it; what was learned stays
    #[arg(long)]
    remove: bool,

    /// List the services that are learned and prefetched
    #[arg(long, conflicts_with_all = ["name", "remove", "follow"])]
    list: bool,

    /// Write to the image below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Prefetch the service's pack and learn its start, now; run by a unit
    #[arg(long, hide = true, conflicts_with_all = ["remove", "json", "root"])]
    follow: bool,

    /// Record for this time after the service began
    #[arg(long = "for", value_name = "TIME", hide = true,
          value_parser = args::duration, requires = "follow")]
    duration: Option<Duration>,
}

/// The JSON document.
#[derive(Serialize)]
struct Done<'a> {
    schema: &'static str,
    /// The services that are learned and prefetched.
    services: Vec<Service>,
    /// What was done.
    done: &'a [String],
}

#[derive(Serialize)]
struct Service {
    name: String,
    /// Where it is or will be learned.
    pack: JsonPath,
    /// Starts that were learned.
    starts: u32,
}

/// Adds a service, takes it away, lists them, or follows a start.
pub fn run(args: &UnitArgs) -> anyhow::Result<ExitStatus> {
    let machine = Machine::at(&args.root);
    let service = args.name.as_deref().map(install::full_name).transpose()?;
    if args.follow {
        return Ok(follow::follow(&machine, &service.unwrap_or_default(), args.duration));
    }
    let mut done = Vec::new();
    if let Some(service) = &service {
        let is_here = installed::is_here(&args.root);
        if args.remove {
            done = install::take_away(&machine, service)?;
            if done.is_empty() {
                bail!("{service} is not one of those that `headstart unit --list` shows");
            }
        } else {
            done = install::add(&machine, service, &installed::program(&machine, is_here)?)?;
            done.push(match done.is_empty() {
                true => format!("{service} had it already"),
                false => {
                    format!("the next start of {service} is learned, each later one prefetched")
                }
            });
        }
        done.extend(installed::reload(is_here));
    }
    if args.json {
        let services = install::added(&machine).into_iter().map(|s| known(&machine, s));
        let services = services.collect();
        output::print_json(&Done { schema: "headstart/unit/1", services, done: &done })?;
    } else if args.list {
        let lines = install::added(&machine);
        output::print(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
    } else {
        return installed::print(&done);
    }
    Ok(ExitStatus::Done)
}

/// The file name of a service's pack.
fn pack_name(service: &str) -> String {
    Key::of_name(service).file_name
}

fn known(machine: &Machine, name: String) -> Service {
    let path = machine.place(store::LOCAL_DIR).join(pack_name(&name));
    let starts = machine.read_pack(&path).map_or(0, |pack| pack.origin.starts);
    Service { name, pack: path.as_path().into(), starts }
}
