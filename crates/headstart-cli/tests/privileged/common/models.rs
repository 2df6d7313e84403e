//! Devices that are as fast as a model says, whatever the machine has.

use headstart::replay::model::Model;
use headstart::replay::models::Kept;
use headstart_testing::LoopFs;
use std::path::Path;

/// A network volume, on which each start waits.
pub const NETWORK: Model = Model::of(5000, 5000, 125, 16, 3000);

/// Keeps this model of the device of a file system beside these packs; returns whether it replaces one. The
/// device has another name each time that it is attached.
pub fn write_model(packs: &Path, fs: &LoopFs, model: Model) -> bool {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let number = std::fs::read_to_string(fs.sysfs().join("diskseq")).unwrap();
    let devices = packs.join("devices");
    let path = devices.join(format!("boot-{}-{}.json", boot.trim(), number.trim()));
    let is_there = path.exists();
    std::fs::create_dir_all(devices).unwrap();
    let kept = Kept { model, is_disturbed: false };
    std::fs::write(path, serde_json::to_vec(&kept).unwrap()).unwrap();
    is_there
}
