//! Tools that do many jobs with one executable: a start that wastes most of what its program's
//! pack prefetches is learned into a pack of its own.

use crate::common::run_json;
use headstart_testing::{LoopFs, disk_dir, noise, undisturbed_with, write_synced};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What `headstart` prefetched and wasted of a start, in bytes, and the pack it was learned into.
fn figures(figures: &Value) -> (u64, u64, String) {
    let pack = figures["learned"]["pack"]["path"].as_str().unwrap_or_default().to_owned();
    let wasted = figures["touched"]["wasted_pages"].as_u64().unwrap_or(0);
    (figures["prefetch"]["bytes"].as_u64().unwrap_or(0), wasted << 12, pack)
}

/// The commands of the packs, in order.
fn headstart_list(packs: &Path) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    let output = command.args(["list", "--json"]).env("HEADSTART_PACKS", packs).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packs = listed["packs"].as_array().unwrap().iter();
    let mut all: Vec<_> = packs.map(|p| p["command"].as_str().unwrap().to_owned()).collect();
    all.sort_by_key(|command| std::cmp::Reverse(command.len()));
    all
}

#[test]
fn a_start_that_wastes_most_of_its_programs_pack_gets_one_of_its_own() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let tool = fs.path().join("tool");
    for (name, size) in [("large", 8 << 20), ("small", 1 << 20)] {
        write_synced(&fs.path().join(name), &noise(size));
    }
    let text = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\n\
                case $1 in build) cat large ;; *) cat small ;; esac\n";
    std::fs::write(&tool, text).unwrap();
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    let packs = disk_dir();
    let start = |options: &[&str], job: &str| {
        undisturbed_with(&[fs.path(), Path::new("/")], packs.path(), || {
            fs.remount();
            let options = [&["--always", "--max-delay", "1s"], options].concat();
            figures(&run_json(packs.path(), &options, &[tool.to_str().unwrap(), job]))
        })
    };
    let (_, _, program) = start(&[], "build");
    // All of the first job is prefetched for the second, for once.
    let (_, wasted, own) = start(&[], "--version");
    assert!(wasted >= 8 << 20, "{wasted}");
    assert_ne!(own, program);
    for (job, needed, pack) in [("--version", 1 << 20, &own), ("build", 8 << 20, &program)] {
        let (bytes, wasted, learned) = start(&[], job);
        assert!(bytes >= needed && bytes < needed + (1 << 20), "{job}: {bytes}");
        assert!(wasted < 1 << 20, "{job}: {wasted}");
        assert_eq!(learned, *pack, "{job}");
    }
    let listed = headstart_list(packs.path());
    let tool = tool.to_str().unwrap();
    assert_eq!(listed, [format!("{tool} --version"), tool.to_owned()]);
    // A third job has the program's pack until it is known.
    assert_eq!(start(&["--no-learn"], "help").0 >> 20, 8);
}
