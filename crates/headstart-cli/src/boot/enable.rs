//! `headstart boot enable` and `disable`: the units, on this machine or an image.

use crate::exit::ExitStatus;
use crate::{installed, output};
use headstart::boot::install;
use headstart::boot::machine::Machine;
use std::ffi::OsString;
use std::path::PathBuf;

/// Where the program is likely to be when units start.
const EARLY: [&str; 4] = ["/usr/", "/bin/", "/sbin/", "/opt/"];

/// The arguments of `headstart boot enable`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Nothing is started: the next boot is the first that is learned. By default a boot is recorded \
from its first units on. With --kernel-cmdline the kernel records it from its first page on.")]
pub struct EnableArgs {
    /// Let the kernel record from its first page on, by words on its command line
    #[arg(long)]
    kernel_cmdline: bool,

    /// Enable it in the image below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// The arguments of `headstart boot disable`.
#[derive(clap::Args, Debug)]
pub struct DisableArgs {
    /// Also remove what was learned of boots
    #[arg(long)]
    purge: bool,

    /// Disable it in the image below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Enables it.
pub fn enable(args: &EnableArgs) -> anyhow::Result<ExitStatus> {
    let machine = Machine::at(&args.root);
    let is_here = installed::is_here(&args.root);
    let program = installed::program(&machine, is_here)?;
    let words = install::kernel_words(&kernel(&machine, is_here));
    let mut done = install::enable(&machine, &program, &words)?;
    if done.is_empty() {
        done.push("it was enabled already".into());
    }
    if !EARLY.iter().any(|dir| program.starts_with(dir)) {
        let program = output::shown(&program);
        done.push(format!("mind that units will start {program}; packages use /usr/bin"));
    }
    let words_added = if args.kernel_cmdline {
        install::add_kernel_words(&machine, &words).map(|more| done.extend(more))
    } else {
        done.push(format!(
            "to record from the first page on, add this to the kernel's command line, or use \
             --kernel-cmdline: {words}"
        ));
        Ok(())
    };
    done.push("the next boot is the first that is learned, the one after it is prefetched".into());
    done.extend(installed::reload(is_here));
    let status = installed::print(&done)?;
    // All else was done.
    words_added?;
    Ok(status)
}

/// Disables it.
pub fn disable(args: &DisableArgs) -> anyhow::Result<ExitStatus> {
    let machine = Machine::at(&args.root);
    let mut done = install::disable(&machine)?;
    if done.is_empty() {
        done.push("it was not enabled".into());
    }
    let state = machine.state();
    if args.purge {
        let purged = install::purge(&machine)?;
        done.extend(purged.then(|| format!("removed {}", output::shown(&state))));
    } else if state.exists() {
        done.push(format!(
            "what was learned stays in {}; --purge removes it",
            output::shown(&state)
        ));
    }
    done.extend(installed::reload(installed::is_here(&args.root)));
    installed::print(&done)
}

/// The release of the kernel that will boot: the running one, or the latest in an image.
fn kernel(machine: &Machine, is_here: bool) -> String {
    if is_here {
        return rustix::system::uname().release().to_string_lossy().into_owned();
    }
    let numbers = |release: &OsString| -> Vec<u64> {
        let text = release.to_string_lossy().into_owned();
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
    };
    let dirs = ["/usr/lib/modules", "/lib/modules"];
    let names = dirs.into_iter().flat_map(|dir| machine.names(&machine.place(dir)));
    let latest = names.max_by_key(numbers);
    latest.unwrap_or_default().to_string_lossy().into_owned()
}
