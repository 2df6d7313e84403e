//! What was measured of devices, kept beside the packs: which device a pack
//! lies on, and its model.
//!
//! The driver. A model only decides how fast a replay is, so one that is
//! missing, damaged or not to be trusted is as good as none.

use super::model::Model;
use super::probe::probe;
use crate::id::Dev;
use crate::pack::{Pack, store};
use crate::profile::fsid::{BlockDevice, speed_device};
use crate::profile::mounts::Mounts;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where models are, in a directory of packs.
const DIR: &str = "devices";
/// How the names of models begin that hold until the next boot.
const VOLATILE: &str = "boot-";

/// The directories of packs, those of this user first.
#[derive(Clone, Debug)]
pub struct Models {
    dirs: Vec<PathBuf>,
    uid: u32,
}

impl Models {
    /// Those that this process looks for.
    pub fn here() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let dirs = store::search_path(uid == 0, |name| std::env::var_os(name).map(PathBuf::from));
        Self { dirs: dirs.into_iter().map(|dir| dir.join(DIR)).collect(), uid }
    }

    /// The model of a device, if it was measured.
    pub fn of_device(&self, dev: Dev) -> Option<Model> {
        let name = file_name(dev)?;
        let read = |dir: &PathBuf| {
            let bytes = store::read_bytes(&dir.join(&name), self.uid).ok()?;
            serde_json::from_slice(&bytes).ok()
        };
        self.dirs.iter().find_map(read)
    }

    /// Measures a device and keeps the model.
    ///
    /// # Errors
    /// What [`probe`] or the directory said.
    pub fn measure(&self, device: &BlockDevice) -> io::Result<Model> {
        let model = probe(&device.path)?;
        if let (Some(dir), Some(name)) = (self.dirs.first(), file_name(device.rdev)) {
            let locked = store::lock(&dir.join(name)).map_err(io::Error::other)?;
            remove_those_of_other_boots(dir);
            locked.write_bytes(&serde_json::to_vec(&model)?)?;
        }
        Ok(model)
    }

    /// The model of the device of a pack, if that was measured.
    pub fn of_pack(&self, pack: &Pack, mounts: &Mounts) -> Option<Model> {
        self.of_device(device_of(pack, mounts)?.rdev)
    }

    /// Measures the device of a pack unless it was; this takes [`super::probe::LIMIT`].
    pub fn measure_new(&self, pack: &Pack) {
        let device = device_of(pack, &Mounts::default());
        if let Some(device) = device.filter(|device| self.of_device(device.rdev).is_none()) {
            // Without the right to read the device, its kind is not known.
            let _ = self.measure(&device);
        }
    }
}

/// The device that most bytes of a pack lie on.
pub fn device_of(pack: &Pack, mounts: &Mounts) -> Option<BlockDevice> {
    let mut pages = vec![0; pack.file_systems.len()];
    for range in &pack.ranges {
        let file = pack.files.get(range.file as usize)?;
        *pages.get_mut(usize::from(file.file_system))? += u64::from(range.pages);
    }
    let most = (0..pages.len()).max_by_key(|&at| pages[at])?;
    let file = pack.files.iter().find(|file| usize::from(file.file_system) == most)?;
    speed_device(mounts.table()?.at(&pack.paths.path(file.node))?).ok()?
}

/// The name of a device's model: its own identity, or one that holds until it
/// is taken away, at the latest until the next boot.
fn file_name(dev: Dev) -> Option<String> {
    let partition = PathBuf::from(format!("/sys/dev/block/{dev}"));
    let disk = match partition.join("partition").exists() {
        true => partition.join(".."),
        false => partition,
    };
    let text = |name: &str| {
        let text = fs::read_to_string(disk.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let own = ["wwid", "device/wwid", "device/serial", "device/cid", "dm/uuid", "md/uuid"];
    let name = match own.into_iter().find_map(text) {
        Some(id) => id,
        None => {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            // Counts what was attached; a loop device may be another file next.
            let seq = text("diskseq").or_else(|| text("dev"))?;
            format!("{VOLATILE}{}-{seq}", boot.trim())
        }
    };
    Some(format!("{}.json", plain(&name)))
}

/// A name that is safe as that of a file.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().take(200).map(plain).collect()
}

fn remove_those_of_other_boots(dir: &Path) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let ours = format!("{VOLATILE}{}", boot.trim());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(VOLATILE) && !name.starts_with(&ours) {
            // Another start may have done so.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn models_of_other_boots_are_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let ours = format!("boot-{}-3.json", boot.trim());
        for name in ["boot-0000-3.json", "eui_1.json", &ours] {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        remove_those_of_other_boots(dir.path());
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [ours.as_str(), "eui_1.json"]);
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
        let model = Model { latency_us: 1, next_us: 2, bandwidth_mb_s: 3, depth: 4, iops: 5 };
        let path = dir.path().join(DIR).join(file_name(dev).unwrap());
        fs::write(&path, serde_json::to_vec(&model).unwrap()).unwrap();
        assert_eq!(models.of_device(dev), Some(model));
        fs::write(&path, "{\"latency_us\": -1}").unwrap();
        assert_eq!(models.of_device(dev), None);
    }
}
