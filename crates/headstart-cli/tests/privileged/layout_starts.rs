//! `headstart layout plan` predicts starts once one was learned whose files were in memory.

use crate::common::models::{NETWORK, write_model};
use crate::common::run_json;
use headstart_testing::{LoopFs, disk_dir, noise, undisturbed, write_synced};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What `plan` prints of a file system.
fn plan(packs: &Path, fs: &LoopFs, options: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PACKS", packs)
        .args(["layout", "plan", "--on", fs.path().to_str().unwrap()])
        .args(options)
        .arg("cat")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// How long a replay and a start take now, in µs.
fn times(packs: &Path, fs: &LoopFs) -> [Option<u64>; 2] {
    let told: Value = serde_json::from_str(&plan(packs, fs, &["--json"])).unwrap();
    let now = &told["file_systems"][0]["gain"]["before"];
    [&now["replay_us"], &now["start_us"]].map(Value::as_u64)
}

#[test]
fn a_start_is_predicted_once_one_was_learned_whose_files_were_in_memory() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let files: Vec<_> = (0..8).map(|n| fs.path().join(format!("file {n}"))).collect();
    files.iter().for_each(|file| write_synced(file, &noise(1 << 20)));
    let packs = disk_dir();
    let mut command = vec!["cat"];
    command.extend(files.iter().map(|file| file.to_str().unwrap()));
    let start = || run_json(packs.path(), &["--always"], &command);
    fs.remount();
    start();
    write_model(packs.path(), &fs, NETWORK);
    let [replay, from_disk] = times(packs.path(), &fs);
    assert!(replay > Some(0) && from_disk.is_none(), "{replay:?} {from_disk:?}");
    let said = plan(packs.path(), &fs, &[]);
    assert!(said.contains("headstart run --always"), "{said}");

    let figures = undisturbed(&[fs.path()], || {
        // Brings all of it in.
        start();
        start()
    });
    let computing = figures["wall_ms"].as_f64().unwrap() * 1000.0;
    let [replay, from_memory] = times(packs.path(), &fs).map(|us| us.unwrap() as f64);
    assert!(from_memory >= replay, "{from_memory} {replay}");
    assert!(from_memory <= replay + computing, "{from_memory} {replay} {computing}");
    let said = plan(packs.path(), &fs, &[]);
    let row = said.lines().find(|line| line.starts_with("start ")).expect("a time of the start");
    assert!(row.matches(" s").count() == 2 && !said.contains("--always"), "{said}");
}
