//! `headstart layout apply --make-room` on loop-mounted ext4 whose free space is in pieces: other files are moved aside,
//! stay whole whatever ends it, and come back.

use crate::common::laid_out::{
    cut_power, dir, done, fails, fragmented, in_memory, json, layout, pack, places, run_until,
    states, took,
};
use crate::common::packs;
use crate::common::perforated::Perforated;
use headstart_sys::fiemap::Extent;
use headstart_testing::{LoopFs, has, must, noise, skip};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn rig() -> Option<Perforated> {
    Perforated::of("ext4", 48 << 20)
}

/// Applies the layout; what it moved of other files, in bytes.
fn moved_aside(rig: &Perforated) -> u64 {
    let done = json(&[&"apply", &"--force", &"--make-room", &"--json", &rig.pack]);
    assert!(done["moved_bytes"].as_u64() > Some(0), "{done}");
    done["aside_bytes"].as_u64().unwrap()
}

/// From the first to the last byte of files, on the device.
fn span(places: &[Vec<Extent>]) -> u64 {
    let all = || places.iter().flatten();
    let first = all().map(|extent| extent.physical).min().unwrap();
    all().map(|extent| extent.physical + extent.length).max().unwrap() - first
}

/// Bytes of a file that lie elsewhere than before.
fn moved(old: &[Extent], new: &[Extent]) -> u64 {
    let blocks = |list: &[Extent]| -> BTreeSet<(u64, u64)> {
        let of = |e: &Extent| {
            (0..e.length)
                .step_by(4096)
                .map(|at| (e.logical + at, e.physical + at))
                .collect::<Vec<_>>()
        };
        list.iter().flat_map(of).collect()
    };
    blocks(old).difference(&blocks(new)).count() as u64 * 4096
}

#[test]
fn a_layout_lies_in_one_area_when_others_are_moved_aside_and_undo_moves_all_back() {
    let Some(rig) = rig() else { return };
    let (before, old) = (states(&rig.all()), places(&rig.all()));
    let said = done(&[&"apply", &"--force", &rig.pack]);
    assert!(said.contains("pieces") && said.contains("with --make-room"), "{said}");
    let in_pieces = span(&places(&rig.paths));
    assert_eq!(places(&rig.others), old[rig.paths.len()..], "they are moved only with --make-room");
    done(&[&"undo", &rig.fs.path()]);

    let aside = moved_aside(&rig);
    assert!(aside > 0);
    let length: u64 = old[..rig.paths.len()].iter().flatten().map(|e| e.length).sum();
    let new = places(&rig.all());
    let (laid_out, others) = new.split_at(rig.paths.len());
    // With files that stay between.
    assert!(span(laid_out) < length * 3 / 2, "{} of {length}", span(laid_out));
    assert!(span(laid_out) < in_pieces, "{} and {in_pieces}", span(laid_out));
    let mut pieces = others.iter().zip(&old[rig.paths.len()..]);
    assert!(pieces.all(|(new, old)| new.len() <= old.len()), "{others:?}");
    let moved = others.iter().zip(&old[rig.paths.len()..]).map(|(new, old)| moved(old, new));
    assert_eq!(moved.sum::<u64>(), aside);
    assert_eq!(states(&rig.all()), before);
    let status = json(&[&"status", &"--json", &rig.fs.path()]);
    assert_eq!(
        (&status["aside_bytes"], &status["aside_new_bytes"]),
        (&aside.into(), &aside.into())
    );
    assert_eq!((&status["new_bytes"], &status["old_bytes"]), (&length.into(), &0.into()));
    assert_eq!(status["files"], rig.paths.len());
    assert!(done(&[&"status", &rig.fs.path()]).contains("moved aside"));
    rig.check();
    done(&[&"verify", &rig.fs.path()]);
    assert_eq!(states(&rig.all()), before);

    let undone = json(&[&"undo", &"--json", &rig.fs.path()]);
    assert_eq!(undone["aside_bytes"], aside, "{undone}");
    assert_eq!(places(&rig.all()), old);
    assert!(!dir(&rig.fs).exists());
    rig.check();
    assert_eq!(states(&rig.all()), before);
}

#[test]
fn files_of_packs_of_boot_loaders_and_in_use_are_not_moved_aside() {
    let Some(mut rig) = rig() else { return };
    let boot = rig.fs.path().join("boot");
    fs::create_dir(&boot).unwrap();
    for path in &mut rig.others[..20] {
        let there = boot.join(path.file_name().unwrap());
        fs::rename(&path, &there).unwrap();
        *path = there;
    }
    let (written, rest) = rig.others[20..].split_at(20);
    let (running, known) = rest.split_first().unwrap();
    fs::write(running, fs::read("/bin/sleep").unwrap()).unwrap();
    must("chmod", &["+x", running.to_str().unwrap()]);
    // Whatever their names are.
    for path in known {
        let name = path.file_name().unwrap().to_str().unwrap();
        fs::hard_link(path, path.with_file_name(format!("again-{name}"))).unwrap();
    }
    for (n, path) in rig.paths.iter().enumerate() {
        fs::hard_link(path, rig.fs.path().join(format!("others/{n}"))).unwrap();
    }
    pack(&rig.fs, &rig.paths);
    must("sync", &["-f", rig.fs.path().to_str().unwrap()]);
    let (before, old) = (states(&rig.all()), places(&rig.all()));
    let folder = rig.fs.beside("packs");
    fs::create_dir(&folder).unwrap();
    let files: Vec<_> = known.iter().map(|path| (path.as_path(), path.as_path(), 24)).collect();
    packs::write(&rig.fs, &folder.join("others.pack"), &files);
    let open = |path: &PathBuf| OpenOptions::new().append(true).open(path).unwrap();
    let open: Vec<File> = written.iter().map(open).collect();
    let mut process = Command::new(running).arg("1000").spawn().unwrap();
    let output = rig.apply().env("HEADSTART_PACKS", &folder).stderr(Stdio::piped()).output();
    process.kill().unwrap();
    process.wait().unwrap();
    drop(open);
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !said.contains("moved, and"), "{said}");
    let now = places(&rig.all());
    assert_eq!(now[rig.paths.len()..], old[rig.paths.len()..]);
    assert_eq!(states(&rig.all()), before);
}

#[test]
fn files_whose_place_is_taken_or_that_changed_stay_aside_and_the_others_come_back() {
    let Some(rig) = rig() else { return };
    let old = places(&rig.all());
    moved_aside(&rig);
    let aside = places(&rig.others);
    let old_others = &old[rig.paths.len()..];
    let moved: Vec<usize> = (0..aside.len()).filter(|&n| aside[n] != old_others[n]).collect();
    // As a log is written to.
    let changed = &rig.others[*moved.last().unwrap()];
    OpenOptions::new().append(true).open(changed).unwrap().write_all_at(b"more", 0).unwrap();
    assert_eq!(json(&[&"status", &"--json", &rig.fs.path()])["old_bytes"], 0);
    done(&[&"status", &rig.fs.path()]);
    // As an upgrade replaces what is laid out.
    for path in &rig.paths[..6] {
        let new = path.with_extension("new");
        fs::write(&new, noise(5000)).unwrap();
        fs::rename(new, path).unwrap();
    }
    must("sync", &["-f", rig.fs.path().to_str().unwrap()]);
    fails(&[&"status", &rig.fs.path()], 3);
    let before = states(&rig.all());
    let undone = json(&[&"undo", &"--json", &rig.fs.path()]);
    assert!(undone["skipped"]["displaced"].as_u64() > Some(0), "{undone}");
    assert!(!dir(&rig.fs).exists());
    assert_eq!(states(&rig.all()), before);
    assert_eq!(places(&rig.paths[6..]), old[6..rig.paths.len()]);
    rig.check();
    assert_eq!(states(&rig.all()), before);
}

#[test]
fn kill_9_at_any_moment_leaves_files_that_are_moved_aside_whole_too() {
    const KILLS: u32 = 10;
    let Some(rig) = rig() else { return };
    let (before, old) = (states(&rig.all()), places(&rig.all()));
    let whole = took(&mut rig.apply());
    done(&[&"undo", &rig.fs.path()]);
    let mut between = 0;
    for n in 0..KILLS {
        let moment = whole * (2 * (n * 7 % KILLS) + 1) / (2 * KILLS);
        let is_aside = || places(&rig.others) != old[rig.paths.len()..];
        // Half of them as soon as a file is moved aside.
        let is_due = |elapsed| if n % 2 == 0 { elapsed >= moment } else { is_aside() };
        run_until(&mut rig.apply(), is_due, |child| child.kill().unwrap());
        assert_eq!(states(&rig.all()), before, "after {moment:?}");
        let has_journal = dir(&rig.fs).join("journal").exists();
        if has_journal {
            let status = json(&[&"status", &"--json", &rig.fs.path()]);
            between += u32::from(status["aside_new_bytes"] != 0 && status["old_bytes"] != 0);
        }
        if n % 4 < 2 && has_journal {
            done(&[&"resume", &rig.fs.path()]);
            assert_eq!(json(&[&"status", &"--json", &rig.fs.path()])["old_bytes"], 0);
            assert_eq!(states(&rig.all()), before, "after {moment:?}");
        }
        assert!(matches!(layout(&[&"undo", &rig.fs.path()]).status.code(), Some(0 | 3)));
        assert_eq!((states(&rig.all()), places(&rig.all())), (before.clone(), old.clone()));
    }
    assert!(between > 0, "none was killed between two swaps");
    rig.check();
    assert_eq!(states(&rig.all()), before);
}

#[test]
fn a_power_cut_at_any_moment_leaves_files_that_are_moved_aside_whole_too() {
    const CUTS: u32 = 6;
    if !has("python3") {
        return skip("python3 is missing");
    }
    let Some(rig) = rig() else { return };
    let (before, old) = (states(&rig.all()), places(&rig.all()));
    let whole = took(&mut rig.apply());
    done(&[&"undo", &rig.fs.path()]);
    must("sync", &["-f", rig.fs.path().to_str().unwrap()]);
    for n in 0..CUTS {
        let moment = whole * (2 * n + 1) / (2 * CUTS);
        run_until(&mut rig.apply(), |elapsed| elapsed >= moment, |_| cut_power(&rig.fs));
        rig.fs.remount();
        assert_eq!(states(&rig.all()), before, "after {moment:?}");
        rig.check();
        assert!(matches!(layout(&[&"undo", &rig.fs.path()]).status.code(), Some(0 | 3)));
        assert_eq!((states(&rig.all()), places(&rig.all())), (before.clone(), old.clone()));
        rig.check();
    }
}

#[test]
fn room_is_not_made_by_parts_of_pages_or_where_a_layout_lies_in_one_piece() {
    let Some(fs) = in_memory() else { return };
    let pack_of = |fs: &LoopFs| pack(fs, &fragmented(fs, 3, 4));
    let done = json(&[&"apply", &"--force", &"--make-room", &"--json", &pack_of(&fs)]);
    assert_eq!(done["aside_bytes"], 0, "{done}");
    let refused = |fs: &LoopFs| {
        let said = fails(&[&"apply", &"--force", &"--make-room", &pack_of(fs)], 1);
        assert!(
            said.contains("on ext4 and xfs with blocks as large as a page, and on btrfs"),
            "{said}"
        );
        assert!(!dir(fs).exists());
    };
    let Some(fs) = LoopFs::with("ext4", 64 << 20, &["-b", "1024"]) else { return };
    refused(&fs);
    let Some(fs) = LoopFs::with("xfs", 320 << 20, &["-b", "size=1024"]) else { return };
    refused(&fs);
}

#[test]
fn what_is_moved_aside_is_on_the_disk_before_others_get_its_blocks_and_the_other_way_round() {
    if !has("strace") {
        return skip("strace is missing");
    }
    let Some(rig) = rig() else { return };
    let log = rig.fs.beside("calls");
    let calls = |words: &[&OsStr]| {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-e", "trace=ioctl,syncfs", "-o"]).arg(&log);
        strace.arg(env!("CARGO_BIN_EXE_headstart")).arg("layout").args(words);
        let output = strace.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = fs::read_to_string(&log).unwrap();
        let call = |line: &str| match () {
            () if line.contains("syncfs(") => Some("sync"),
            // As strace calls EXT4_IOC_MOVE_EXT, with its name or without.
            () if line.contains("MOVE_EXT") || line.contains("0x66, 0xf,") => Some("swap"),
            () => None,
        };
        let mut calls: Vec<&str> = text.lines().filter_map(call).collect();
        calls.dedup();
        calls.into_iter().skip_while(|call| *call == "sync").collect::<Vec<_>>().join(" ")
    };
    let apply = ["apply", "--force", "--make-room"].map(OsStr::new);
    let twice = "swap sync swap sync";
    assert_eq!(calls(&[&apply[..], &[rig.pack.as_os_str()]].concat()), twice);
    assert_eq!(calls(&["undo".as_ref(), rig.fs.path().as_os_str()]), twice);
}
