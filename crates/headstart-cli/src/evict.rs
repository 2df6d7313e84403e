//! `headstart evict`: a selectively cold page cache.

mod report;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use headstart::cache::error::Error;
use headstart::cache::evict::{Evicted, EvictionReport, cached, evict};
use headstart::cache::metadata;
use headstart::cache::walk::walk;
use headstart::pack::{Pack, store};

use crate::exit::ExitStatus;
use crate::output;
use crate::replay::named_pack;

/// The arguments of `headstart evict`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Pages that are dirty, mapped by a process or otherwise in use stay in the page \
cache; for each file with such pages a line says how many and why.

Exit status: 0 all files were treated, even if pages stayed; 1 some files could \
not be treated; 3 with --strict, pages of files stayed; 4 --metadata was not \
permitted, or with --strict, the kernel does not report whether pages stayed.")]
pub struct EvictArgs {
    /// Files; packs, whose files are evicted; and directories, of which all
    /// regular files on the same file system are. Links are followed only where
    /// named here
    #[arg(required = true, value_name = "PACK|FILE|DIR")]
    paths: Vec<PathBuf>,

    /// Also drop the file system's metadata: writes the file systems of the
    /// files to their devices, drops ALL unused names and inodes of this machine
    /// (drop_caches=2), and the block devices' pages. Needs root
    #[arg(long)]
    metadata: bool,

    /// Write dirty pages first, so that they can be dropped
    #[arg(long)]
    sync: bool,

    /// Only report how many pages would be dropped
    #[arg(long)]
    dry_run: bool,

    /// End with status 3 if pages of the files stayed
    #[arg(long)]
    strict: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print nothing but errors
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// What `--metadata` did.
#[derive(Default)]
struct MetadataOutcome {
    /// Block devices and the result for their pages.
    devices: Vec<(PathBuf, Evicted)>,
    /// A file on each file system whose metadata nothing but unmounting drops.
    out_of_reach: Vec<PathBuf>,
    errors: Vec<Error>,
}

/// Runs the verb.
pub fn run(args: EvictArgs) -> anyhow::Result<ExitStatus> {
    let (packs, paths): (Vec<_>, Vec<_>) =
        args.paths.iter().cloned().partition(|path| store::is_pack(path));
    let mut found = walk(&paths);
    for pack in &packs {
        found.files.extend(files_of(&named_pack(pack)?));
    }
    let result = if args.dry_run { look(&found.files) } else { evict(&found.files, args.sync) };
    let metadata = if args.metadata && !args.dry_run {
        drop_metadata(&found.files)
    } else {
        MetadataOutcome::default()
    };

    let mut errors: Vec<&Error> = found.errors.iter().collect();
    let mut files = Vec::new();
    for (path, file) in found.files.iter().zip(&result.files) {
        match file {
            Ok(evicted) => files.push((path.as_path(), evicted)),
            // Found below a directory, and gone since; walking tells of names that are not there.
            Err(e) if e.is_gone() => {}
            Err(e) => errors.push(e),
        }
    }
    errors.extend(&metadata.errors);
    errors.extend(result.unseen_processes.as_ref().err());
    if args.json {
        output::print_json(&report::Document::new(&args, &files, &result, &metadata, &errors))?;
    } else if !args.quiet {
        let text = report::describe(&args, &files, &result, &metadata);
        output::print(|out| text.iter().try_for_each(|line| writeln!(out, "{line}")))?;
    }
    for &error in &errors {
        output::error(error);
    }
    let only_metadata = errors.len() == metadata.errors.len();
    if !errors.is_empty() {
        let may_not = only_metadata && errors.iter().all(|error| error.is_permission());
        return Ok(if may_not { ExitStatus::PermissionMissing } else { ExitStatus::Failed });
    }
    let after = |(_, evicted): &(_, &Evicted)| evicted.after;
    Ok(match args.strict && !args.dry_run {
        true if files.iter().map(after).any(|after| after.is_none()) => {
            ExitStatus::PermissionMissing
        }
        true if files.iter().map(after).any(|after| after > Some(0)) => ExitStatus::Negative,
        _ => ExitStatus::Done,
    })
}

/// The files of a pack that are still there. All of each is evicted, so that a
/// start finds nothing that an earlier one's readahead left behind.
fn files_of(pack: &Pack) -> impl Iterator<Item = PathBuf> {
    let paths = pack.files.iter().map(|file| pack.paths.path(file.node));
    paths.filter(|path| path.symlink_metadata().is_ok_and(|m| m.is_file()))
}

/// The report of a dry run: what is cached now.
fn look(files: &[PathBuf]) -> EvictionReport {
    let file = |path: &PathBuf| {
        let before = cached(path)?;
        Ok(Evicted { before, after: None, reasons: Vec::new() })
    };
    EvictionReport { files: files.iter().map(file).collect(), unseen_processes: Ok(0) }
}

/// Drops what `--metadata` promises, after saying so.
fn drop_metadata(files: &[PathBuf]) -> MetadataOutcome {
    let mut outcome = MetadataOutcome::default();
    // One file stands for each file system; missing files were reported before.
    let mut homes = BTreeMap::new();
    for path in files {
        if let Ok(meta) = path.metadata() {
            homes.entry(meta.dev()).or_insert(path.as_path());
        }
    }
    let mut devices = Vec::new();
    for path in homes.into_values() {
        match metadata::write_out(path).and_then(|()| metadata::home(path)) {
            Ok(home) => {
                if home.out_of_reach {
                    outcome.out_of_reach.push(path.to_owned());
                }
                devices.extend(home.block_device);
            }
            Err(e) => outcome.errors.push(e),
        }
    }
    output::message("Dropping all unused names and inodes of this machine (drop_caches=2)");
    outcome.errors.extend(metadata::drop_names_and_inodes().err());
    let result = evict(&devices, false);
    for (device, evicted) in devices.into_iter().zip(result.files) {
        match evicted {
            Ok(evicted) => outcome.devices.push((device, evicted)),
            Err(e) => outcome.errors.push(e),
        }
    }
    outcome
}
