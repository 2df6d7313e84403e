//! `headstart replay`: what it reads, what bounds it, and what it says.

use crate::command::{headstart, json};
use crate::common::process::is_an_argument;
use headstart_testing::{
    LoopFs, as_nobody, disk_dir, is_root, must, noise, skip, undisturbed, wait_until, write_synced,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: u64 = 4096;

/// A file on `fs` of so many pages.
fn file_on(fs: &LoopFs, name: &str, pages: usize) -> PathBuf {
    let path = fs.path().join(name);
    write_synced(&path, &noise(pages * PAGE as usize));
    path
}

/// The resident pages of a file, as ranges of page numbers.
fn resident(path: &Path) -> Vec<(u64, u64)> {
    let shown = json(&["pages", "--json", path.to_str().unwrap()]);
    let ranges = shown["files"][0]["ranges"].as_array().unwrap_or_else(|| panic!("{shown:#}"));
    let of = |r: &Value| {
        let offset = r[0].as_u64().unwrap();
        (offset / PAGE, (offset + r[1].as_u64().unwrap()).div_ceil(PAGE))
    };
    ranges.iter().map(of).collect()
}

fn list_file(lines: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines).unwrap();
    file
}

fn replay(arguments: &[&str], list: &str) -> Value {
    let file = list_file(list);
    json(&[&["replay", "--json"], arguments, &[file.path().to_str().unwrap()]].concat())
}

#[test]
fn exactly_the_listed_ranges_come_in_however_long_one_request_may_be() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(fs) = LoopFs::new(kind) else { return };
        let file = file_on(&fs, "file", 4096);
        let list = format!("{} 40960:8192,4194304:6291456\n", file.display());
        let (figures, resident, second) = undisturbed(&[fs.path()], || {
            fs.remount();
            // The kernel cuts a request to this without a word.
            std::fs::write(fs.sysfs().join("queue/read_ahead_kb"), "64").unwrap();
            let figures = replay(&["--wait", "--verify"], &list);
            (figures, resident(&file), replay(&["--wait"], &list))
        });
        let (bytes, verified) = (&figures["report"]["bytes"], &figures["verified"]);
        let pages = (&verified["planned_pages"], &verified["resident_pages"]);
        assert_eq!(resident, [(10, 12), (1024, 2560)], "{kind}: {figures:#}");
        assert_eq!((bytes, pages), (&(8192 + 6_291_456).into(), (&1538.into(), &1538.into())));
        // A second time there is nothing to do.
        let report = &second["report"];
        assert_eq!((&report["bytes"], &report["requests"]), (&0.into(), &0.into()));
        assert_eq!(report["resident_bytes"], 8192 + 6_291_456, "{kind}");
    }
}

#[test]
fn small_files_side_by_side_come_in_few_requests_and_their_time_of_access_stays() {
    use std::os::unix::fs::MetadataExt;
    const FILES: usize = 256;
    let Some(fs) = LoopFs::new("ext4") else { return };
    let name = |i: usize| fs.path().join(format!("{i:03}"));
    for i in 0..FILES {
        std::fs::write(name(i), noise(PAGE as usize)).unwrap();
    }
    // Places are given when the data is written: to all at once.
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    // They are requested in another order: each third is adjacent to the first.
    let order = (0..FILES).map(|i| i * 171 % FILES);
    let list: String = order.map(|i| format!("{} 0:{PAGE}\n", name(i).display())).collect();
    let accessed =
        || (0..FILES).map(|i| name(i).metadata().unwrap().atime_nsec()).collect::<Vec<_>>();
    let before = accessed();
    let figures = undisturbed(&[fs.path()], || {
        fs.remount();
        replay(&["--diskstats", "--verify"], &list)
    });
    let device = fs.device();
    let disk = &figures["disks"][device.trim_start_matches("/dev/")];
    let requests = disk["requests"].as_u64().unwrap();
    assert_eq!(figures["verified"]["resident_pages"], FILES, "{figures:#}");
    assert!(requests < FILES as u64 / 2, "{requests} requests: {figures:#}");
    assert_eq!(accessed(), before);
}

#[test]
fn without_kernel_prefetched_the_data_is_read_all_the_same() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 256);
    let resident = undisturbed(&[fs.path()], || {
        fs.remount();
        std::fs::write(fs.sysfs().join("queue/read_ahead_kb"), "0").unwrap();
        replay(&["--wait"], &format!("{} 0:409600\n", file.display()));
        resident(&file)
    });
    assert_eq!(resident, [(0, 100)]);
}

#[test]
fn a_whole_file_is_named_without_ranges_and_a_list_may_come_through_a_pipe() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "my file", 16);
    let script = format!(
        "printf '%s\\n' '{}' | {} replay -q --wait /dev/stdin",
        file.display(),
        env!("CARGO_BIN_EXE_headstart")
    );
    let resident = undisturbed(&[fs.path()], || {
        fs.remount();
        must("sh", &["-c", &script]);
        resident(&file)
    });
    assert_eq!(resident, [(0, 16)]);
}

#[test]
fn a_dry_run_prints_the_plan_as_a_list_and_reads_nothing() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 64);
    fs.remount();
    let list = list_file(&format!("{} 0:4096,8192:4096,131072:4096\n", file.display()));
    let output = headstart(&["replay", "--dry-run", list.path().to_str().unwrap()]);
    // The hole of one page is cheaper than a request of its own.
    let expected = format!("{0} 0:12288\n{0} 131072:4096\n", file.display());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    assert_eq!(resident(&file), []);
}

#[test]
fn where_few_files_may_be_open_all_are_read_all_the_same() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let files: Vec<PathBuf> = (0..300).map(|n| fs.path().join(n.to_string())).collect();
    files.iter().for_each(|file| std::fs::write(file, [7; PAGE as usize]).unwrap());
    let lines: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
    let list = list_file(&lines);
    let figures: Value = undisturbed(&[fs.path()], || {
        fs.remount();
        let script = "ulimit -n 64; exec \"$0\" replay --json --wait \"$1\"";
        let headstart = env!("CARGO_BIN_EXE_headstart");
        let said = must("sh", &["-c", script, headstart, list.path().to_str().unwrap()]);
        serde_json::from_str(&said).unwrap()
    });
    assert_eq!(figures["report"]["bytes"], 300 * PAGE, "{figures:#}");
    assert_eq!(figures["report"]["failed"], 0, "{figures:#}");
}

#[test]
fn the_budget_bounds_what_is_read_and_the_rest_is_counted() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 1024);
    let list = format!("{} 0:4194304\n", file.display());
    let (figures, resident) = undisturbed(&[fs.path()], || {
        fs.remount();
        (replay(&["--wait", "--budget", "1M"], &list), resident(&file))
    });
    assert_eq!(resident, [(0, 256)]);
    assert_eq!(figures["report"]["over_budget_bytes"], 3 << 20);
}

#[test]
fn a_timeout_of_nothing_stops_before_the_end_and_says_so() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 1024);
    fs.remount();
    let list = list_file(&format!("{} 0:4194304\n", file.display()));
    let output = headstart(&["replay", "--timeout", "0s", list.path().to_str().unwrap()]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("stopped before its end"), "{said}");
    assert_eq!(resident(&file), []);
}

#[test]
fn the_disk_tells_how_much_it_read() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 1024);
    fs.remount();
    let figures = replay(&["--diskstats"], &format!("{} 0:4194304\n", file.display()));
    let device = fs.device();
    let read = figures["disks"][device.trim_start_matches("/dev/")]["bytes"].as_u64().unwrap();
    assert!((4 << 20..5 << 20).contains(&read), "{figures:#}");
}

#[test]
fn in_the_background_it_returns_at_once_and_reads_all_the_same() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 256);
    let list = list_file(&format!("{} 0:1048576\n", file.display()));
    let path = list.path().to_str().unwrap();
    let resident = undisturbed(&[fs.path()], || {
        fs.remount();
        // The output is closed as well: a pipeline does not wait for it.
        let words = ["replay", "--background", "--nice", "19", "--ioprio", "idle", path];
        let output = headstart(&words);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        wait_until("end of the replay", || (!is_an_argument(path)).then_some(()));
        resident(&file)
    });
    assert_eq!(resident, [(0, 256)]);
}

#[test]
fn metadata_comes_back_through_the_block_device_before_the_data() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    for i in 0..200 {
        let dir = fs.path().join(format!("dir{}", i % 20));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("file{i}")), noise(8192)).unwrap();
    }
    must("sync", &[]);
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let pack = pack.to_str().unwrap();
    let find = format!("find {} -type f -exec cat {{}} + >/dev/null", fs.path().display());
    fs.remount();
    let output = headstart(&["record", "--pack", pack, "--", "sh", "-c", &find]);
    assert!(output.status.success(), "{output:?}");
    let learned = json(&["show", "--json", pack]);
    let metadata: u64 =
        learned["metadata"].as_array().unwrap().iter().map(|r| r["length"].as_u64().unwrap()).sum();
    assert!(metadata >= 20 * PAGE, "each directory has a block: {learned:#}");

    let plan = json(&["replay", "--dry-run", "--json", pack]);
    let kinds: Vec<bool> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["metadata"].as_bool().unwrap())
        .collect();
    assert!(kinds.is_sorted_by(|a, b| a >= b), "metadata is first");
    let requests = undisturbed(&[fs.path()], || {
        fs.remount();
        must(env!("CARGO_BIN_EXE_headstart"), &["replay", "-q", "--wait", pack]);
        let before = fs.reads();
        must("sh", &["-c", &find]);
        fs.reads() - before
    });
    assert_eq!(requests, 0, "nothing is left to be read");
}

#[test]
fn a_rotational_disk_is_read_in_elevator_order_and_all_comes_in() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let packs = disk_dir();
    let in_packs = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
        let output = command.args(args).env("HEADSTART_PACKS", packs.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let list = (0..50).map(|i| format!("{}\n", file_on(&fs, &format!("f{i}"), 24).display()));
    let list: String = list.collect();
    let program = format!("cat {} >/dev/null", list.replace('\n', " "));
    let pack = packs.path().join("a.pack");
    let pack = pack.to_str().unwrap();
    in_packs(&["record", "-q", "--pack", pack, "--", "sh", "-c", &program]);
    // The start that was learned had the device measured.
    let models = std::fs::read_dir(packs.path().join("devices")).unwrap();
    let models: Vec<_> = models.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(models.len(), 1, "{models:?}");
    let hdd = r#"{"latency_us":8000,"next_us":100,"bandwidth_mb_s":100,"depth":1,"iops":120}"#;
    std::fs::write(&models[0], hdd).unwrap();
    assert!(in_packs(&["doctor"]).contains("elevator"));
    // The pack also has the shell's own files.
    let figures: Value = undisturbed(&[fs.path(), Path::new("/")], || {
        fs.remount();
        serde_json::from_str(&in_packs(&["replay", "--verify", "--json", pack])).unwrap()
    });
    let verified = &figures["verified"];
    assert!(verified["planned_pages"].as_u64().unwrap() >= 50 * 24, "{figures:#}");
    assert_eq!(figures["report"]["complete"], true, "{figures:#}");
    assert_eq!(verified["planned_pages"], verified["resident_pages"]);
}

#[test]
fn files_that_a_user_may_not_read_are_counted_and_the_others_are_read() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    if !is_root() {
        return skip("only root can become another user");
    }
    let (open, closed) = (file_on(&fs, "open", 16), file_on(&fs, "closed", 16));
    must("chmod", &["600", closed.to_str().unwrap()]);
    fs.remount();
    // The checkout may be where only root can look.
    let dir = tempfile::tempdir().unwrap();
    must("chmod", &["755", dir.path().to_str().unwrap()]);
    let (binary, list, view) =
        (dir.path().join("headstart"), dir.path().join("list"), dir.path().join("view"));
    std::fs::copy(env!("CARGO_BIN_EXE_headstart"), &binary).unwrap();
    std::fs::create_dir(&view).unwrap();
    must("mount", &["--bind", fs.path().to_str().unwrap(), view.to_str().unwrap()]);
    let lines = format!("{0}/open\n{0}/closed\n", view.display());
    std::fs::write(&list, lines).unwrap();
    let output = as_nobody(&binary).args(["replay", "--wait"]).arg(&list).output().unwrap();
    must("umount", &[view.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 file not permitted"), "{said}");
    assert_eq!(resident(&open), [(0, 16)]);
    assert_eq!(resident(&closed), []);
}
