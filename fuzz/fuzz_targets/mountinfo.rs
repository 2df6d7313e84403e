//! `/proc/PID/mountinfo` and the table made of it.
#![no_main]

use headstart::host::mounts::{MountTable, parse};
use headstart::host::names::{is_visible, name, unescape};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    assert!(unescape(data).len() <= data.len());
    let shown = name(data);
    assert!(shown.chars().all(is_visible));
    assert_eq!(unescape(shown.as_bytes()), data);
    let Ok(mounts) = parse(data) else { return };
    assert!(mounts.len() <= data.split(|byte| *byte == b'\n').count());
    let root = mounts.last().map(|mount| mount.id);
    for table in [MountTable::new(mounts.clone(), None), MountTable::new(mounts.clone(), root)] {
        for mount in table.mounts() {
            for visible in table.visible_of(mount.dev) {
                // The kernel's mount points have no empty components; with such
                // ones another mount may be found.
                assert!(table.at(&visible.mount_point).is_some());
            }
            let _ = table.inside(&mount.mount_point);
            let _ = table.paths_to(mount.dev, &mount.root.join(Path::new("a/b")));
        }
    }
});
