//! A phase has a pack for each file system: what is learned, kept and read ahead when one of
//! two is mounted in some boots only.
#![allow(clippy::unwrap_used)]

mod common;

use common::scripted_boot::{Boot, await_script, wait_for};
use common::{LoopFs, json, must, undisturbed};
use headstart::boot::replay::{Outcome, Wanted, replay};
use headstart::pack::{FileSystem, MetadataRange, Origin, Pack, store};
use headstart::replay::often::Often;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A boot whose first phase touches these files; the recorder learns it.
fn boot_touching(boot: &Boot, files: &[PathBuf]) {
    boot.happens("user-space");
    boot.trace();
    files.iter().for_each(|file| drop(must("cat", &[file.to_str().unwrap()])));
    boot.happens("local-fs.target");
    let child = boot.recorder().spawn().unwrap();
    boot.happens("default.target");
    await_script(&wait_for(&boot.root.path().join("run/headstart/recorded")));
    must("kill", &["-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn read_ahead(boot: &Boot) -> Outcome {
    let wanted = Wanted {
        phases: vec!["mounts".into()],
        often: Often::EVER,
        wait: true,
        limit: Duration::from_secs(60),
        // It does not wait for what is not mounted.
        in_initramfs: true,
        over_too: true,
    };
    fs::remove_dir_all(boot.machine().run().join("replay")).unwrap_or_default();
    replay(&boot.machine(), &wanted, Instant::now())
}

#[test]
fn each_file_system_has_a_pack_that_follows_the_boots_in_which_it_is_mounted() {
    let Some(boot) = Boot::new("systems") else { return };
    let (Some(one), Some(two)) = (LoopFs::new("ext4"), LoopFs::new("ext4")) else { return };
    let both = [&one, &two].map(|fs| fs.path.join("data"));
    for file in &both {
        fs::write(file, vec![7; 200_000]).unwrap();
    }
    one.remount();
    two.remount();
    let (of_one, of_two) = (one.identity(), two.identity());
    let machine = boot.machine();
    let pack = |of| store::read(&machine.pack("mounts", of), 0).unwrap();
    let bytes = |of| fs::read(machine.pack("mounts", of)).unwrap();

    boot_touching(&boot, &both);
    for fs in [&one, &two] {
        assert_eq!(boot.learned("mounts", fs), ["data"]);
    }
    for file in machine.packs() {
        let pack = store::read(&file.path, 0).unwrap();
        assert_eq!(pack.file_systems.len(), 1, "{file:?}: {:?}", pack.file_systems);
        assert!(pack.ranges.len() + pack.metadata.len() > 0, "{file:?}");
    }

    let root = boot.root.path().to_str().unwrap();
    let place = |fs: &LoopFs| fs.path.to_str().unwrap().to_owned();
    let status = json(&["boot", "status", "--json", "--root", root]);
    let mut packs = status["packs"].as_array().unwrap().iter();
    assert!(packs.any(|pack| pack["phase"] == "mounts" && pack["mounted_on"] == place(&two)));
    let text = must(env!("CARGO_BIN_EXE_headstart"), &["boot", "status", "--root", root]);
    assert!(text.contains(&format!("mounts  {} (ext4)", place(&one))), "{text}");

    // Without the second one its pack stays as it is.
    let before = bytes(&of_two);
    two.unmount();
    boot.again();
    boot_touching(&boot, &both[..1]);
    assert_eq!(bytes(&of_two), before);
    assert_eq!(pack(&of_one).origin.starts, 2);

    // Where it is mounted and not touched its pack grows older.
    two.mount();
    boot.again();
    boot_touching(&boot, &both[..1]);
    assert_eq!((pack(&of_one).origin.starts, pack(&of_two).origin.starts), (3, 2));
    let histories = |of| pack(of).ranges.iter().fold(0, |all, range| all | range.history);
    assert_eq!((histories(&of_one), histories(&of_two)), (0b111, 0b10));

    // What else this machine did meanwhile is of no interest, nor are packs of other names.
    for file in machine.packs() {
        let of_ours = [&of_one, &of_two].map(|of| machine.pack(&file.phase, of));
        if !of_ours.contains(&file.path) {
            fs::remove_file(&file.path).unwrap();
        }
    }
    fs::write(machine.state().join("mounts.pack"), "of an older headstart").unwrap();
    let packs = [&of_one, &of_two].map(|of| machine.pack("mounts", of));
    undisturbed(|| {
        one.remount();
        two.unmount();
        let read = read_ahead(&boot);
        two.mount();
        assert_eq!((&read.problems, &read.elsewhere, read.phases.len()), (&vec![], &vec![], 1));
        assert_eq!(read.phases[0].packs, packs[..1]);
        let data =
            |report: &headstart::replay::report::Report| report.bytes - report.metadata_bytes;
        assert_eq!(data(&read.phases[0].report), 200_704, "{read:?}");

        one.remount();
        two.remount();
        let read = read_ahead(&boot);
        let mut of = read.phases[0].packs.clone();
        of.sort();
        let mut all = packs.to_vec();
        all.sort();
        assert_eq!(of, all);
        assert_eq!(data(&read.phases[0].report), 2 * 200_704, "{read:?}");
    });
}

#[test]
fn of_file_systems_that_are_not_mounted_eight_packs_are_kept_and_the_others_told() {
    let Some(boot) = Boot::new("away") else { return };
    let Some(fs) = LoopFs::new("ext4") else { return };
    fs::write(fs.path.join("data"), vec![7; 200_000]).unwrap();
    fs.remount();
    let paths: Vec<PathBuf> = (1..=10)
        .map(|age: u8| {
            let of = FileSystem { uuid: Some([age; 16]), kind: "ext4".into(), source: vec![] };
            let learned_at = 1_800_000_000 - u64::from(age);
            let origin = Origin { page_shift: 12, starts: 1, learned_at, ..Origin::default() };
            let range = MetadataRange { file_system: 0, first: 0, pages: 1, at_us: 0, history: 1 };
            let path = boot.machine().pack("mounts", &of);
            let (file_systems, metadata) = (vec![of], vec![range]);
            let pack = Pack { origin, file_systems, metadata, ..Pack::default() };
            store::lock(&path).unwrap().write(&pack).unwrap();
            path
        })
        .collect();
    boot_touching(&boot, &[fs.path.join("data")]);
    assert_eq!(boot.learned("mounts", &fs), ["data"]);
    let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
    assert_eq!(left, [&[true; 8][..], &[false; 2]].concat());
    let problems = &boot.machine().records()[0].problems;
    for gone in &paths[8..] {
        let told = |problem: &&String| problem.contains(gone.to_str().unwrap());
        assert_eq!(problems.iter().filter(told).count(), 1, "{problems:?}");
    }
}
