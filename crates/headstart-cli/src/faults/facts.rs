//! Reads what the rules of advice need beside the recording: the program's pack, the files with
//! faults, their devices and settings. What can't be read is not known, and the rules that need it
//! say nothing.

use headstart::host::contents;
use headstart::host::fsid::speed_device;
use headstart::host::id::Dev;
use headstart::host::mounts::MountTable;
use headstart::host::user::User;
use headstart::launch::learn::locate;
use headstart::launch::policy::FREQUENT;
use headstart::outcome::last_run::file;
use headstart::pack::key::Key;
use headstart::pack::store;
use headstart::replay::benefit::Expected;
use headstart::replay::device::readahead_setting;
use headstart::replay::model::Model;
use headstart::replay::models::Models;
use headstart_advice::facts::{Facts, FileFacts, FileWaits, Host, Learned, Relocations};
use headstart_advice::observed::{Observed, sum};
use headstart_elf::files::relative;
use headstart_faults::capture::files;
use headstart_faults::recording::{Object, Recording};
use headstart_faults::tables::{Place, Tables};
use headstart_faults::waits::sums::Sums;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files whose faults took less than this part of the start are not looked at.
const LEAST_PART: u64 = 1000;

/// Where files are looked at, and on which file systems none is.
#[derive(Clone, Copy)]
pub struct Looked<'a> {
    pub root: &'a OwnedFd,
    pub silent: &'a HashSet<Dev>,
}

/// All that is known of a start.
pub fn gather(
    command: &[OsString],
    wall_ns: u64,
    recording: &Recording,
    tables: &Tables,
    sums: Option<&Sums>,
    looked: Looked,
) -> Facts {
    let text = |path: &str| contents::text(path).unwrap_or_default();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let huge = "/sys/kernel/mm/transparent_hugepage";
    let host = Host::new(
        &release,
        &text(&format!("{huge}/enabled")),
        &text(&format!("{huge}/hpage_pmd_size")),
    );
    let observed = Observed::of(recording, host.huge_page_bytes);
    let models = Models::here();
    let learned = (!command.is_empty()).then(|| learned(command, &models)).flatten();
    let (learned, of_pack) = learned.unzip();
    let files = files_of(wall_ns, recording, tables, &observed, &models, looked);
    // Without a pack: the device that the faults waited for.
    let slowest = || files.values().filter_map(|file| file.model).max_by_key(|m| m.latency_us);
    Facts {
        command: command.to_vec(),
        wall_ns,
        total: tables.total,
        waits: sums.map(FileWaits::of),
        model: of_pack.flatten().or_else(slowest),
        observed,
        files,
        learned,
        host,
    }
}

/// What is learned of a command, and the model of its device.
fn learned(command: &[OsString], models: &Models) -> Option<(Learned, Option<Model>)> {
    let User { uid, variable } = User::own();
    let names = Key::of_command(command, locate).file_names();
    let (path, pack) = store::find(&names, uid, variable).ok()?;
    let pack = pack?;
    let model = models.of_pack(&pack, &Default::default());
    let expected = model.map(|model| Expected::of(&pack, &FREQUENT.choice(&pack), &model));
    let last_run = file::read(&path, &pack, uid).ok();
    Some((Learned { pack, expected, last_run }, model))
}

fn files_of(
    wall_ns: u64,
    recording: &Recording,
    tables: &Tables,
    observed: &Observed,
    models: &Models,
    Looked { root, silent }: Looked,
) -> HashMap<PathBuf, FileFacts> {
    let Ok(mounts) = MountTable::read() else { return HashMap::new() };
    let mut times: HashMap<&Path, u64> = HashMap::new();
    for part in &observed.parts {
        *times.entry(&part.path).or_default() += sum(&part.touches).time_ns;
    }
    // Tables of relocations that the loader has read, so that reading them waits for nothing.
    let is_table = |(place, _): &&(Place, _)| matches!(place, Place::File { section, .. } if section == ".rela.dyn");
    let with_table: HashSet<&[u8]> = tables
        .places
        .iter()
        .filter(is_table)
        .filter_map(|(place, _)| match place {
            Place::File { name, .. } => Some(recording.name(*name)),
            _ => None,
        })
        .collect();
    let mut found = HashMap::new();
    for mapping in recording.mappings.iter().filter(|mapping| mapping.object == Object::File) {
        let name = recording.name(mapping.name);
        let path = Path::new(OsStr::from_bytes(name));
        let time = times.get(path).copied().unwrap_or(0);
        let is_short = time.saturating_mul(LEAST_PART) < wall_ns;
        if found.contains_key(path) || is_short || silent.contains(&mapping.file.dev) {
            continue;
        }
        let Ok(file) = files::open_mapped(root, name, mapping.file) else { continue };
        let mut facts = FileFacts {
            size: file.metadata().map_or(0, |meta| meta.size()),
            ..FileFacts::default()
        };
        if with_table.contains(name) {
            let unpacked = relative::unpacked(&file).ok().flatten();
            facts.relocations = unpacked.map(|relative::Unpacked { bytes, saved, packed }| {
                Relocations { bytes, saved, packed }
            });
        }
        if let Some(mount) = mounts.at(path) {
            facts.file_system = mount.fstype.to_string_lossy().into_owned();
            let device = speed_device(mount).ok().flatten();
            let setting = readahead_setting(&file, mount.dev);
            facts.readahead = setting.map(|(file, kb)| (kb.saturating_mul(1024), file));
            facts.model = device.and_then(|device| models.of_device(device.rdev));
        }
        found.insert(path.to_owned(), facts);
    }
    found
}
