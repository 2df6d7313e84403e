//! A program that waits for the disk for less than a replay costs is not prefetched.

use crate::common::models::write_model;
use crate::common::run_json as run;
use headstart::replay::model::Model;
use headstart_testing::{LoopFs, disk_dir, must, noise, undisturbed, write_synced};
use serde_json::Value;

/// A device that answers at once.
const QUICK: Model = Model::of(1, 1, 1_000_000, 16, 99_999_999);

/// One that takes long.
const SLOW: Model = Model::of(20_000, 20_000, 10, 1, 50);

#[test]
fn without_expected_benefit_a_program_is_not_prefetched_unless_always() {
    // The device of the system can't be opened everywhere, that of an image can.
    let Some(fs) = LoopFs::new("ext4") else { return };
    // All of it is on that device, and little.
    let program = fs.path().join("nothing");
    let source = fs.path().join("nothing.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let (to, from) = (program.to_str().unwrap(), source.to_str().unwrap());
    must("cc", &["-static", "-o", to, from]);
    let command = [to];
    let packs = disk_dir();
    run(packs.path(), &[], &command);
    assert!(write_model(packs.path(), &fs, QUICK), "the device was measured");
    let is_not_prefetched = |figures: &Value| {
        let notes = figures["notes"].to_string();
        assert_eq!(
            notes.contains("no expected benefit here"),
            figures["prefetch"].is_null(),
            "{notes}"
        );
        figures["prefetch"].is_null()
    };
    for starts in [2, 3] {
        let figures = run(packs.path(), &[], &command);
        assert!(is_not_prefetched(&figures), "{figures:#}");
        assert_eq!(figures["learned"]["starts"], starts, "{figures:#}");
    }
    let figures = run(packs.path(), &[], &command);
    assert!(is_not_prefetched(&figures) && figures["learned"].is_null(), "{figures:#}");
    let figures = run(packs.path(), &["--always"], &command);
    assert!(!is_not_prefetched(&figures), "{figures:#}");
    assert_eq!(figures["learned"]["starts"], 4, "{figures:#}");
}

#[test]
fn a_well_known_program_is_traced_from_the_disk_and_not_from_memory() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = fs.path().join("data");
    write_synced(&file, &noise(4 << 20));
    let packs = disk_dir();
    let command = ["cat", file.to_str().unwrap()];
    let start =
        |options: &[&str]| run(packs.path(), &[&["--max-delay", "1s"], options].concat(), &command);
    let starts = |figures: &Value| figures["learned"]["starts"].as_u64();
    for number in 1..=3 {
        fs.remount();
        assert_eq!(starts(&start(&["--always"])), Some(number));
    }
    let from_memory = undisturbed(&[fs.path()], || {
        // Brings all of it in.
        start(&["--always"]);
        write_model(packs.path(), &fs, SLOW);
        start(&[])
    });
    assert!(from_memory["learned"].is_null(), "{from_memory:#}");
    let notes = from_memory["notes"].to_string();
    assert!(notes.contains("in memory and well known"), "{notes}");
    fs.remount();
    let from_disk = start(&[]);
    assert!(starts(&from_disk) > Some(3), "{from_disk:#}");
}
