//! Logs of `strace -f`: the file accesses of a process tree, by its system calls.
//!
//! ```text
//! log ──▶ line ──▶ call ──▶ follow ──▶ Accesses
//!         thread   name,    descriptors, positions,
//!         and time arguments directories of processes
//! ```
//!
//! A mapping counts as an access to all that it maps, and execve(2) to the whole program, since a
//! log does not tell which pages are touched.

mod call;
mod follow;
mod line;
mod processes;

use crate::accesses::Accesses;
use crate::error::ImportError;
use follow::Follow;
use line::{Joiner, Part};

/// What is said of mappings.
const COARSE: &str = "a log of system calls does not tell which pages of a mapping are touched: \
                      programs and mappings are taken as a whole";

/// Whether a line is one of strace.
pub(crate) fn is_line(text: &[u8]) -> bool {
    match line::parse(text).part {
        Part::Whole(call) | Part::Unfinished(call) => call::parse(call).is_some(),
        Part::Resumed(_) | Part::End | Part::Becomes(_) | Part::Note => true,
        Part::Other => false,
    }
}

/// The accesses of a log.
///
/// # Errors
/// There is none in it, or more than fit.
pub fn import(log: &[u8], page_size: u64) -> Result<Accesses, ImportError> {
    let mut follow = Follow::new(Accesses::new(page_size, log.len()), log.len());
    let mut joiner = Joiner::default();
    for text in log.split(|byte| *byte == b'\n').filter(|text| !text.is_empty()) {
        let line = line::parse(text);
        let time = joiner.time(&line);
        let is_call = matches!(line.part, Part::Whole(_) | Part::Unfinished(_) | Part::Resumed(_));
        if is_call && !follow.knows(line.tid) {
            let resumes = matches!(line.part, Part::Resumed(_));
            match if resumes { None } else { joiner.starter() } {
                Some((parent, call)) => follow.is_started(line.tid, parent, call)?,
                None => follow.appears(line.tid),
            }
        }
        match line.part {
            Part::End => follow.end(line.tid),
            // The first thread goes on as the one that executes.
            Part::Becomes(other) => follow.end(other),
            _ => {}
        }
        match joiner.join(line) {
            Some(whole) => match call::parse(&whole.text) {
                Some(call) => follow.call(whole.tid, time, &call)?,
                None => follow.not_understood(),
            },
            None if matches!(line.part, Part::Other) => follow.not_understood(),
            None => {}
        }
    }
    let mut accesses = follow.finish();
    accesses.lacks.coarse = Some(COARSE);
    if accesses.is_empty() {
        return Err(ImportError::Nothing(
            "record with: strace -f -ttt -y -e trace=file,desc,process,mmap -o LOG CMD",
        ));
    }
    Ok(accesses)
}

#[cfg(test)]
mod tests;
