//! `headstart elf repack`: packs the relocations of finished programs and libraries.

use super::settings::{Groups, SystemArgs, found};
use crate::args;
use crate::exit::ExitStatus;
use crate::output::{self, Align, JsonPath, Table, causes, counted, size};
use anyhow::bail;
use headstart_elf::files::change::{Failure, Settings};
use headstart_elf::files::obstacles::Obstacle;
use headstart_elf::files::owned::Owned;
use headstart_elf::files::read;
use headstart_elf::repack::Change;
use headstart_elf::repack::refuse::Refusal;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The arguments of `headstart elf repack`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Relative relocations, 24 bytes each in most files (DT_RELA), become a bitmap (DT_RELR) of about \
a hundredth of the size. No address moves, so that symbols, debug information and build IDs stay \
valid. Before anything is written, the old and the new file are relocated at a made-up address \
and compared byte by byte; without this proof nothing is written. The loader must know DT_RELR: \
glibc 2.36, musl 1.2.4 or later.

Without -o and --in-place it says what it would do. A file is replaced as a whole, with its owner, \
mode, times, ACLs, capabilities and hard links; at any moment each of its names leads to the old \
or to the new file. headstart elf undo brings back the old one. A copy (-o) has of these what this \
user may give it, and no signatures.

Skipped are files whose content is signed or has a checksum (IMA, fs-verity, FIPS), programs that \
run, static PIEs, and files of packages: with --packaged these are changed too. Package managers \
then report them as modified, and an upgrade replaces them; the hooks in dist/ run repack --renew, \
which repacks them again. With --divert the file of a Debian package gets a second name, \
.NAME.headstart-orig, to which dpkg-divert(1) leads upgrades, and stays as it is: debsums(1) and \
dpkg --verify report nothing. Until the hook has run, which --divert needs, such a file is of the \
old version; therefore files of packages that upgrades themselves run are skipped.

Exit status: 0 done; 1 some files could not be read or written; 3 a named file was skipped; 4 --divert \
--in-place needs root.")]
pub struct RepackArgs {
    /// Programs, libraries, and directories that have some
    #[arg(value_name = "FILE|DIR", required_unless_present_any = ["system", "renew"])]
    paths: Vec<PathBuf>,

    /// Write the result to this file
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["in_place", "system", "renew"])]
    output: Option<PathBuf>,

    /// Replace the files
    #[arg(long)]
    in_place: bool,

    /// All of /usr and /opt
    #[arg(long, conflicts_with_all = ["paths", "renew"])]
    system: bool,

    /// Files that were repacked, and that an upgrade replaced since
    #[arg(long, conflicts_with = "paths")]
    renew: bool,

    /// Change files of packages too
    #[arg(long)]
    packaged: bool,

    /// Divert files of Debian packages with dpkg-divert(1), and put repacked ones in their place
    #[arg(long, conflicts_with_all = ["packaged", "output", "renew"])]
    divert: bool,

    /// Skip files of which less would be saved
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = args::bytes)]
    minimum: u64,

    /// A shell command that must print and return the same with the old and with the new file,
    /// whose path replaces {}
    #[arg(long, value_name = "CMD")]
    check: Option<String>,

    /// Don't ask whether the loader of the system knows DT_RELR
    #[arg(long)]
    any_loader: bool,

    #[command(flatten)]
    system_args: SystemArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// The result for a file.
struct Done {
    names: Vec<PathBuf>,
    /// The command line names it, not only a directory that has it.
    is_named: bool,
    result: Result<Change, Failure>,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    /// Whether files were written.
    written: bool,
    files: Vec<DocumentFile>,
    skipped: Vec<Skipped>,
    failed: Vec<Skipped>,
    total: Change,
}

#[derive(Serialize)]
struct DocumentFile {
    #[serde(flatten)]
    path: JsonPath,
    names: u64,
    #[serde(flatten)]
    change: Change,
}

#[derive(Serialize)]
struct Skipped {
    #[serde(flatten)]
    path: JsonPath,
    reason: String,
}

/// Runs the verb.
pub fn run(args: &RepackArgs) -> anyhow::Result<ExitStatus> {
    let needs_owned = !args.packaged && !args.renew;
    let owned = |root: &Path| Ok(needs_owned.then(|| Owned::of(root)).transpose()?);
    let mut settings = args.system_args.settings(owned)?;
    settings.minimum = args.minimum;
    settings.any_loader = args.any_loader;
    settings.check.clone_from(&args.check);
    settings.divert = args.divert;
    // Held to the end.
    let _lock = match may_divert(args, &settings)? {
        May::Not(status) => return Ok(status),
        May::With(lock) => lock,
    };
    let (mut problems, mut done) = (Vec::new(), Vec::new());
    let groups = if args.renew {
        let (groups, of_diverted) = replaced(&settings);
        done = of_diverted;
        groups
    } else {
        let paths = if args.system {
            // Not each system has an /opt.
            let dirs = ["usr", "opt"].map(|dir| settings.root.join(dir));
            dirs.into_iter().filter(|dir| dir.exists()).collect()
        } else {
            args.paths.clone()
        };
        let groups;
        (groups, problems) = found(&paths);
        groups
    };
    let named = args.paths.iter().filter(|path| path.is_file());
    let named: HashSet<PathBuf> =
        named.filter_map(|path| std::fs::canonicalize(path).ok()).collect();
    if let Some(out) = &args.output {
        let [names] = groups.as_slice() else {
            bail!("With --output one file is repacked at a time");
        };
        let result = names.first().map(|name| settings.to_other(name, out));
        let result = result.unwrap_or(Err(Failure::NotRepacked));
        return report(
            args,
            vec![Done { names: names.clone(), is_named: true, result }],
            &problems,
        );
    }
    let writes = args.in_place || args.renew;
    let one = |names: Vec<PathBuf>| {
        let result = if writes { settings.in_place(&names) } else { plan(&settings, &names) };
        if args.renew && matches!(result, Err(Failure::Obstacle(Obstacle::Refused(_)))) {
            // It is what the package has, and stays so. Other obstacles may go.
            forget(&settings, &names);
        }
        Done { is_named: names.iter().any(|name| named.contains(name)), names, result }
    };
    done.extend(groups.into_iter().map(one));
    report(args, done, &problems)
}

/// Whether the verb goes on.
enum May {
    /// It ends with this.
    Not(ExitStatus),
    /// It does, and dpkg does not run meanwhile where files are diverted.
    With(Option<File>),
}

/// What diversions need.
fn may_divert(args: &RepackArgs, settings: &Settings) -> anyhow::Result<May> {
    if !args.divert {
        return Ok(May::With(None));
    }
    let dpkg = &settings.dpkg;
    let root = output::shown(&settings.root);
    if !dpkg.is_there() {
        bail!("--divert is for Debian's dpkg, and {root} has no var/lib/dpkg; give --packaged");
    }
    if !args.in_place {
        return Ok(May::With(None));
    }
    if !rustix::process::geteuid().is_root() {
        output::message("--divert --in-place needs root");
        return Ok(May::Not(ExitStatus::PermissionMissing));
    }
    if !dpkg.has_hook() {
        bail!(
            "Without its hook an upgrade would leave diverted files in the old version: copy \
             dist/dpkg/headstart to etc/dpkg/dpkg.cfg.d in {root} first"
        );
    }
    Ok(May::With(Some(dpkg.lock()?)))
}

fn plan(settings: &Settings, names: &[PathBuf]) -> Result<Change, Failure> {
    let first = names.first().ok_or(Failure::NotRepacked)?;
    let what = "Reading it";
    let read = read::read(first).map_err(|source| Failure::Io { what, source })?;
    Ok(settings.plan(names, &read)?.change)
}

/// Repacked files that are something else now, and what was done with diverted ones.
fn replaced(settings: &Settings) -> (Groups, Vec<Done>) {
    let (records, damaged) = settings.journal.all();
    if damaged > 0 {
        output::message(format_args!("{} can't be read", counted(damaged, "record")));
    }
    let (mut out, mut done) = (Vec::new(), Vec::new());
    for (name, undone) in settings.undo_unrecorded() {
        let result = undone.and(Err(Failure::NoRecord));
        done.push(Done { names: vec![name], is_named: false, result });
    }
    for record in records {
        let names: Vec<_> = record.names().iter().map(|name| settings.outer(name)).collect();
        if record.is_diverted() {
            let result = settings.renew_diverted(&record).transpose();
            done.extend(result.map(|result| Done { names, is_named: false, result }));
            continue;
        }
        match settings.since(&record) {
            // It is gone with its package.
            Ok(since) if since.is_gone => forget(settings, &names),
            Ok(since) => out.extend(since.replaced),
            Err(failure) => done.push(Done { names, is_named: false, result: Err(failure) }),
        }
    }
    (out, done)
}

fn forget(settings: &Settings, names: &[PathBuf]) {
    for name in names {
        if let Err(failure) = settings.forget(name) {
            output::message(format_args!("{}: {}", output::shown(name), causes(&failure)));
        }
    }
}

/// Whether a file of a directory is skipped without a word.
fn is_usual(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Obstacle(Obstacle::Refused(
            Refusal::Image(_)
                | Refusal::NoRela
                | Refusal::NoGain { .. }
                | Refusal::DoesNotFit(_)
                | Refusal::AlreadyPacked
                | Refusal::FixedAddress
                | Refusal::NoProgram
                | Refusal::Static
        ))
    )
}

/// Prints what was done.
fn report(args: &RepackArgs, done: Vec<Done>, problems: &[String]) -> anyhow::Result<ExitStatus> {
    let writes = args.in_place || args.renew || args.output.is_some();
    let mut total = Change::default();
    for change in done.iter().filter_map(|one| one.result.as_ref().ok()) {
        total.packed += change.packed;
        total.relative_kept += change.relative_kept;
        total.rela_before += change.rela_before;
        total.rela_after += change.rela_after;
        total.relr += change.relr;
        total.saved += change.saved;
    }
    let failed = |one: &&Done| {
        !matches!(&one.result, Ok(_) | Err(Failure::Obstacle(_)))
            || matches!(
                &one.result,
                Err(Failure::Obstacle(Obstacle::Refused(Refusal::Unproven(_))))
            )
    };
    let count = done.iter().filter(|one| one.result.is_ok()).count() as u64;
    let failures = done.iter().filter(failed).count();
    let has_skipped = done.iter().any(|one| one.is_named && one.result.is_err());
    if args.json {
        let reason = |one: &Done| Skipped {
            path: one.names.first().map_or(Path::new(""), PathBuf::as_path).into(),
            reason: one.result.as_ref().err().map(|e| causes(e)).unwrap_or_default(),
        };
        let (bad, left): (Vec<_>, Vec<_>) =
            done.iter().filter(|one| one.result.is_err()).partition(failed);
        let file = |one: &Done| {
            Some(DocumentFile {
                path: one.names.first()?.as_path().into(),
                names: one.names.len() as u64,
                change: *one.result.as_ref().ok()?,
            })
        };
        output::print_json(&Document {
            schema: "headstart/elf-repack/1",
            written: writes,
            files: done.iter().filter_map(file).collect(),
            skipped: left.into_iter().map(reason).collect(),
            failed: bad.into_iter().map(reason).collect(),
            total,
        })?;
    } else if !args.quiet {
        print_table(&done, count, &total, writes)?;
    }
    let mut reasons = BTreeMap::<String, u64>::new();
    for one in &done {
        let (Err(failure), Some(name)) = (&one.result, one.names.first()) else { continue };
        if one.is_named || failed(&one) {
            output::message(format_args!("{}: {}", output::shown(name), causes(failure)));
        } else if !is_usual(failure) {
            *reasons.entry(failure.to_string()).or_default() += 1;
        }
    }
    if !args.quiet && !args.json {
        for (reason, count) in &reasons {
            output::message(format_args!("skipped {}: {reason}", counted(*count, "file")));
        }
    }
    problems.iter().for_each(output::message);
    Ok(if failures > 0 || !problems.is_empty() {
        ExitStatus::Failed
    } else if has_skipped {
        ExitStatus::Negative
    } else {
        ExitStatus::Done
    })
}

fn print_table(done: &[Done], count: u64, total: &Change, writes: bool) -> anyhow::Result<()> {
    let mut table = Table::new([
        ("RELOCATIONS", Align::Right),
        ("BEFORE", Align::Right),
        ("AFTER", Align::Right),
        ("SAVED", Align::Right),
        ("FILE", Align::Left),
    ]);
    let mut rows: Vec<_> = done
        .iter()
        .filter_map(|one| Some((one.names.first()?, one.result.as_ref().ok()?)))
        .collect();
    rows.sort_by_key(|(_, change)| std::cmp::Reverse(change.saved));
    let cells = |change: &Change, name: String| {
        [
            change.packed.to_string(),
            size(change.rela_before),
            size(change.rela_after + change.relr),
            size(change.saved),
            name,
        ]
    };
    for (name, change) in &rows {
        table.row(cells(change, output::shown(name)));
    }
    if rows.len() > 1 {
        table.row(cells(total, "total".into()));
    }
    output::print(|out| {
        if count > 0 {
            table.write(out)?;
        }
        let files = counted(count, "file");
        if writes {
            writeln!(out, "repacked {files}")
        } else {
            writeln!(out, "{files} can be repacked; --in-place does it")
        }
    })
}
