//! Keeps device models next to the packs, and finds the device of a pack.
//!
//! The driver. A model only decides how fast a replay is, so a missing, damaged or untrusted one
//! counts as none.

use super::device::largest_request;
use super::model::Model;
use super::probe::probe;
use crate::host::contents;
use crate::host::diskstats::completed_of;
use crate::host::fsid::{BlockDevice, speed_device};
use crate::host::id::Dev;
use crate::host::mounts::Mounts;
use crate::host::user::User;
use crate::pack::store::TrustedDirectory;
use crate::pack::{Pack, store};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Where models are: beside a directory of packs, since all may read them.
const DIR: &str = "devices";
/// The prefix of models that are valid until the next boot.
const VOLATILE: &str = "boot-";
/// The prefix of models that boots keep for disks without an identity.
const BY_FILE_SYSTEM: &str = "fs-";
/// How often a device is measured that others use, and how long after each time.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Where models are that belong to a directory of packs.
fn beside(packs: &Path) -> PathBuf {
    match packs.ends_with("headstart/packs") || packs == Path::new(store::SHARED_DIR) {
        true => packs.with_file_name(DIR),
        // A directory that a user chose; nothing else in it is of headstart.
        false => packs.join(DIR),
    }
}

/// What is kept of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Its model.
    #[serde(flatten)]
    pub model: Model,
    /// Others used the device while it was measured. That is better than nothing, until it is measured
    /// again.
    #[serde(default)]
    pub is_disturbed: bool,
}

/// The directories of models, those of this user first.
#[derive(Clone, Debug)]
pub struct Models {
    dirs: Vec<PathBuf>,
    uid: u32,
}

impl Models {
    /// Those that this process looks for.
    pub fn here() -> Self {
        let user = User::own();
        let dirs = store::search_path(user.is_root(), user.variable);
        // Where that is wrong there are no packs either, and those who look for them say so.
        let dirs = dirs.unwrap_or_default();
        Self { dirs: dirs.iter().map(|dir| beside(dir)).collect(), uid: user.uid }
    }

    /// The model of a device, if it was measured.
    pub fn of_device(&self, dev: Dev) -> Option<Model> {
        Some(self.read(&file_name(dev)?)?.model)
    }

    /// A directory of models, if there is one that can be trusted.
    fn trusted(&self, dir: &Path) -> Option<TrustedDirectory> {
        TrustedDirectory::open(dir, self.uid).ok()?
    }

    fn read(&self, name: &str) -> Option<Kept> {
        let read = |dir: &PathBuf| {
            let bytes = self.trusted(dir)?.read(name.as_ref()).ok()?;
            serde_json::from_slice(&bytes).ok()
        };
        self.dirs.iter().find_map(read)
    }

    /// Measures a device and keeps the model, also in the place of what boots know of a
    /// device that has this name now.
    ///
    /// # Errors
    /// What [`probe`] or the directory said, or that others used the device each time.
    pub fn measure(&self, device: &BlockDevice) -> io::Result<Model> {
        let dir = self.dirs.first().and_then(|dir| self.trusted(dir));
        let of_boots = dir.map(|dir| of_boots(&dir, &disk_of(device.rdev))).unwrap_or_default();
        let names: Vec<_> = file_name(device.rdev).into_iter().chain(of_boots).collect();
        for _ in 0..TRIES {
            let found = self.measure_as(device, names.clone())?;
            if !found.is_disturbed {
                return Ok(found.model);
            }
            thread::sleep(PAUSE);
        }
        Err(io::Error::other("others use it; measure it when it is idle"))
    }

    /// Measures it once, under these names. A disturbed measurement replaces none that is not.
    fn measure_as(
        &self,
        device: &BlockDevice,
        names: impl IntoIterator<Item = String>,
    ) -> io::Result<Kept> {
        // Before it takes time.
        let open = |dir: &PathBuf| TrustedDirectory::open_or_create(dir, self.uid, 0o755);
        let dir = self.dirs.first().map(open).transpose().map_err(io::Error::other)?;
        let stat = || text(&disk_of(device.rdev), "stat");
        let served = || completed_of(stat()?.split_ascii_whitespace());
        let before = served();
        let largest = largest_request(device.rdev);
        let probed = probe(&device.path, largest)?;
        let served = before.zip(served()).map_or(0, |(before, after)| after.wrapping_sub(before));
        let is_disturbed = probed.is_disturbed(served, largest);
        let kept = Kept { model: probed.model, is_disturbed };
        let Some(dir) = dir else { return Ok(kept) };
        remove_those_of_removed_disks(&dir);
        for name in names {
            if !is_disturbed || !self.is_settled(&name) {
                dir.write_for_all(name.as_ref(), &serde_json::to_vec(&kept)?)?;
            }
        }
        Ok(kept)
    }

    /// Whether there is a model of this name that need not be measured again.
    fn is_settled(&self, name: &str) -> bool {
        self.read(name).is_some_and(|kept| !kept.is_disturbed)
    }

    /// The model of the device of a pack, if that was measured.
    pub fn of_pack(&self, pack: &Pack, mounts: &Mounts) -> Option<Model> {
        Some(self.kept_of_pack(pack, mounts)?.model)
    }

    /// What is kept of the device of a pack.
    pub fn kept_of_pack(&self, pack: &Pack, mounts: &Mounts) -> Option<Kept> {
        self.read(&file_name(device_of(pack, mounts)?.rdev)?)
    }

    /// Measures the device of a pack unless it was, undisturbed; this takes [`super::probe::LIMIT`].
    pub fn measure_new(&self, pack: &Pack) {
        let Some(device) = device_of(pack, &Mounts::default()) else { return };
        let name = file_name(device.rdev);
        if !name.as_ref().is_some_and(|name| self.is_settled(name)) {
            // Without the right to read the device, its kind is not known.
            let _ = self.measure_as(&device, name);
        }
    }

    /// The model of the device of a boot's pack, if that was measured in an earlier boot.
    pub fn of_boot(&self, pack: &Pack, mounts: &Mounts) -> Option<Model> {
        Some(self.read(&lasting_name(device_of(pack, mounts)?.rdev, pack)?)?.model)
    }

    /// As [`Self::measure_new`], for the next boot: many virtual disks have no identity of
    /// their own, and what is kept of those for programs does not last so long.
    pub fn measure_for_boots(&self, pack: &Pack) {
        let mounts = Mounts::default();
        let Some(device) = device_of(pack, &mounts) else { return };
        // A device without a name would be probed at each boot.
        let name = lasting_name(device.rdev, pack).filter(|name| !self.is_settled(name));
        if name.is_some() {
            // As above.
            let _ = self.measure_as(&device, name);
        }
    }
}

/// The device that most bytes of a pack lie on.
pub fn device_of(pack: &Pack, mounts: &Mounts) -> Option<BlockDevice> {
    let most = main_file_system(pack)?;
    let file = pack.files.iter().find(|file| usize::from(file.file_system) == most)?;
    speed_device(mounts.table()?.at(&pack.paths.path(file.node))?).ok()?
}

/// The file system that most bytes of a pack lie on.
fn main_file_system(pack: &Pack) -> Option<usize> {
    let mut pages = vec![0; pack.file_systems.len()];
    for range in &pack.ranges {
        let file = pack.files.get(range.file as usize)?;
        *pages.get_mut(usize::from(file.file_system))? += u64::from(range.pages);
    }
    (0..pages.len()).max_by_key(|&at| pages[at])
}

/// The directory of a device in sysfs; for a partition, that of its disk.
fn disk_of(dev: Dev) -> PathBuf {
    let partition = PathBuf::from(format!("/sys/dev/block/{dev}"));
    match partition.join("partition").exists() {
        true => partition.join(".."),
        false => partition,
    }
}

/// What a file of a disk says, if that is anything.
fn text(disk: &Path, name: &str) -> Option<String> {
    let text = contents::text(disk.join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The identity of a disk itself, which is the same in any machine.
fn own_name(disk: &Path) -> Option<String> {
    let own =
        ["wwid", "device/wwid", "device/serial", "device/cid", "serial", "dm/uuid", "md/uuid"];
    own.into_iter().find_map(|name| text(disk, name))
}

/// The name of a device's model: its identity, or a name that is valid until the device is removed,
/// at most until the next boot.
fn file_name(dev: Dev) -> Option<String> {
    let disk = disk_of(dev);
    match own_name(&disk) {
        Some(id) => Some(format!("{}.json", plain(&id))),
        None => volatile_name(&disk),
    }
}

/// The name that is valid until a disk is removed.
fn volatile_name(disk: &Path) -> Option<String> {
    let boot = contents::text("/proc/sys/kernel/random/boot_id").ok()?;
    // Counts what was attached; a loop device may be another file next.
    let seq = text(disk, "diskseq").or_else(|| text(disk, "dev"))?;
    Some(format!("{}.json", plain(&format!("{VOLATILE}{}-{seq}", boot.trim()))))
}

/// The same for a disk that machines boot from. Without an identity it is known by the UUID of the
/// pack's file system and by the kernel's name, which distinguishes most copies of an image on
/// other kinds of disks.
fn lasting_name(dev: Dev, pack: &Pack) -> Option<String> {
    let disk = disk_of(dev);
    let by_file_system = || {
        let uuid = pack.file_systems.get(main_file_system(pack)?)?.uuid?;
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("{BY_FILE_SYSTEM}{hex}-{}", called(&disk)?))
    };
    let name = own_name(&disk).or_else(by_file_system)?;
    Some(format!("{}.json", plain(&name)))
}

/// What the kernel calls a disk.
fn called(disk: &Path) -> Option<String> {
    Some(plain(fs::canonicalize(disk).ok()?.file_name()?.to_str()?))
}

/// The files with the models of disks with this kernel name.
fn of_boots(dir: &TrustedDirectory, disk: &Path) -> Vec<String> {
    let Some(called) = called(disk) else { return Vec::new() };
    let is_of_it = |name: &str| {
        let known = name.strip_prefix(BY_FILE_SYSTEM)?.strip_suffix(".json")?;
        Some(known.split_once('-')?.1 == called)
    };
    let names = dir.names().unwrap_or_default().into_iter();
    let names = names.filter_map(|name| name.into_string().ok());
    names.filter(|name| is_of_it(name) == Some(true)).collect()
}

/// A name that is safe as that of a file.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().take(200).map(plain).collect()
}

/// Removes models of disks that are gone, such as loop devices that were detached.
fn remove_those_of_removed_disks(dir: &TrustedDirectory) {
    let Ok(disks) = fs::read_dir("/sys/block") else { return };
    let names = disks.flatten().filter_map(|disk| volatile_name(&disk.path()));
    let present: HashSet<OsString> = names.map(OsString::from).collect();
    let is_gone =
        |name: &OsString| name.to_string_lossy().starts_with(VOLATILE) && !present.contains(name);
    for name in dir.names().unwrap_or_default().iter().filter(|name| is_gone(name)) {
        // The next start tries again.
        let _ = dir.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::usage::How;
    use crate::pack::{File, FileSystem, History, Range};

    #[test]
    fn names_of_devices_are_safe_as_those_of_files() {
        for (name, expected) in [
            ("eui.0025385b71b0", "eui_0025385b71b0"),
            ("t10.ATA     QEMU/../x", "t10_ATA_____QEMU____x"),
            ("boot-1a-7", "boot-1a-7"),
        ] {
            assert_eq!(plain(name), expected);
        }
    }

    #[test]
    fn for_boots_each_disk_has_a_name_that_lasts() {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let range =
            Range { file: 0, first: 0, pages: 1, at_us: 0, how: How::READ, history: History(1) };
        let mut pack = Pack {
            file_systems: vec![FileSystem { uuid: Some([0xab; 16]), ..FileSystem::default() }],
            files: vec![File::default()],
            ranges: vec![range],
            ..Pack::default()
        };
        let mut seen = 0;
        for disk in fs::read_dir("/sys/block").unwrap().flatten() {
            let dev: Dev =
                fs::read_to_string(disk.path().join("dev")).unwrap().trim().parse().unwrap();
            let called = disk.file_name().into_string().unwrap();
            pack.file_systems[0].uuid = Some([0xab; 16]);
            let name = lasting_name(dev, &pack).unwrap();
            assert!(!name.contains(boot.trim()), "{name}");
            if own_name(&disk.path()).is_none() {
                assert_eq!(
                    name,
                    format!("{}.json", plain(&format!("fs-{}-{called}", "ab".repeat(16))))
                );
                pack.file_systems[0].uuid = None;
                assert_eq!(lasting_name(dev, &pack), None, "nothing tells it from others");
            }
            seen += 1;
        }
        assert!(seen > 0);
    }

    fn trusted(dir: &Path) -> TrustedDirectory {
        TrustedDirectory::open(dir, rustix::process::geteuid().as_raw()).unwrap().unwrap()
    }

    #[test]
    fn models_of_removed_disks_are_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        // No disk is attached as the last of so many.
        let gone = format!("boot-{}-{}.json", boot.trim(), u64::MAX);
        let disk = fs::read_dir("/sys/block").unwrap().flatten().next().unwrap();
        let ours = volatile_name(&disk.path()).unwrap();
        for name in ["boot-0000-3.json", &gone, "eui_1.json", "fs-01-vda.json", &ours] {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        remove_those_of_removed_disks(&trusted(dir.path()));
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [ours.as_str(), "eui_1.json", "fs-01-vda.json"]);
    }

    #[test]
    fn what_boots_know_of_a_disk_is_found_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("vda");
        for name in ["vda", "fs-00ff-vda.json", "fs-01-vda1.json", "fs-02-sda.json", "x-vda.json"] {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        assert_eq!(of_boots(&trusted(dir.path()), &disk), ["fs-00ff-vda.json"]);
        assert!(of_boots(&trusted(dir.path()), &dir.path().join("vdb")).is_empty());
    }

    #[test]
    fn a_model_of_before_is_one_that_was_not_disturbed() {
        let model = r#"{"latency_us":1,"next_us":2,"bandwidth_mb_s":3,"depth":4,"iops":5}"#;
        let kept: Kept = serde_json::from_str(model).unwrap();
        assert!(!kept.is_disturbed && kept.model.iops == 5);
        assert_eq!(kept.model.request_rate(), 5);
        let disturbed = Kept { is_disturbed: true, ..kept };
        let bytes = serde_json::to_vec(&disturbed).unwrap();
        assert_eq!(serde_json::from_slice::<Kept>(&bytes).unwrap(), disturbed);
        // Builds of before read it, too.
        assert_eq!(serde_json::from_slice::<Model>(&bytes).unwrap(), kept.model);
    }

    #[test]
    fn a_damaged_model_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let models =
            Models { dirs: vec![dir.path().join(DIR)], uid: rustix::process::geteuid().as_raw() };
        fs::create_dir(dir.path().join(DIR)).unwrap();
        // Every machine has one of these.
        let dev = |name: &str| fs::read_to_string(format!("/sys/block/{name}/dev")).ok();
        let some = fs::read_dir("/sys/block").unwrap().flatten().next().unwrap().file_name();
        let text = dev(some.to_str().unwrap()).unwrap();
        let dev: Dev = text.trim().parse().unwrap();
        assert_eq!(models.of_device(dev), None);
        let model = Model::of(1, 2, 3, 4, 5);
        let path = dir.path().join(DIR).join(file_name(dev).unwrap());
        fs::write(&path, serde_json::to_vec(&model).unwrap()).unwrap();
        assert_eq!(models.of_device(dev), Some(model));
        fs::write(&path, "{\"latency_us\": -1}").unwrap();
        assert_eq!(models.of_device(dev), None);
    }
}
