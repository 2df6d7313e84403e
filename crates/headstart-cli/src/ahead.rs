//! What goes on beside a start and after it, in processes and terminals of the command: what
//! killed starts left in the kernel, large folios.

use crate::output;
use headstart::boot::machine::Machine;
use headstart::boot::record::discard_left;
use headstart::launch::record;
use std::path::Path;
use std::process::{Command, Stdio};

/// Removes what killed headstarts left in the kernel, also recorders of boots. It takes a
/// while, so it is done beside the program.
pub fn remove_orphans() {
    record::remove_orphans();
    discard_left(&Machine::at("/"));
}

/// Puts a pack's big files into large folios, in a process of its own that nobody waits
/// for and that takes only what others leave of processors and disks.
pub fn large_folios_later(pack: &Path) {
    let words = ["replay", "--large-folios", "--background", "--quiet"];
    let later = Command::new("/proc/self/exe")
        .args(words)
        .args(["--nice", "19", "--ioprio", "idle", "--"])
        .arg(pack)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // It goes on in the background, so this is only about its begin.
    if !later.is_ok_and(|status| status.success()) {
        output::message(
            "Can't put files into large folios: `headstart replay --large-folios` says why",
        );
    }
}
