//! `headstart layout apply --compress` on a loop-mounted btrfs.

use crate::common::laid_out::{
    check, done, fails, fragmented, in_memory, json, layout, of_kind, pack, places, states,
};
use headstart_sys::fiemap::{Stored, pieces};
use headstart_testing::{LoopFs, must, noise, skip};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const BYTES: u64 = 512 << 20;

/// Files of text of so many bytes, each other text.
fn texts(fs: &LoopFs, sizes: &[usize]) -> Vec<PathBuf> {
    let make = |(n, size): (usize, &usize)| {
        let path = fs.path().join(format!("text{n}"));
        let text: Vec<u8> = noise(*size / 2 + 1)
            .iter()
            .flat_map(|byte| format!("{:02x}", byte ^ n as u8).into_bytes())
            .collect();
        fs::write(&path, &text[..*size]).unwrap();
        path
    };
    sizes.iter().enumerate().map(make).collect()
}

fn is_compressed(path: &Path) -> bool {
    // A last block alone does not get smaller.
    let found = pieces(File::open(path).unwrap()).unwrap();
    found[0].1 == Stored::Encoded
}

#[test]
fn what_starts_read_takes_less_of_the_disk_holds_the_same_and_comes_back_as_it_was() {
    let Some(fs) = of_kind("btrfs", BYTES) else { return };
    // One has several extents, two parts of a layout, and an end within a block.
    let paths = texts(&fs, &[30_000, (9 << 20) + 17, 4097]);
    let mut all = paths.clone();
    all.push(fs.path().join("noise"));
    fs::write(&all[3], noise(300_000)).unwrap();
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let pack = pack(&fs, &all);
    let (before, old) = (states(&all), places(&all));
    let plan = json(&[&"plan", &"--json", &"--compress", &pack]);
    let [bytes, compressed] =
        ["bytes", "compressed"].map(|key| plan["sample"][key].as_u64().unwrap());
    assert!(bytes > 1 << 20 && compressed * 3 < bytes * 2, "{plan}");
    // Each step of a replay is a request, however small its range gets.
    let [now, then] =
        ["before", "after"].map(|when| plan["gain"][when]["requests"].as_u64().unwrap());
    assert_eq!(then, now, "{plan}");
    for how in ["--compress", "--compress=zstd:9"] {
        let output = layout(&[&"apply", &"--force", &how, &pack]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("take Linux 6.15") {
            return skip("this kernel takes no level");
        }
        assert!(output.status.success(), "{said}");
        let compressed: Vec<bool> = paths.iter().map(|path| is_compressed(path)).collect();
        assert_eq!(compressed, [true; 3]);
        assert!(!is_compressed(&all[3]), "what gets no smaller is not");
        let status = json(&[&"status", &"--json", &fs.path()]);
        assert_eq!((&status["old_bytes"], &status["elsewhere_bytes"]), (&0.into(), &0.into()));
        must(env!("CARGO_BIN_EXE_headstart"), &["pack", "verify", pack.to_str().unwrap()]);
        check(&fs);
        assert_eq!(states(&all), before);
        done(&[&"verify", &fs.path()]);
        done(&[&"undo", &fs.path()]);
        assert_eq!((states(&all), places(&all)), (before.clone(), old.clone()));
    }
    done(&[&"apply", &"--force", &"--compress", &pack]);
    done(&[&"release", &fs.path()]);
    check(&fs);
    assert!(states(&all) == before && is_compressed(&paths[1]));
    // It is not compressed twice.
    let said =
        fails(&[&"apply", &"--force", &"--compress", &"--budget=1M", &self::pack(&fs, &paths)], 3);
    assert!(said.contains("none of these files can be moved"), "{said}");
}

#[test]
fn a_file_that_is_written_after_it_was_compressed_keeps_what_was_written() {
    let Some(fs) = of_kind("btrfs", BYTES) else { return };
    let paths = texts(&fs, &[600_000, 400_000]);
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let (pack, old) = (pack(&fs, &paths), places(&paths));
    done(&[&"apply", &"--force", &"--compress", &pack]);
    let mut text = fs::read(&paths[0]).unwrap();
    text[150_000..150_100].fill(b'-');
    fs::write(&paths[0], &text).unwrap();
    let status = json(&[&"status", &"--json", &fs.path()]);
    assert_eq!(status["other_files"], serde_json::json!({ "changed": 1 }), "{status}");
    done(&[&"undo", &fs.path()]);
    assert_eq!(fs::read(&paths[0]).unwrap(), text);
    assert_eq!(places(&paths[1..]), old[1..]);
    check(&fs);
}

#[test]
fn only_btrfs_compresses() {
    let Some(fs) = in_memory() else { return };
    let paths = fragmented(&fs, 3, 3);
    let said = fails(&[&"apply", &"--force", &"--compress", &pack(&fs, &paths)], 1);
    assert!(said.contains("is not on btrfs"), "{said}");
    for wrong in ["--compress=lzo", "--compress=zstd:99"] {
        let said = fails(&[&"plan", &wrong, &pack(&fs, &paths)], 2);
        assert!(said.contains("like zstd or zstd:9"), "{said}");
    }
}
