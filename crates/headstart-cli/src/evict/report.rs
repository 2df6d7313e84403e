//! The result of `headstart evict`, as text and JSON.

use std::path::Path;

use headstart::cache::error::Error;
use headstart::cache::evict::{Evicted, EvictionReport, Reason};
use headstart::cache::holders::Holder;
use headstart::cache::residency::page_size;
use serde::Serialize;

use super::{EvictArgs, MetadataOutcome};
use crate::output::{self, JsonPath, counted};

/// The report for people, line by line.
pub fn describe(
    args: &EvictArgs,
    files: &[(&Path, &Evicted)],
    report: &EvictionReport,
    metadata: &MetadataOutcome,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, evicted) in files {
        match (args.dry_run, evicted.before.unwrap_or(0), evicted.after.unwrap_or(0)) {
            (true, 0, _) | (false, _, 0) => {}
            (true, before, _) => {
                lines.push(format!("{}: {} cached", output::shown(path), counted(before, "page")));
            }
            (false, before, after) => {
                let (path, why) = (output::shown(path), because(&evicted.reasons));
                lines.push(format!("{path}: {after} of {} stayed: {why}", counted(before, "page")));
            }
        }
    }
    for (device, evicted) in &metadata.devices {
        if let (Some(before), Some(after @ 1..)) = (evicted.before, evicted.after) {
            let before = counted(before, "page");
            lines.push(format!(
                "{}: {after} of {before} of metadata stayed; while it is mounted, some do",
                output::shown(device)
            ));
        }
    }
    for path in &metadata.out_of_reach {
        lines.push(format!(
            "{}: the metadata of its file system stayed; only unmounting drops it",
            output::shown(path)
        ));
    }
    let total = Total::of(files);
    if total.unknown > 0 {
        let files = counted(total.unknown, "file");
        lines.push(format!("{files}: the kernel does not report what was cached and what stayed"));
    }
    if let Ok(unseen @ 1..) = report.unseen_processes {
        lines.push(format!("Processes whose mappings you may not see: {unseen}"));
    }
    lines.push(summary(args, &total));
    lines
}

fn summary(args: &EvictArgs, total: &Total) -> String {
    let amount =
        |pages: u64| format!("{} ({})", counted(pages, "page"), output::size(pages * page_size()));
    let files = counted(total.files - total.unknown, "file");
    if args.dry_run {
        return format!("Would evict at most {} of {files}", amount(total.before));
    }
    let gone = total.before.saturating_sub(total.after);
    let mut text = format!("Evicted {} of {files}", amount(gone));
    if total.after > 0 {
        let of = counted(total.files_stayed, "file");
        text += &format!("; {} of {of} stayed", amount(total.after));
    }
    text
}

/// The reasons for people, in one line.
fn because(reasons: &[Reason]) -> String {
    /// Processes to name before the rest are only counted.
    const NAMED: usize = 4;
    let mut parts = Vec::new();
    let mut holders: Vec<&Holder> = Vec::new();
    for reason in reasons {
        match reason {
            Reason::Dirty { pages } => parts.push(format!("{pages} dirty (--sync writes them)")),
            Reason::Writeback { pages } => parts.push(format!("{pages} being written")),
            Reason::Mapped(holder) => holders.push(holder),
            Reason::InMemory => parts.push("its file system is in memory only".into()),
            Reason::InUse { pages } => parts.push(format!("{pages} in use")),
        }
    }
    if !holders.is_empty() {
        let name = |holder: &&Holder| {
            let locked = if holder.locked { ", locked" } else { "" };
            format!("{} ({}{locked})", output::harmless(&holder.command), holder.pid)
        };
        let named: Vec<_> = holders.iter().take(NAMED).map(name).collect();
        let mut text = format!("mapped by {}", named.join(", "));
        if holders.len() > NAMED {
            text += &format!(" and {} more", holders.len() - NAMED);
        }
        parts.push(text);
    }
    parts.join("; ")
}

/// Sums over files, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
struct Total {
    files: u64,
    before: u64,
    after: u64,
    files_stayed: u64,
    /// Files of which the kernel does not report what is cached.
    unknown: u64,
}

impl Total {
    fn of(files: &[(&Path, &Evicted)]) -> Self {
        let mut total = Self { files: files.len() as u64, ..Self::default() };
        for (_, evicted) in files {
            total.before += evicted.before.unwrap_or(0);
            total.after += evicted.after.unwrap_or(0);
            total.unknown += u64::from(evicted.before.is_none());
            total.files_stayed += u64::from(evicted.after.is_some_and(|after| after > 0));
        }
        total
    }
}

/// The JSON document. All numbers are pages unless they say otherwise.
#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    /// Bytes.
    page_size: u64,
    dry_run: bool,
    files: Vec<DocumentFile<'a>>,
    total: Total,
    metadata: Option<DocumentMetadata<'a>>,
    unseen_processes: Option<u64>,
    errors: Vec<String>,
}

#[derive(Serialize)]
struct DocumentFile<'a> {
    #[serde(flatten)]
    path: JsonPath,
    #[serde(flatten)]
    evicted: &'a Evicted,
}

#[derive(Serialize)]
struct DocumentMetadata<'a> {
    devices: Vec<DocumentFile<'a>>,
    /// A file of each file system whose metadata stayed.
    out_of_reach: Vec<JsonPath>,
}

impl<'a> Document<'a> {
    /// The document for what was done.
    pub fn new(
        args: &EvictArgs,
        files: &[(&Path, &'a Evicted)],
        report: &EvictionReport,
        metadata: &'a MetadataOutcome,
        errors: &[&Error],
    ) -> Self {
        let file = |path: &Path, evicted| DocumentFile { path: path.into(), evicted };
        Self {
            schema: "headstart/evict/1",
            page_size: page_size(),
            dry_run: args.dry_run,
            files: files.iter().map(|(path, evicted)| file(path, evicted)).collect(),
            total: Total::of(files),
            metadata: (args.metadata && !args.dry_run).then(|| DocumentMetadata {
                devices: metadata
                    .devices
                    .iter()
                    .map(|(path, evicted)| file(path, evicted))
                    .collect(),
                out_of_reach: metadata.out_of_reach.iter().map(|p| p.as_path().into()).collect(),
            }),
            unseen_processes: report.unseen_processes.as_ref().ok().copied(),
            errors: errors.iter().map(|&error| output::causes(error)).collect(),
        }
    }
}
