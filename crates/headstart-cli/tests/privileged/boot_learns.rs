//! A scripted boot: files on a file system of its own are read while an instance that was
//! made beforehand records, systemd is a script, and the recorder learns each phase. And
//! what was learned is prefetched for a root directory that moves meanwhile.

use crate::command::json;
use crate::common::scripted_boot::{Boot, await_script, text, wait_for, wait_until_gone};
use headstart::boot::machine::Machine;
use headstart::host::identity::identity_of;
use headstart::host::usage::How;
use headstart::pack::build::{FilePart, Parts};
use headstart::pack::paths::PathInterner;
use headstart::pack::pieces::Piece;
use headstart::pack::{History, Origin, store};
use headstart_testing::{LoopFs, must, undisturbed};
use std::fs;
use std::path::Path;

fn read(fs: &LoopFs, name: &str) {
    must("cat", &[fs.path().join(name).to_str().unwrap()]);
}

#[test]
fn a_boot_that_the_kernel_began_to_record_is_learned_phase_by_phase() {
    let Some(boot) = Boot::new("phases") else { return };
    let Some(fs) = LoopFs::new("ext4") else { return };
    for name in ["early", "late", "never"] {
        fs::write(fs.path().join(name), vec![7; 200_000]).unwrap();
    }
    fs.remount();
    boot.happens("user-space");
    boot.trace();
    read(&fs, "early");
    boot.happens("local-fs.target");
    let child = boot.recorder().spawn().unwrap();
    read(&fs, "late");
    boot.happens("default.target");
    // Switching off ends the recording, and what was recorded is learned.
    await_script(&wait_for(&boot.root.path().join("run/headstart/recorded")));
    must("kill", &["-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("the kernel's first page on (trace_instance)"), "{output:?}");
    assert_eq!(boot.learned("mounts", &fs), ["early"], "{output:?}");
    assert_eq!(boot.learned("system", &fs), ["late"], "{output:?}");
    let status = json(&["boot", "status", "--json", "--root", boot.root.path().to_str().unwrap()]);
    let record = &status["boots"][0];
    assert_eq!(record["lost_events"], 0, "{record}");
    assert!(record["default_target_ms"].as_f64() > record["local_fs_ms"].as_f64(), "{record}");
    let root = boot.root.path().to_str().unwrap();
    let analysis = json(&["boot", "analyze", "--json", "--root", root]);
    let read = analysis["sums"]["demand_bytes"].as_u64().unwrap();
    assert!(read >= 400_000, "both files: {analysis}");
    let unit = &analysis["timeline"]["units"][0];
    let at = unit["active_us"].as_u64().unwrap();
    assert_eq!((&unit["name"], at), (&"a.service".into(), analysis["end_us"].as_u64().unwrap()));
    assert_eq!(record["phases"][0]["learned"], false, "nothing came before user space: {record}");
    await_script(&wait_until_gone(&boot.instance));

    // What is left of a killed recorder is removed, and its boot is not learned.
    fs::create_dir(&boot.instance).unwrap();
    let again = boot.recorder().output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again).contains("This boot was recorded before"), "{again:?}");
    await_script(&wait_until_gone(&boot.instance));
}

#[test]
fn a_recorder_that_comes_when_the_boot_is_over_learns_nothing() {
    let Some(boot) = Boot::new("over") else { return };
    for what in ["user-space", "local-fs.target", "default.target"] {
        boot.happens(what);
    }
    // No instance of the kernel's, which would have all of it.
    let output = boot.recorder_of("none").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("This boot is over"), "{output:?}");
    assert!(!boot.root.path().join("var").exists());
}

#[test]
fn nothing_is_learned_where_another_file_system_is_to_be_mounted_and_is_not() {
    let Some(boot) = Boot::new("state") else { return };
    let unit = boot.root.path().join("run/systemd/generator/var-lib-headstart.mount");
    fs::create_dir_all(unit.parent().unwrap()).unwrap();
    fs::write(unit, "").unwrap();
    boot.happens("user-space");
    boot.trace();
    boot.happens("local-fs.target");
    let child = boot.recorder().spawn().unwrap();
    boot.happens("default.target");
    await_script(&wait_for(&boot.root.path().join("run/headstart/recorded")));
    must("kill", &["-TERM", &child.id().to_string()]);
    let output = child.wait_with_output().unwrap();
    let said = text(&output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("/var/lib/headstart is not mounted, so this boot is not"), "{said}");
    assert!(!boot.root.path().join("var").exists());
    await_script(&wait_until_gone(&boot.instance));
}

#[test]
fn the_command_line_keeps_a_boot_from_being_recorded() {
    let Some(boot) = Boot::new("off") else { return };
    fs::create_dir(boot.root.path().join("proc")).unwrap();
    fs::write(boot.root.path().join("proc/cmdline"), "quiet headstart=off\n").unwrap();
    let output = boot.recorder().output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("headstart=off"), "{output:?}");
    // What the kernel records meanwhile would cost something for nothing.
    await_script(&wait_until_gone(&boot.instance));
    assert!(!boot.root.path().join("run/headstart").exists());
}

/// What a pack of the file system that is to become the root is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    /// The files that are there.
    This,
    /// Those of another file system.
    Another,
    /// Those that were there before.
    Earlier,
}

/// Where packs are.
const LEARNED: &str = "var/lib/headstart/boot";
const SHIPPED: &str = "usr/lib/headstart/boot";

/// Makes the file system that is to become the root ready for packs, and `/data` on it.
fn prepare(fs: &LoopFs) {
    fs::write(fs.path().join("data"), vec![7; 4 << 20]).unwrap();
    for dir in ["proc", "sys", "dev", "run"] {
        fs::create_dir(fs.path().join(dir)).unwrap();
    }
}

/// Puts a pack of one phase there, which names so many pages of `/data` as it is seen
/// there.
fn put_pack(fs: &LoopFs, dir: &str, of: Of, pages: u64) {
    let data = fs.path().join("data");
    let mut on = fs.identity();
    on.uuid.as_mut().unwrap()[0] ^= u8::from(of == Of::Another);
    let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
    let mut parts = Parts { origin, ..Parts::default() };
    let file_system = parts.file_system(&on).unwrap();
    let mut identity = identity_of(&rustix::fs::stat(&data).unwrap());
    identity.ino += u64::from(of == Of::Earlier);
    let piece = Piece { pages: (0..pages).into(), at_us: 0, how: How::READ, history: History(1) };
    let mut names = PathInterner::default();
    let node = names.intern(Path::new("/data")).unwrap();
    parts
        .files
        .insert(node, FilePart { file_system, identity, changes: History(0), pieces: vec![piece] });
    let name = Machine::at("/").pack("mounts", &on);
    let dir = fs.path().join(dir);
    for earlier in fs::read_dir(&dir).into_iter().flatten().flatten() {
        fs::remove_file(earlier.path()).unwrap();
    }
    let pack = dir.join(name.file_name().unwrap());
    store::lock(&pack).unwrap().write(&parts.build(names.table())).unwrap();
}

#[test]
fn of_what_was_learned_here_and_what_came_with_the_image_that_is_read_whose_files_are_there() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    prepare(&fs);
    for (learned, shipped, expected) in [
        (Of::This, Of::This, 100),
        (Of::Another, Of::This, 200),
        (Of::Earlier, Of::This, 200),
        (Of::This, Of::Earlier, 100),
        (Of::This, Of::Another, 100),
        (Of::Another, Of::Another, 0),
    ] {
        put_pack(&fs, LEARNED, learned, 100);
        put_pack(&fs, SHIPPED, shipped, 200);
        let told: serde_json::Value = undisturbed(&[fs.path()], || {
            fs.remount();
            let script = "set -e
                mount -t tmpfs none /run
                mkdir /run/new
                mount --bind \"$1\" /run/new
                \"$2\" boot replay --root /run/new --wait
                cat /run/headstart/replay/mounts.initramfs.json || echo '{}'";
            let program = env!("CARGO_BIN_EXE_headstart");
            let inside = ["-m", "--propagation", "private", "sh", "-c", script, "sh"];
            let inside = [&inside[..], &[fs.path().to_str().unwrap(), program]].concat();
            serde_json::from_str(&must("unshare", &inside)).unwrap()
        });
        let bytes = told["report"]["bytes"].as_u64().unwrap_or(0);
        assert_eq!(bytes / 4096, expected, "{learned:?} {shipped:?} {told:#}");
    }
}

#[test]
fn the_initramfs_prefetches_for_a_root_directory_that_moves_and_lets_go_of_it() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    prepare(&fs);
    put_pack(&fs, LEARNED, Of::This, 1024);
    let told: serde_json::Value = undisturbed(&[fs.path()], || {
        // A name space of its own, with a /run of its own, is the initramfs.
        let script = "set -e
            mount -t tmpfs none /run
            mkdir /run/new /run/moved
            mount --bind \"$1\" /run/new
            \"$2\" boot replay --root /run/new
            mount --move /run/new /run/moved
            until grep -q '\"ended_us\":[0-9]' /run/headstart/replay/mounts.initramfs.json; do :; done
            cat /run/headstart/replay/mounts.initramfs.json
            umount /run/moved";
        let program = env!("CARGO_BIN_EXE_headstart");
        let path = fs.path().to_str().unwrap();
        let inside = ["60", "unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh"];
        let inside = [&inside[..], &[path, program]].concat();
        serde_json::from_str(&must("timeout", &inside)).unwrap()
    });
    assert_eq!((told["phase"].as_str(), &told["in_initramfs"]), (Some("mounts"), &true.into()));
    let read = &told["report"];
    let bytes = read["bytes"].as_u64().unwrap() + read["resident_bytes"].as_u64().unwrap();
    assert_eq!(bytes, 4 << 20, "{told}");
    // Unmounts, which fails while anybody is still there.
    fs.remount();
}
