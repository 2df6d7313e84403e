//! The result files of `headstart faults`, each in its format.

use super::advise::Advised;
use crate::output;
use crate::results::{self, ResultKind};
use headstart::host::clock::monotonic_ns;
use headstart::profile::seen::now_ns;
use headstart_faults::csv;
use headstart_faults::document::About;
use headstart_faults::export::{Began, firefox, folded, perfetto};
use headstart_faults::recording::Recording;
use headstart_faults::tables::SectionsOf;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What results are of.
pub struct Source<'a> {
    pub about: &'a About,
    pub recording: &'a Recording,
    pub sections: &'a SectionsOf,
    pub document: &'a Advised<'a>,
    /// When the recording began, in ns of the monotonic clock.
    pub start: u64,
}

/// Whether a file stands for standard output.
pub fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

impl Source<'_> {
    /// Writes a result.
    ///
    /// # Errors
    /// Those of [`results::write`] and [`output::print`].
    pub fn write(&self, file: &Path, kind: ResultKind, force: bool) -> anyhow::Result<()> {
        let text = match kind {
            ResultKind::Json => output::json_text(self.document)? + "\n",
            _ => String::new(),
        };
        let Self { recording, sections, .. } = self;
        let write = |out: &mut dyn Write| match kind {
            ResultKind::FaultsCsv => self.rows(out),
            ResultKind::Firefox => {
                firefox::write(out, recording, sections, &self.subject(), self.began())
            }
            ResultKind::Perfetto => perfetto::write(out, recording, sections, self.began()),
            ResultKind::Folded => folded::write(out, recording, sections),
            _ => out.write_all(text.as_bytes()),
        };
        if is_stdout(file) {
            return output::print(write);
        }
        results::write_by(file, kind, force, |file| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()
        })
    }

    fn rows(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = csv::HEADER.to_owned();
        for fault in &self.recording.faults {
            csv::row(&mut text, self.recording, self.sections, self.start, fault);
            out.write_all(text.as_bytes())?;
            text.clear();
        }
        // Without a row, the header is left.
        out.write_all(text.as_bytes())
    }

    /// The command or process, for people.
    fn subject(&self) -> String {
        match &self.about.command {
            Some(command) => output::harmless(command.join(" ")),
            None => format!("process {}", self.about.pid),
        }
    }

    fn began(&self) -> Began {
        let ago = monotonic_ns().saturating_sub(self.start);
        let unix_ns = u64::try_from(now_ns()).unwrap_or(0).saturating_sub(ago);
        Began { monotonic_ns: self.start, unix_ns }
    }
}
