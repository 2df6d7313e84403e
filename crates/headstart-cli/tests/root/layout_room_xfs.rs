//! `headstart layout apply --make-room` on loop-mounted xfs whose free space is in pieces: other files get blocks
//! elsewhere for good before the layout is allocated, and all files stay whole whatever ends it. Which free parts a layout
//! takes, and that the others are freed.

use crate::common::laid_out::{
    command, dir, done, fails, json, layout, places, run_until, states, took,
};
use crate::common::perforated::Perforated;
use headstart::host::mounts::MountTable;
use headstart::host::range::ByteRange;
use headstart_layout::LayoutError;
use headstart_layout::journal::Donor;
use headstart_layout::plan::{Piece, Plan};
use headstart_layout::volume::Volume;
use headstart_sys::fiemap::{Extent, extents};
use headstart_sys::fsmap::free_space;
use headstart_testing::{LoopFs, must};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Seek;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn rig() -> Option<Perforated> {
    made(WITHOUT_MAP)
}

/// Whether xfs keeps a reverse map, which FS_IOC_GETFSMAP then reads. It takes space of its own, and versions of mkfs.xfs
/// differ.
const WITHOUT_MAP: &str = "rmapbt=0";
const WITH_MAP: &str = "rmapbt=1";

fn made(map: &str) -> Option<Perforated> {
    Perforated::made("xfs", 320 << 20, &["-m", map])
}

/// In how many pieces files lie, in touch order.
fn pieces(places: &[Vec<Extent>]) -> usize {
    let all: Vec<&Extent> = places.iter().flatten().collect();
    all.chunk_by(|a, b| a.physical + a.length == b.physical).count()
}

#[test]
fn a_layout_on_xfs_lies_in_one_area_when_others_are_moved_and_undo_leaves_these_aside() {
    lies_in_one_area(WITHOUT_MAP);
}

#[test]
fn so_it_does_on_xfs_with_a_reverse_map() {
    lies_in_one_area(WITH_MAP);
}

fn lies_in_one_area(map: &str) {
    let Some(rig) = made(map) else { return };
    let (before, old) = (states(&rig.all()), places(&rig.all()));
    let (old_laid, old_others) = old.split_at(rig.paths.len());
    let said = done(&[&"apply", &"--force", &rig.pack]);
    assert!(said.contains("pieces") && said.contains("with --make-room"), "{said}");
    let in_pieces = pieces(&places(&rig.paths));
    assert_eq!(places(&rig.others), old_others, "they are moved only with --make-room");
    done(&[&"undo", &rig.fs.path()]);
    assert_eq!(places(&rig.all()), old);

    let applied = json(&[&"apply", &"--force", &"--make-room", &"--json", &rig.pack]);
    let length: u64 = old_laid.iter().flatten().map(|extent| extent.length).sum();
    assert_eq!((&applied["moved_bytes"], &applied["aside_bytes"]), (&length.into(), &0.into()));
    let new = places(&rig.all());
    let (laid, others) = new.split_at(rig.paths.len());
    let changed = others.iter().zip(old_others).filter(|(new, old)| new != old);
    let moved: u64 = changed.flat_map(|(new, _)| new).map(|extent| extent.length).sum();
    assert!(moved > 0 && applied["relocated_bytes"] == moved, "{applied}, {moved}");
    assert!(others.iter().zip(old_others).all(|(new, old)| new.len() <= old.len()), "{others:?}");
    assert!(pieces(laid) * 4 < in_pieces, "{} of {in_pieces}: {laid:?}", pieces(laid));
    assert_eq!(states(&rig.all()), before);
    rig.check();
    done(&[&"verify", &rig.fs.path()]);

    done(&[&"undo", &rig.fs.path()]);
    assert!(!dir(&rig.fs).exists());
    assert_eq!(places(&rig.paths), old_laid, "in the very blocks");
    assert_eq!(places(&rig.others), others);
    assert_eq!(states(&rig.all()), before);
    rig.check();
}

#[test]
fn a_layout_on_xfs_takes_free_parts_that_lie_together_where_a_disk_seeks() {
    let Some(rig) = rig() else { return };
    // The largest free part is far from all others, of which the larger ones lie side by side.
    const LARGEST: u64 = 640 << 10;
    let most = OpenOptions::new().write(true).open(rig.fs.path().join("most")).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&most, punch, 64 << 20, LARGEST).unwrap();
    drop(most);
    rig.others.iter().step_by(2).take(20).for_each(|path| fs::remove_file(path).unwrap());
    must("sync", &["-f", rig.fs.path().to_str().unwrap()]);
    let old = places(&rig.paths);
    let span = |places: &[Vec<Extent>]| {
        let begins = || places.iter().flatten().map(|extent| extent.physical);
        begins().max().unwrap() - begins().min().unwrap()
    };
    done(&[&"apply", &"--force", &rig.pack]);
    assert!(span(&places(&rig.paths)) > 32 << 20, "xfs takes the largest part first");
    done(&[&"undo", &rig.fs.path()]);

    let packs = tempfile::tempdir().unwrap();
    rotational(&packs, &rig.fs);
    let words = [OsStr::new("apply"), "--force".as_ref(), rig.pack.as_os_str()];
    took(command(&words).env("HEADSTART_PACKS", packs.path()));
    let new = places(&rig.paths);
    assert!(span(&new) < 8 << 20, "{new:?}");
    done(&[&"undo", &rig.fs.path()]);
    assert_eq!(places(&rig.paths), old);
    rig.check();
}

#[test]
fn what_a_layout_does_not_take_of_its_donor_on_xfs_is_freed() {
    const MIB: u64 = 1 << 20;
    let Some(fs) = LoopFs::sized("xfs", 320 << 20) else { return };
    let volume = Volume::of(fs.path(), &MountTable::read().unwrap()).unwrap();
    let store = volume.create().unwrap();
    let piece =
        |at: u64| Piece { file: 0, bytes: ByteRange::of(0, MIB - 100), old: Vec::new(), donor: at };
    let plan = Plan {
        pieces: vec![piece(5 * MIB), piece(2 * MIB)],
        donor_bytes: 2 * MIB,
        ..Plan::default()
    };
    let donor = store.allocate(8 * MIB, &volume, &plan).unwrap();
    let file = File::open(dir(&fs).join("donor")).unwrap();
    let allocated = || file.metadata().unwrap().blocks() * 512;
    assert_eq!(allocated(), 8 * MIB);
    store.trim(&donor, &plan).unwrap();
    assert_eq!(allocated(), 2 * MIB);
    let left = extents(&file).unwrap();
    let ranges: Vec<_> = left.iter().map(|part| (part.logical, part.length)).collect();
    assert_eq!(ranges, [(2 * MIB, MIB), (5 * MIB, MIB)]);
    let other = Donor { ino: donor.ino + 1, ..donor };
    assert!(matches!(store.trim(&other, &plan), Err(LayoutError::OtherDonor { .. })));
}

/// Keeps the model of a rotational disk for that of a file system, beside a directory of packs.
fn rotational(packs: &TempDir, of: &LoopFs) {
    let devices = packs.path().join("devices");
    fs::create_dir(&devices).unwrap();
    let read = |path: &str| fs::read_to_string(path).unwrap().trim().to_owned();
    let name = Path::new(&of.device()).file_name().unwrap().to_str().unwrap().to_owned();
    let (boot, seq) =
        (read("/proc/sys/kernel/random/boot_id"), read(&format!("/sys/block/{name}/diskseq")));
    let model = r#"{"latency_us":9677,"next_us":100,"bandwidth_mb_s":115,"depth":1,"iops":103,"most_iops":131}"#;
    fs::write(devices.join(format!("boot-{boot}-{seq}.json")), model).unwrap();
}

#[test]
fn signals_and_kill_9_while_others_are_moved_on_xfs_leave_all_files_whole() {
    const TIMES: u32 = 9;
    const STEP: Duration = Duration::from_micros(400);
    let (mut killed, mut rig) = (0, None);
    for n in 0..TIMES {
        let Some(now) = rig.take().or_else(self::rig) else { return };
        let (before, old) = (states(&now.all()), places(&now.all()));
        let (old_laid, old_others) = old.split_at(now.paths.len());
        let journal = dir(&now.fs).join("journal");
        // The first journal is that of the others. From its first moment on, a bit later each time, and at last when it
        // is gone again.
        let since = Cell::new(None);
        let is_due = |elapsed: Duration| {
            if since.get().is_none() && journal.exists() {
                since.set(Some(elapsed));
            }
            match n + 1 {
                TIMES => since.get().is_some() && !journal.exists(),
                _ => since.get().is_some_and(|since| elapsed - since >= STEP * n),
            }
        };
        let signal = if n % 3 == 2 { Signal::TERM } else { Signal::KILL };
        let mut said = tempfile::tempfile().unwrap();
        let mut apply = now.apply();
        apply.arg("--json").stdout(said.try_clone().unwrap());
        run_until(&mut apply, is_due, |child| {
            let _ = kill_process(Pid::from_child(child), signal);
        });
        assert_eq!(states(&now.all()), before, "{n}");
        if signal == Signal::TERM {
            said.rewind().unwrap();
            let said: Value = serde_json::from_reader(said).unwrap();
            let told = said["file_systems"][0]["relocated_bytes"].as_u64().unwrap_or(0);
            let new = places(&now.others);
            let changed = new.iter().zip(old_others).filter(|(new, old)| new != old);
            let moved: u64 = changed.flat_map(|(new, _)| new).map(|extent| extent.length).sum();
            assert_eq!(told, moved, "{said}");
            assert!(moved > 0 || n + 1 < TIMES, "{said}");
        }
        let found = json(&[&"status", &"--json", &now.fs.path()]);
        let is_of_others = found["aside_bytes"].as_u64() > Some(0);
        if is_of_others {
            assert_eq!(signal, Signal::KILL, "a signal leaves none");
            killed += 1;
            let said = fails(&[&"apply", &"--force", &"--make-room", &now.pack], 1);
            assert!(said.contains("undo"), "{said}");
        }
        if is_of_others && n % 2 == 0 {
            let said = fails(&[&"resume", &now.fs.path()], 3);
            assert!(said.contains("apply begins again") && !said.contains("undo"), "{said}");
            assert_ne!(places(&now.others), old_others);
        } else {
            assert!(matches!(layout(&[&"undo", &now.fs.path()]).status.code(), Some(0 | 3)));
        }
        assert!(!dir(&now.fs).exists());
        assert_eq!(states(&now.all()), before);
        now.check();
        assert_eq!(places(&now.paths), old_laid);
        if is_of_others && n % 2 == 1 {
            assert_eq!(places(&now.others), old_others, "undone to the very blocks");
            rig = Some(now);
        }
    }
    assert!(killed > 0, "none was killed while others were moved");
}

#[test]
fn others_that_are_written_to_stay_where_they_are_on_xfs() {
    let Some(rig) = rig() else { return };
    let every_other = |from: usize| rig.others.iter().skip(from).step_by(2).cloned().collect();
    let (written, rest): (Vec<_>, Vec<_>) = (every_other(0), every_other(1));
    let old = (places(&written), places(&rest));
    let open: Vec<_> = written
        .iter()
        .map(|path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(b"mine", 100).unwrap();
            file
        })
        .collect();
    let before = states(&rig.all());
    layout(&[&"apply", &"--force", &"--make-room", &rig.pack]);
    assert_eq!(places(&written), old.0);
    assert_ne!(places(&rest), old.1);
    assert_eq!(states(&rig.all()), before);
    drop(open);
    done(&[&"undo", &rig.fs.path()]);
    rig.check();
    assert_eq!(states(&rig.all()), before);
}

#[test]
fn free_space_of_xfs_is_told_and_no_file_lies_there() {
    let Some(rig) = rig() else { return };
    let root = File::open(rig.fs.path()).unwrap();
    // Counted first: xfs frees the blocks of removed files in the background.
    let all = rustix::fs::statvfs(rig.fs.path()).unwrap();
    let free = free_space(&root).unwrap();
    // Holes between the other files, and what each allocation group keeps for itself.
    assert!(free.len() > rig.others.len() / 2, "{} of {}", free.len(), rig.others.len());
    assert!(free.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    let (told, counted) =
        (free.iter().map(|(_, length)| length).sum::<u64>(), all.f_bfree * all.f_frsize);
    assert!(told >= counted && told - counted < 32 << 20, "{told} and {counted}");
    for Extent { physical, length, .. } in places(&rig.all()).into_iter().flatten() {
        let overlaps = |&(at, free): &(u64, u64)| at < physical + length && physical < at + free;
        assert!(!free.iter().any(overlaps), "{physical}");
    }
}
