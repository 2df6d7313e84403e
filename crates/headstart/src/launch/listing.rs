//! Where the accesses of a start are listed. A driver: it writes them, and reads the names of processes.

use crate::host::outputs::{self, Known};
use crate::profile::accesses::rows::Style;
use crate::profile::seen::Seen;
use crate::trace::file::Capture;
use crate::trace::tracefs::Tracefs;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Where accesses are written to.
#[derive(Clone, Debug)]
pub enum Output {
    /// This file.
    Path(PathBuf),
    /// What is open already.
    Open(Arc<File>),
}

/// A recording whose accesses are listed.
#[derive(Debug)]
pub struct Kept {
    /// What was recorded.
    pub capture: Capture,
    /// Names of its processes, by thread.
    pub processes: HashMap<i32, Vec<u8>>,
}

impl Kept {
    /// Of a recording that ended now, as the kernel forgets names. Where it does not tell them, threads
    /// have numbers only.
    pub fn now(capture: Capture) -> Self {
        let tracefs = Tracefs::mounted().ok().flatten();
        Self { capture, processes: tracefs.map(|fs| fs.saved_names()).unwrap_or_default() }
    }
}

/// A list of accesses that is wanted.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Where it is written to.
    pub to: Output,
    /// What it is like.
    pub style: Style,
}

impl Listing {
    /// How an earlier list is known.
    pub fn known(&self) -> Known {
        Known::ByBegin(self.style.format.header().as_bytes())
    }

    /// Writes the accesses of a start; with `force`, whatever is there.
    ///
    /// # Errors
    /// The file is not ours, or can't be written.
    pub fn write(&self, seen: &Seen, kept: &Kept, force: bool) -> io::Result<()> {
        let to = |out: &mut dyn Write| {
            let mut out = BufWriter::new(out);
            seen.write_accesses(&mut out, &kept.capture, &kept.processes, self.style)?;
            out.flush()
        };
        match &self.to {
            Output::Path(path) => to(&mut outputs::open(path, self.known(), force)?),
            Output::Open(file) => to(&mut &**file),
        }
    }
}
