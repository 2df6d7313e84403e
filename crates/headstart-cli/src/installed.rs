//! Shared by verbs that write units: the path of headstart, and systemd's reload.

use crate::exit::ExitStatus;
use crate::output;
use anyhow::bail;
use headstart::boot::machine::Machine;
use headstart::boot::systemd::systemctl::Systemctl;
use std::path::{Path, PathBuf};

/// Where the program is looked for in an image.
const IN_IMAGE: [&str; 2] = ["/usr/bin/headstart", "/usr/local/bin/headstart"];

/// Tells what was done.
pub fn print(done: &[String]) -> anyhow::Result<ExitStatus> {
    output::print(|out| done.iter().try_for_each(|line| writeln!(out, "{line}")))?;
    Ok(ExitStatus::Done)
}

/// Whether a root directory is that of the running machine.
pub fn is_here(root: &Path) -> bool {
    std::fs::canonicalize(root).is_ok_and(|root| root == Path::new("/"))
}

/// headstart as the machine sees it.
pub fn program(machine: &Machine, is_here: bool) -> anyhow::Result<PathBuf> {
    // In a chroot without /proc our own path is unknown.
    if let Some(here) = is_here.then(|| std::env::current_exe().ok()).flatten() {
        return Ok(here);
    }
    let found = IN_IMAGE.iter().find(|path| machine.has(&machine.place(path)));
    let Some(found) = found else {
        bail!("There is no {} for the units to start: copy headstart there", IN_IMAGE[0]);
    };
    Ok(found.into())
}

/// The message for units that this machine does not use now.
const NOT_RUNNING: &str = "systemd does not run here: the units have an effect where it does";

/// Lets the systemd that runs this machine see its new units; returns what to say where none
/// does. An image is for another machine.
pub fn reload(is_here: bool) -> Option<String> {
    // sd_booted(3)
    let runs = Path::new("/run/systemd/system").is_dir();
    if is_here && runs {
        // The next boot reads them anyway.
        let _ = Systemctl::here().call(&["daemon-reload"], &mut Vec::new());
    }
    (is_here && !runs).then(|| NOT_RUNNING.into())
}
