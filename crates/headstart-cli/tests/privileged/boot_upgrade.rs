//! Boots after an upgrade: files that were replaced since they were learned.

use crate::common::scripted_boot::Boot;
use headstart_testing::{LoopFs, undisturbed, write_synced};
use std::fs;

const SIZE: usize = 200_000;

#[test]
fn a_file_that_was_replaced_by_one_of_about_its_size_is_read_like_that_before_it() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(boot) = Boot::new(&format!("upgrade-{kind}")) else { return };
        let Some(fs) = LoopFs::new(kind) else { continue };
        let files = ["alike", "larger", "link", "same"].map(|name| fs.path().join(name));
        for file in &files {
            write_synced(file, &[b'x'; SIZE]);
        }
        // So small that the size of what replaces it says nothing.
        write_synced(&files[2], &[b'x'; 4096]);
        fs.remount();
        boot.touches(&files);
        let mut learned = boot.learned("mounts", &fs);
        learned.sort();
        assert_eq!(learned, ["alike", "larger", "link", "same"], "{kind}");

        for (name, size) in [("alike", SIZE + SIZE / 10), ("larger", SIZE * 2)] {
            let new = fs.path().join("new");
            write_synced(&new, &vec![b'y'; size]);
            fs::rename(new, fs.path().join(name)).unwrap();
        }
        fs::remove_file(&files[2]).unwrap();
        std::os::unix::fs::symlink("same", &files[2]).unwrap();
        let pages = |bytes: usize| (bytes as u64).div_ceil(4096) * 4096;
        let prefetch = || {
            undisturbed(&[fs.path()], || {
                // What else was learned is the script's, and in memory afterwards.
                boot.prefetch();
                fs.remount();
                boot.prefetch().phases[0].report
            })
        };
        let report = prefetch();
        assert!(report.followed_files > 0 && report.stale_files > 1, "{kind}: {report:?}");
        assert_eq!(report.failed, 0, "another kind of file is another file: {report:?}");
        let read = report.bytes - report.metadata_bytes;
        assert_eq!(read, 2 * pages(SIZE), "{kind}: {report:?}");

        // Then it is learned.
        fs.remount();
        boot.again();
        boot.touches(&files);
        let report = prefetch();
        let read = report.bytes - report.metadata_bytes;
        let all = [SIZE, SIZE + SIZE / 10, SIZE * 2].map(pages).iter().sum::<u64>();
        assert_eq!(read, all, "{kind}: {report:?}");
    }
}
