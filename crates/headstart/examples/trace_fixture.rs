//! Makes and shows the files of `fixtures/trace`; `make.sh` there calls it.
//!
//! - `wrap LOST RAW_DIR FILE`: puts sub-buffers read straight from tracefs
//!   (`RAW_DIR/cpu0`, …) into the form of a trace file; LOST is what the
//!   kernel's statistics say.
//! - `tidy FILE…`: takes out what tells one machine from another.
//! - `show FILE…`: one line for each event, and counts.
#![allow(clippy::disallowed_methods)] // Its files end.

use headstart::trace::decode::EVENTS;
use headstart::trace::file::{Capture, Description};
use headstart::trace::format::parse_page_header;
use headstart::trace::page::used;
use headstart::trace::raw::RawPages;
use headstart::trace::tracefs::Tracefs;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["wrap", lost, raw, file] => wrap(lost.parse()?, Path::new(raw), Path::new(file)),
        ["tidy", ref files @ ..] => files.iter().try_for_each(|file| tidy(Path::new(file))),
        ["show", ref files @ ..] => files.iter().try_for_each(|file| show(Path::new(file))),
        _ => Err("usage: trace_fixture wrap LOST RAW_DIR FILE | tidy FILE… | show FILE…".into()),
    }
}

fn wrap(lost: u64, raw: &Path, file: &Path) -> Outcome {
    let tracefs = Tracefs::locate()?;
    let events = Path::new("/sys/kernel/tracing/events");
    let format =
        |(group, name, _)| fs::read_to_string(events.join(group).join(name).join("format"));
    let page_size = rustix::param::page_size();
    let uname = rustix::system::uname();
    let mut capture = Capture {
        description: Description {
            header_page: tracefs.header_page()?,
            formats: EVENTS.into_iter().map(format).collect::<Result<_, _>>()?,
            page_size: page_size as u64,
            kernel: format!("{:?} {:?}", uname.release(), uname.machine()).replace('"', ""),
            block_devices: Vec::new(),
            ignored_tids: Vec::new(),
            metadata_tids: Vec::new(),
            clock_ahead_ns: None,
            lost,
            buffer_kb: 0,
        },
        pages: RawPages::default(),
    };
    let header = parse_page_header(&capture.description.header_page)?;
    for cpu in 0.. {
        let Ok(pages) = fs::read(raw.join(format!("cpu{cpu}"))) else { break };
        for page in pages.chunks(page_size) {
            capture.pages.push(cpu, &page[..used(page, &header)]);
        }
    }
    Ok(fs::write(file, capture.to_bytes()?)?)
}

fn tidy(file: &Path) -> Outcome {
    let mut capture = Capture::from_bytes(&fs::read(file)?)?;
    let kernel = &mut capture.description.kernel;
    let (release, machine) = kernel.split_once(' ').unwrap_or((kernel, ""));
    let version: Vec<&str> = release.splitn(3, '.').take(2).collect();
    *kernel = format!("{} {machine}", version.join("."));
    capture.description.block_devices.sort_unstable();
    Ok(fs::write(file, capture.to_bytes()?)?)
}

fn show(file: &Path) -> Outcome {
    let capture = Capture::from_bytes(&fs::read(file)?)?;
    let mut out = std::io::stdout().lock();
    let mut events = capture.events()?;
    for e in &mut events {
        let (time, tid, kind, id) = (e.time, e.tid, e.kind, e.id);
        writeln!(
            out,
            "{time} {tid} {kind:?} {} {} {}+{}",
            id.dev,
            id.ino,
            e.pages.first,
            e.pages.count()
        )?;
    }
    let (pages, bytes, tally) = (capture.pages.len(), capture.pages.bytes(), events.tally());
    Ok(writeln!(out, "{}: {pages} pages of {bytes} bytes, {tally:?}", file.display())?)
}
