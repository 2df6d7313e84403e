//! A phase has a pack for each file system: what is learned, kept and prefetched when one of
//! two is mounted in some boots only.

use crate::command::json;
use crate::common::scripted_boot::Boot;
use headstart::pack::{FileSystem, History, MetadataRange, Origin, Pack, store};
use headstart_testing::{LoopFs, must, undisturbed};
use std::fs;
use std::path::PathBuf;

#[test]
fn each_file_system_has_a_pack_that_follows_the_boots_in_which_it_is_mounted() {
    let Some(boot) = Boot::new("systems") else { return };
    let (Some(one), Some(two)) = (LoopFs::new("ext4"), LoopFs::new("ext4")) else { return };
    let both = [&one, &two].map(|fs| fs.path().join("data"));
    for file in &both {
        fs::write(file, vec![7; 200_000]).unwrap();
    }
    one.remount();
    two.remount();
    let (of_one, of_two) = (one.identity(), two.identity());
    let machine = boot.machine();
    let pack = |of| store::read(&machine.pack("mounts", of), 0).unwrap();
    let bytes = |of| fs::read(machine.pack("mounts", of)).unwrap();

    boot.touches(&both);
    for fs in [&one, &two] {
        assert_eq!(boot.learned("mounts", fs), ["data"]);
    }
    for file in machine.packs() {
        let pack = store::read(&file.path, 0).unwrap();
        assert_eq!(pack.file_systems.len(), 1, "{file:?}: {:?}", pack.file_systems);
        assert!(pack.ranges.len() + pack.metadata.len() > 0, "{file:?}");
    }

    let root = boot.root.path().to_str().unwrap();
    let place = |fs: &LoopFs| fs.path().to_str().unwrap().to_owned();
    let status = json(&["boot", "status", "--json", "--root", root]);
    let mut packs = status["packs"].as_array().unwrap().iter();
    assert!(
        packs.any(|pack| pack["phase"] == "mounts" && pack["mounted_on"]["path"] == place(&two))
    );
    let text = must(env!("CARGO_BIN_EXE_headstart"), &["boot", "status", "--root", root]);
    assert!(text.contains(&format!("mounts  {} (ext4)", place(&one))), "{text}");

    // Without the second one its pack stays as it is.
    let before = bytes(&of_two);
    two.unmount();
    boot.again();
    boot.touches(&both[..1]);
    assert_eq!(bytes(&of_two), before);
    assert_eq!(pack(&of_one).origin.starts, 2);

    // Where it is mounted and not touched its pack grows older.
    two.mount();
    boot.again();
    boot.touches(&both[..1]);
    assert_eq!((pack(&of_one).origin.starts, pack(&of_two).origin.starts), (3, 2));
    let histories = |of| pack(of).ranges.iter().fold(0, |all, range| all | range.history.0);
    assert_eq!((histories(&of_one), histories(&of_two)), (0b111, 0b10));

    // What two of its last three boots touched is prefetched.
    boot.again();
    boot.touches(&both);
    assert_eq!((histories(&of_one), histories(&of_two)), (0b1111, 0b101));

    // What else this machine did meanwhile is of no interest, nor are packs of other names.
    for file in machine.packs() {
        let of_ours = [&of_one, &of_two].map(|of| machine.pack(&file.phase, of));
        if !of_ours.contains(&file.path) {
            fs::remove_file(&file.path).unwrap();
        }
    }
    fs::write(machine.state().join("mounts.pack"), "of an older headstart").unwrap();
    let packs = [&of_one, &of_two].map(|of| machine.pack("mounts", of));
    let data = |report: &headstart::replay::report::Report| report.bytes - report.metadata_bytes;
    let read = undisturbed(&[one.path()], || {
        one.remount();
        two.unmount();
        let read = boot.prefetch();
        two.mount();
        read
    });
    assert_eq!((&read.problems, &read.elsewhere, read.phases.len()), (&vec![], &vec![], 1));
    assert_eq!(read.phases[0].packs, packs[..1]);
    assert_eq!(data(&read.phases[0].report), 200_704, "{read:?}");

    let read = undisturbed(&[one.path(), two.path()], || {
        one.remount();
        two.remount();
        boot.prefetch()
    });
    let mut of = read.phases[0].packs.clone();
    of.sort();
    let mut all = packs.to_vec();
    all.sort();
    assert_eq!(of, all);
    assert_eq!(data(&read.phases[0].report), 2 * 200_704, "{read:?}");
}

#[test]
fn of_file_systems_that_are_not_mounted_eight_packs_are_kept_and_the_others_reported() {
    let Some(boot) = Boot::new("away") else { return };
    let Some(fs) = LoopFs::new("ext4") else { return };
    fs::write(fs.path().join("data"), vec![7; 200_000]).unwrap();
    fs.remount();
    let paths: Vec<PathBuf> = (1..=10)
        .map(|age: u8| {
            let of = FileSystem { uuid: Some([age; 16]), kind: "ext4".into(), source: vec![] };
            let learned_at = 1_800_000_000 - u64::from(age);
            let origin = Origin { page_shift: 12, starts: 1, learned_at, ..Origin::default() };
            let range =
                MetadataRange { file_system: 0, first: 0, pages: 1, at_us: 0, history: History(1) };
            let path = boot.machine().pack("mounts", &of);
            let (file_systems, metadata) = (vec![of], vec![range]);
            let pack = Pack { origin, file_systems, metadata, ..Pack::default() };
            store::lock(&path).unwrap().write(&pack).unwrap();
            path
        })
        .collect();
    boot.touches(&[fs.path().join("data")]);
    assert_eq!(boot.learned("mounts", &fs), ["data"]);
    let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
    assert_eq!(left, [&[true; 8][..], &[false; 2]].concat());
    let problems = &boot.machine().records()[0].problems;
    for gone in &paths[8..] {
        let told = |problem: &&String| problem.contains(gone.to_str().unwrap());
        assert_eq!(problems.iter().filter(told).count(), 1, "{problems:?}");
    }
}

#[test]
fn a_pack_that_is_cut_off_is_reported_once_and_replaced() {
    let Some(boot) = Boot::new("cut-off") else { return };
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = fs.path().join("data");
    fs::write(&file, vec![7; 200_000]).unwrap();
    fs.remount();
    boot.touches(std::slice::from_ref(&file));
    let pack = boot.machine().pack("mounts", &fs.identity());
    let bytes = fs::read(&pack).unwrap();
    fs::write(&pack, &bytes[..bytes.len() / 2]).unwrap();
    fs.remount();
    boot.again();
    boot.touches(&[file]);
    assert_eq!(boot.learned("mounts", &fs), ["data"]);
    let problems = &boot.machine().records()[0].problems;
    let of_it: Vec<_> =
        problems.iter().filter(|told| told.contains(pack.to_str().unwrap())).collect();
    assert!(matches!(of_it[..], [told] if told.ends_with("it is replaced")), "{problems:?}");
}
