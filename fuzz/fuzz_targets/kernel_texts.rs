//! Small texts of the kernel: counters of disks and CPUs, mappings of a process, the state
//! of a trace instance, subvolumes of btrfs. The first byte chooses which.
#![no_main]

use headstart::cache::smaps::parse_smaps;
use headstart::host::id::{Dev, InodeId};
use headstart::host::tree_items::items;
use headstart::host::{diskstats, proc};
use headstart::profile::resolve::subvol::parse_item;
use headstart::trace::texts::{only_ours, parse_marker, parse_now, parse_stats};
use headstart_bench::machine::Ticks;
use headstart_fuzz::split;
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    let (a, b) = split(data);
    let (first, second) = (String::from_utf8_lossy(a), String::from_utf8_lossy(b));
    match which % 6 {
        0 => {
            let (before, after) = (diskstats::parse(&first), diskstats::parse(&second));
            let read = diskstats::between(&before, &after);
            assert!(read.keys().all(|name| after.contains_key(name)));
            let _ = diskstats::in_flight(&first);
        }
        1 => {
            let file = InodeId { dev: Dev::new(0xfe, 1), ino: 1234 };
            let wanted = HashMap::from([(file, vec![(0..4).into(), (9..u64::MAX).into()])]);
            let found = parse_smaps(data, &wanted);
            assert!(found.iter().all(|(id, (pages, _))| *id == file && *pages > 0));
        }
        2 => {
            let stats = parse_stats(&first);
            assert!(stats.lost(true) >= stats.lost(false));
            let _ = (parse_now(&first), parse_marker(&first, &second));
            if let Some(events) = only_ours(&first) {
                assert_eq!(events.len(), first.lines().count());
            }
        }
        3 => {
            let _ = (proc::parse_start_time(data), proc::parse_parent(data));
        }
        4 => {
            let (then, now) = (Ticks::parse(&first, b), Ticks::parse(&second, a));
            if let (Some(then), Some(now)) = (then, now) {
                let others = now.others_since(then, 1.0, 100);
                assert!(others.busy >= 0.0 && others.stolen >= 0.0);
            }
        }
        _ => {
            let found = items(u32::from(*which) * 1000, data);
            let found: Vec<_> = found.map(|(key, item)| parse_item(key, item)).collect();
            assert!(found.len() <= data.len() / 32);
        }
    }
});
