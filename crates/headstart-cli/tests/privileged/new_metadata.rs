//! Metadata that a start itself creates on ext4, such as the block of a directory for temporary files, is not learned:
//! nothing of it was read.

use crate::command::{headstart, json};
use headstart_sys::fiemap::extents;
use headstart_testing::{LoopFs, disk_dir, must, undisturbed};
use std::fs::File;
use std::path::Path;

/// The page of the device that holds the first block of a directory.
fn page_of(directory: &Path) -> u64 {
    extents(File::open(directory).unwrap()).unwrap()[0].physical / 4096
}

/// The pages of metadata in a pack.
fn metadata(pack: &str) -> Vec<u64> {
    let shown = json(&["show", "--json", pack]);
    let number = |range: &serde_json::Value, key: &str| range[key].as_u64().unwrap() / 4096;
    let pages = |range| number(range, "offset")..number(range, "offset") + number(range, "length");
    shown["metadata"].as_array().unwrap().iter().flat_map(pages).collect()
}

#[test]
fn the_block_of_a_directory_that_a_start_makes_is_not_learned_and_that_of_one_that_it_reads_is() {
    // Which blocks are in a page is not looked at.
    for (block, expected) in [("4096", [true, false]), ("1024", [true, true])] {
        let Some(fs) = LoopFs::with("ext4", 64 << 20, &["-b", block]) else { return };
        assert_eq!(learned(&fs), expected, "blocks of {block} bytes");
    }
}

/// Whether the blocks of a directory that a start reads, and of one that it makes, are learned.
fn learned(fs: &LoopFs) -> [bool; 2] {
    let (old, new) = (fs.path().join("old"), fs.path().join("new"));
    std::fs::create_dir(&old).unwrap();
    let packs = disk_dir();
    undisturbed(&[fs.path()], || {
        let pack = packs.path().join("a.pack").into_os_string().into_string().unwrap();
        // Left by an earlier measurement.
        let _ = (std::fs::remove_file(&pack), std::fs::remove_dir(&new));
        fs.remount();
        let script = r#"ls "$1" && mkdir "$2" && ls "$2""#;
        let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
        let record = ["record", "-q", "--pack", &pack, "--", "sh", "-c", script, "sh", old, new];
        let output = headstart(&record);
        assert!(output.status.success(), "{output:?}");
        must("sync", &["-f", fs.path().to_str().unwrap()]);
        let found = metadata(&pack);
        [old, new].map(|dir| found.contains(&page_of(Path::new(dir))))
    })
}
