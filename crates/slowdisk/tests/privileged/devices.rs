//! Disks come up, hold what is written, get cold, go down, and nothing of
//! them is left after a `kill -9`.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, possible, text};
use headstart::replay::probe::{LIMIT, probe};
use headstart::replay::strategy::Order;
use headstart_testing::undisturbed;
use slowdisk::load::BUSY;
use slowdisk::measure::closed_loop;
use slowdisk::sim::random_reads;
use slowdisk::{host, lifecycle};

/// What a busy machine made wrong is measured again within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many wrong measurements on an idle machine fail the test: a disk's latency changes within a second in one of some 40.
const ATTEMPTS: usize = 3;

const CONTENT: usize = 3 << 20;

/// Makes an image with a file system of that kind and a file in it.
fn format(place: &Place, kind: &str) {
    place.blank(512);
    let force = if kind == "ext4" { "-F" } else { "-f" };
    let made = Command::new(format!("mkfs.{kind}")).args(["-q", force]).arg(place.image()).output();
    let made = made.expect("mkfs runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let device = place.must(
        &["up", "--model", "sata-ssd", "--keep-writes", "--image"],
        &[&place.image(), Path::new("--mount"), &place.mount()],
    );
    fs::write(place.mount().join("file"), vec![7; CONTENT]).expect("room");
    place.must(&["down"], &[Path::new(device.trim())]);
}

/// Reads all of the file; gives the bytes that came from the device for it.
fn bytes_read_for_file(place: &Place) -> u64 {
    place.must(&["stats", "--reset"], &[&place.mount()]);
    let content = fs::read(place.mount().join("file")).expect("the file");
    assert!(content == vec![7; CONTENT]);
    let stats = place.must(&["stats", "--json"], &[&place.mount()]);
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!(stats["schema"], "slowdisk/stats/1");
    assert_eq!(stats["errors"], 0);
    stats["reads"]["bytes"].as_u64().expect("a number")
}

/// What the kernel still has of the disks of this place.
fn left_over(place: &Place) -> Vec<PathBuf> {
    let state = place.path("state");
    let mut left =
        host::mounts(|m| m.mount_point.starts_with(&state) || m.mount_point == place.mount())
            .expect("mounts");
    for entry in fs::read_dir("/sys/block").expect("devices") {
        let backing = entry.expect("a device").path().join("loop/backing_file");
        let name = fs::read_to_string(&backing).unwrap_or_default();
        let id = state.to_str().expect("UTF-8");
        if name.contains(id) || name.contains(&id.replace('/', "-")) {
            left.push(name.into());
        }
    }
    left.extend(fs::read_dir(&state).into_iter().flatten().filter_map(|entry| {
        let path = entry.ok()?.path();
        (path.file_name()? != "lock").then_some(path)
    }));
    left
}

fn kill(process: u32) {
    let pid = rustix::process::Pid::from_raw(process as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
    // Its socket refuses connections once all its threads are gone; the first one may end before others.
    let proc = PathBuf::from(format!("/proc/{process}"));
    let threads = || fs::read_dir(proc.join("task")).map_or(0, Iterator::count);
    let lives = || fs::read_to_string(proc.join("stat")).is_ok_and(|s| !s.contains(") Z"));
    while threads() > 1 || lives() {
        std::thread::yield_now();
    }
}

#[test]
fn every_file_system_comes_up_pristine_and_cold_after_a_remount() {
    let test = "every_file_system_comes_up_pristine_and_cold_after_a_remount";
    if !possible(test, &["losetup"]) {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"] {
        if !possible(test, &[&format!("mkfs.{kind}")]) {
            continue;
        }
        let place = Place::new();
        format(&place, kind);
        place.up("cloud", true);
        let cold = bytes_read_for_file(&place);
        assert!(cold >= CONTENT as u64, "{kind}: {cold} bytes for a cold file");
        let warm = undisturbed(&[&place.mount()], || {
            bytes_read_for_file(&place);
            bytes_read_for_file(&place)
        });
        assert_eq!(warm, 0, "{kind}: a warm file");
        place.must(&["remount"], &[&place.mount()]);
        let cold = bytes_read_for_file(&place);
        assert!(cold >= CONTENT as u64, "{kind}: {cold} bytes after a remount");
        fs::write(place.mount().join("file"), "other").expect("room");
        place.must(&["remount"], &[&place.mount()]);
        assert_eq!(fs::read(place.mount().join("file")).expect("it"), b"other", "{kind}");
        place.must(&["down"], &[&place.mount()]);
        place.up("emmc", true);
        bytes_read_for_file(&place);
        place.must(&["down"], &[&place.mount()]);
        assert_eq!(left_over(&place), Vec::<PathBuf>::new(), "{kind}");
    }
}

#[test]
fn a_killed_server_is_cleaned_up_by_the_next_up_and_by_down() {
    let test = "a_killed_server_is_cleaned_up_by_the_next_up_and_by_down";
    if !possible(test, &["losetup", "mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    format(&place, "ext4");
    place.up("sata-ssd", true);
    let open = fs::File::open(place.mount().join("file")).expect("the file");
    kill(place.server());
    assert!(open.read_exact_at(&mut [0; 4096], 0).is_err(), "the disk is gone");
    assert!(place.must(&["status"], &[]).starts_with("dead\t"));
    assert!(!place.run(&["stats"], &[&place.mount()]).status.success());

    place.up("sata-ssd", true);
    bytes_read_for_file(&place);
    drop(open);
    kill(place.server());
    place.must(&["down"], &[&place.mount()]);
    assert_eq!(left_over(&place), Vec::<PathBuf>::new());

    place.up("nvme", true);
    kill(place.server());
    place.must(&["down", "--all"], &[]);
    assert_eq!(left_over(&place), Vec::<PathBuf>::new());
}

#[test]
fn an_up_that_is_killed_half_way_is_cleaned_up() {
    let test = "an_up_that_is_killed_half_way_is_cleaned_up";
    if !possible(test, &["losetup", "mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    format(&place, "ext4");
    // A mount(8) that kills who calls it.
    let bin = place.path("bin");
    fs::create_dir(&bin).expect("a directory");
    fs::write(bin.join("mount"), "#!/bin/sh\nkill -9 $PPID\n").expect("a script");
    fs::set_permissions(bin.join("mount"), fs::Permissions::from_mode(0o755)).expect("its mode");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a PATH"));
    let mut up = place.command();
    up.args(["up", "--model", "emmc", "--image"]).arg(place.image());
    up.arg("--mount").arg(place.mount()).env("PATH", path);
    assert_eq!(up.output().expect("it runs").status.code(), None, "it was killed");
    assert_eq!(left_over(&place).len(), 3, "FUSE, loop device, state");

    place.up("emmc", true);
    bytes_read_for_file(&place);
    place.must(&["down"], &[&place.mount()]);
    assert_eq!(left_over(&place), Vec::<PathBuf>::new());
}

#[test]
fn a_disk_in_use_is_neither_taken_down_nor_called_cold() {
    let test = "a_disk_in_use_is_neither_taken_down_nor_called_cold";
    if !possible(test, &["losetup", "mkfs.ext4", "unshare"]) {
        return;
    }
    let place = Place::new();
    format(&place, "ext4");
    place.up("emmc", true);
    let open = fs::File::open(place.mount().join("file")).expect("the file");
    for verb in ["down", "remount"] {
        let output = place.run(&[verb], &[&place.mount()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("end what uses it"), "{}", text(&output.stderr));
    }
    drop(open);
    bytes_read_for_file(&place);

    let mut other = Command::new("unshare")
        .args(["--mount", "sh", "-c", "echo; read x"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a mount namespace");
    let out = other.stdout.as_mut().expect("a pipe");
    std::io::Read::read_exact(out, &mut [0]).expect("it is there");
    let output = place.run(&["remount"], &[&place.mount()]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains(&other.id().to_string()), "{message}");
    drop(other.stdin.take());
    other.wait().expect("it ends");
    place.must(&["remount"], &[&place.mount()]);
    place.must(&["down"], &[&place.mount()]);
    assert_eq!(left_over(&place), Vec::<PathBuf>::new());
}

#[test]
fn without_a_mount_there_is_a_device_with_the_images_bytes() {
    let test = "without_a_mount_there_is_a_device_with_the_images_bytes";
    if !possible(test, &["losetup"]) {
        return;
    }
    let place = Place::new();
    place.blank(64);
    let image = fs::File::options().write(true).open(place.image()).expect("the image");
    image.write_all_at(&[9; 8192], 33 << 20).expect("room");
    for (model, rotational) in [("hdd", "1"), ("nvme", "0")] {
        let device = place.up(model, false);
        let queue = host::sysfs(&device).join("queue");
        for (name, value) in [("rotational", rotational), ("read_ahead_kb", "128")] {
            assert_eq!(fs::read_to_string(queue.join(name)).expect("sysfs").trim(), value);
        }
        assert!(fs::read(&device).expect("reads") == fs::read(place.image()).expect("it"));
        let file = fs::File::options().write(true).open(&device).expect("the device");
        file.write_all_at(&[1; 512], 0).expect("a write");
        file.sync_all().expect("a flush");
        drop(file);
        place.must(&["down"], &[&device]);
        assert!(fs::read(place.image()).expect("it").starts_with(&[0; 512]), "{model}");
    }
    assert_eq!(left_over(&place), Vec::<PathBuf>::new());
}

#[test]
fn writes_flushes_and_discards_are_counted() {
    let test = "writes_flushes_and_discards_are_counted";
    if !possible(test, &["losetup", "blkdiscard"]) {
        return;
    }
    let place = Place::new();
    place.blank(64);
    let device = place.up("sata-ssd", false);
    let file = fs::File::options().read(true).write(true).open(&device).expect("the device");
    file.write_all_at(&vec![5; 1 << 20], 8 << 20).expect("a write");
    file.sync_all().expect("a flush");
    let discarded = Command::new("blkdiscard").arg(&device).output().expect("blkdiscard runs");
    assert!(discarded.status.success(), "{}", text(&discarded.stderr));
    let stats = place.must(&["stats", "--json"], &[&device]);
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!(stats["writes"]["bytes"], 1 << 20);
    assert!(stats["flushes"].as_u64() >= Some(1));
    assert!(stats["discards"].as_u64() >= Some(1));
    assert_eq!(stats["errors"], 0);
    drop(file);
    let bytes = fs::read(&device).expect("reads");
    assert!(bytes.iter().all(|byte| *byte == 0), "discarded blocks read as zeroes");
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let test = "mistakes_are_answered_with_what_to_do";
    if !possible(test, &["losetup"]) {
        return;
    }
    let place = Place::new();
    place.blank(64);
    let image = place.image();
    let image = image.to_str().expect("UTF-8");
    let mount = place.mount();
    let mount = mount.to_str().expect("UTF-8");
    for (args, status, part) in [
        (vec!["up", "--model", "floppy", "--image", image, "--no-mount"], 2, "cloud-lazy"),
        (vec!["up", "--model", "hdd", "--image", "/none", "--no-mount"], 1, "/none"),
        (vec!["up", "--model", "hdd", "--image", image], 2, "--mount"),
        (vec!["up", "--model", "hdd", "--image", image, "--mount", "/none"], 1, "mkdir /none"),
        (vec!["up", "--model", "nvme", "--image", image, "--mount", mount], 1, "mount"),
        (
            vec!["up", "--model", "nvme", "--image", image, "--no-mount", "--keep-writes"],
            2,
            "losetup",
        ),
        (vec!["down", "/none"], 1, "nothing is"),
        (vec!["down"], 2, "--help"),
    ] {
        let output = place.run(&args, &[]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {message}");
        assert!(message.contains(part), "{args:?}: {message}");
        assert_eq!(left_over(&place), Vec::<PathBuf>::new(), "{args:?}");
    }
    // The binary lies where only root can reach it: run a copy.
    let copy = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir();
    let copy = copy.expect("a directory");
    fs::copy(env!("CARGO_BIN_EXE_slowdisk"), copy.path().join("slowdisk")).expect("a copy");
    let output = Command::new(copy.path().join("slowdisk"))
        .args(["up", "--model", "hdd", "--image", image, "--no-mount"])
        .uid(65_534)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("as root"));
}

/// The median latency of single reads from the device.
fn latency_us(device: &Path) -> u32 {
    let capacity = lifecycle::capacity(device).expect("a size");
    let run = closed_loop(device, 1, &random_reads(capacity, 4096, 32, 1));
    let mut latencies = run.expect("reads").latencies;
    latencies.sort_unstable();
    (latencies[latencies.len() / 2] / 1000) as u32
}

/// What headstart measures of a disk, and the read strategy that it chooses. Also on an idle machine
/// a disk is at times slower or faster than its model, so the latency is compared with what the disk
/// has right before and after.
#[test]
fn a_rotational_disk_is_detected() {
    let test = "a_rotational_disk_is_detected";
    if !possible(test, &["losetup"]) {
        return;
    }
    let place = Place::new();
    place.blank(1024);
    let start = Instant::now();
    // That of a rotational disk is the median of eight random seeks.
    for (name, order, tolerance, depth) in [
        ("hdd", Order::Elevator, 0.3, 1..=16),
        ("emmc", Order::Touch, 0.15, 1..=1),
        ("cloud-lazy", Order::Touch, 0.15, 16..=64),
        ("sata-ssd", Order::Touch, 0.15, 4..=64),
    ] {
        let mut wrong = 0;
        loop {
            // Again each time: the overhead is measured when a disk comes up.
            let (path, watched) = place.up_watched(name);
            let before = latency_us(&path);
            let began = Instant::now();
            let model = probe(&path, 1 << 20).expect("a device that can be read").model;
            let took = began.elapsed();
            let after = latency_us(&path);
            let others = watched.others();
            place.must(&["down"], &[&path]);
            let found =
                format!("{name}: {model:?} in {took:?}, {before} us before, {after} us after");
            eprintln!("{found}, {others:.2} CPUs used by others");
            let least = f64::from(before.min(after)) * (1.0 - tolerance);
            let most = f64::from(before.max(after)) * (1.0 + tolerance);
            // Else it changed meanwhile.
            let is_steady = f64::from(before.abs_diff(after)) <= tolerance * f64::from(before);
            if is_steady
                && model.order() == order
                && (least..=most).contains(&f64::from(model.latency_us))
                && depth.contains(&model.depth)
                && took < LIMIT + Duration::from_millis(100)
            {
                break;
            }
            // A device is as slow as its model only where nobody else has the CPUs.
            wrong += usize::from(others <= BUSY && is_steady);
            assert!(wrong < ATTEMPTS, "{found}");
            assert!(start.elapsed() < PATIENCE, "no steady disk on this machine: {found}");
        }
    }
}

#[test]
fn a_disk_that_is_cut_fails_and_its_log_has_what_came_before() {
    if !possible("cut", &[]) {
        return;
    }
    let place = Place::new();
    place.blank(4);
    let log = place.path("log");
    let paths = [&place.image(), Path::new("--log"), &log];
    let words = ["up", "--model", "sata-ssd", "--no-mount", "--image"];
    let device = PathBuf::from(place.must(&words, &paths).trim());
    let file = fs::File::options().read(true).write(true).open(&device).expect("the device");
    let page: Vec<u8> = (0..4096u32).map(|n| (n % 251) as u8).collect();
    file.write_all_at(&page, 8192).expect("a write");
    file.sync_all().expect("a flush");
    let logged = fs::read(&log).expect("the log");
    place.must(&["cut"], &[&device]);
    assert!(file.write_all_at(&page, 0).and_then(|()| file.sync_all()).is_err());
    assert_eq!(fs::read(&log).expect("the log"), logged, "nothing reached a dead disk");
    let at = logged.windows(page.len()).position(|part| part == page).expect("the page");
    assert_eq!(logged[at - 17], b'W');
    assert_eq!(logged[at - 16..at - 8], 8192u64.to_le_bytes());
    assert!(logged[at + page.len()..].contains(&b'F'));
    drop(file);
    place.must(&["down"], &[&device]);
}
