//! Names of block devices.

use headstart::host::contents;
use headstart::host::id::Dev;

/// A device as the kernel calls it; its numbers where that can't be read.
pub fn name(device: Dev) -> String {
    let numbers = format!("{}:{}", device.major(), device.minor());
    let uevent = contents::text(format!("/sys/dev/block/{numbers}/uevent")).unwrap_or_default();
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    name.map_or(numbers, str::to_owned)
}
