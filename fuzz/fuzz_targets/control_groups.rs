//! What the kernel says of control groups and of pressure: whatever it is, groups lie
//! at mount points or below, and leave no more than their limit. Each text ends at a
//! zero byte.
#![no_main]

use headstart::host::cgroup::{groups, stalled_us};
use headstart::host::mounts::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut texts = data.split(|byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
    let (of_process, mounts, limit, used, stat) = (text(), text(), text(), text(), text());
    let _ = stalled_us(&stat);
    let Ok(mounts) = parse(mounts.as_bytes()) else { return };
    for group in groups(&of_process, &mounts) {
        assert!(mounts.iter().any(|mount| group.dir.starts_with(&mount.mount_point)));
        let left = group.headroom(|file| {
            Some(match file {
                "memory.stat" => stat.clone(),
                "memory.current" | "memory.usage_in_bytes" => used.clone(),
                _ => limit.clone(),
            })
        });
        let limit = limit.trim().parse::<u64>().unwrap_or(u64::MAX);
        assert!(left.is_none_or(|left| left <= limit));
    }
});
