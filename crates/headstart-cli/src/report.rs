//! `headstart report`: what is known of the starts of a program, on one page.

mod bench;
mod boot;
mod faults;
mod machine;
mod pack;
mod waits;

use crate::exit::ExitStatus;
use crate::output;
use crate::packs::by_name;
use crate::replay::named_pack;
use crate::results::{self, ResultKind};
use crate::scratch::Scratch;
use anyhow::{Context, bail};
use headstart::host::contents;
use headstart::host::names;
use headstart_view::picture::{Picture, Text};
use headstart_view::read;
use headstart_view::render::report::{self, Drawn, Section};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The arguments of `headstart report`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The page has what to do (advice), page faults, waits and what disks did, the results of a benchmark, the \
pack, the late and wasted pages of the last learned start, the recorded boot, and the machine, as far as each \
is given or known. It is one file below 15 MB that loads nothing from elsewhere, with its pictures, and can \
be mailed.

    headstart report -o report.html git -- git status
    headstart report -o report.html boot
    sudo headstart report -o report.html --waits -- git status
    headstart report -o report.html nginx.service --bench bench.json --faults faults.json --picture faults-picture.json

With CMD, its page faults are recorded now, and with --waits what it waited for; what the program prints is its \
own. A benchmark is of headstart bench --export-json, page faults are of headstart faults --json, and pictures of \
any --picture FILE.json.")]
pub struct ReportArgs {
    /// Programs and services that were learned, packs, and boot for the last recorded boot
    #[arg(value_name = "PROGRAM|UNIT|PACK|boot")]
    subjects: Vec<String>,

    /// The page to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Results of a benchmark
    #[arg(long, value_name = "FILE")]
    bench: Vec<PathBuf>,

    /// Recorded page faults
    #[arg(long, value_name = "FILE")]
    faults: Vec<PathBuf>,

    /// A picture, as data (.json): of page faults, a benchmark, a boot, a last start, or two recordings
    #[arg(long, value_name = "FILE")]
    picture: Vec<PathBuf>,

    /// With CMD: also record what threads waited for, and the requests of disks; needs root
    #[arg(long, requires = "command")]
    waits: bool,

    /// Replace the file even if it is no earlier report
    #[arg(long)]
    force: bool,

    /// A program to record the page faults of, and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the verb.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitStatus> {
    let files = [&args.bench, &args.faults, &args.picture];
    let has_given = files.iter().any(|files| !files.is_empty()) || !args.command.is_empty();
    if args.subjects.is_empty() && !has_given {
        bail!(
            "Say what the report is of: a program, a unit, boot, --bench, --faults, --picture, or -- CMD"
        );
    }
    results::check(&args.output, ResultKind::Report, args.force)?;
    let mut sections = Vec::new();
    for path in &args.faults {
        sections.extend(faults::sections(&document(path)?, None));
    }
    if !args.command.is_empty() {
        sections.extend(recorded_now(&args.command, args.waits)?);
    }
    for path in &args.picture {
        sections.push(of_picture(picture(path)?)?);
    }
    for path in &args.bench {
        let section = bench::section(&contents::bytes(path).with_context(|| unusable(path))?);
        sections.push(section.with_context(|| unusable(path))?);
    }
    for subject in &args.subjects {
        if subject == "boot" {
            sections.push(boot::section()?);
        } else {
            let path = by_name(Path::new(&pack::name_of(subject)))?;
            sections.extend(pack::sections(&path, &named_pack(&path)?)?);
        }
    }
    // Advice first: stable, so that the rest stays in its order.
    sections.sort_by_key(|section| section.advice.is_empty());
    sections.push(machine::section());
    let page = report::html(&title(args), &sections);
    results::write(&args.output, &page, ResultKind::Report, args.force)?;
    Ok(ExitStatus::Done)
}

fn title(args: &ReportArgs) -> Text {
    let command = args.command.iter().map(|word| names::name(word.as_encoded_bytes()));
    let command = command.collect::<Vec<_>>().join(" ");
    let of = if args.subjects.is_empty() { command } else { args.subjects.join(", ") };
    match of.is_empty() {
        true => "Starts".into(),
        false => format!("Starts of {of}").into(),
    }
}

fn unusable(path: &Path) -> String {
    format!("Can't use {}", output::shown(path))
}

fn document(path: &Path) -> anyhow::Result<Value> {
    let bytes = contents::bytes(path).with_context(|| unusable(path))?;
    let document: Value =
        serde_json::from_slice(&bytes).context("It is not JSON").with_context(|| unusable(path))?;
    let schema = document["schema"].as_str().unwrap_or_default();
    if !schema.starts_with("headstart/faults/") {
        bail!("{}: it is no result of headstart faults --json", unusable(path));
    }
    Ok(document)
}

fn picture(path: &Path) -> anyhow::Result<Picture> {
    let bytes = contents::bytes(path).with_context(|| unusable(path))?;
    read::picture(&bytes).with_context(|| unusable(path))
}

fn of_picture(picture: Picture) -> anyhow::Result<Section> {
    Ok(Section {
        pictures: vec![Drawn::of(&picture)?],
        title: picture.title,
        words: picture.summary,
        tables: picture.tables,
        ..Section::default()
    })
}

/// Records the page faults of a command as `headstart faults` does, which has to be a process of one
/// thread.
fn recorded_now(command: &[OsString], waits: bool) -> anyhow::Result<Vec<Section>> {
    let scratch = Scratch::new("report")?;
    let [json, drawn] = ["faults.json", "picture.json"].map(|name| scratch.path().join(name));
    let own = std::env::current_exe().context("Can't find the program headstart")?;
    let mut faults = std::process::Command::new(own);
    faults.arg("faults").arg("-q").args(waits.then_some("--waits")).arg("--json").arg(&json);
    faults.arg("--picture").arg(&drawn).arg("--").args(command);
    let status = faults.status().context("Can't run headstart faults")?;
    if !json.exists() {
        bail!("The page faults were not recorded (headstart faults ended with {status})");
    }
    Ok(faults::sections(&document(&json)?, Some(Drawn::of(&picture(&drawn)?)?)))
}
