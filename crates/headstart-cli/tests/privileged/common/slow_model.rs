//! A device that is slow as its model says.

use headstart::replay::model::Model;
use headstart::replay::models::Kept;
use headstart_testing::LoopFs;
use std::path::Path;

/// A network volume.
const SLOW: Model =
    Model { latency_us: 5000, next_us: 5000, bandwidth_mb_s: 125, depth: 16, iops: 3000 };

/// Makes the device of a file system slow in the model that is kept of it beside these packs. The device has
/// another name each time that it is attached.
pub fn write_slow_model(packs: &Path, fs: &LoopFs) {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let number = std::fs::read_to_string(fs.sysfs().join("diskseq")).unwrap();
    let name = format!("boot-{}-{}.json", boot.trim(), number.trim());
    let kept = Kept { model: SLOW, is_disturbed: false };
    let devices = packs.join("devices");
    std::fs::create_dir_all(&devices).unwrap();
    std::fs::write(devices.join(name), serde_json::to_vec(&kept).unwrap()).unwrap();
}
