//! `headstart elf repack --in-place` and `--system` as root: attributes, hard links, and kill -9.

use crate::common::elf_files::library;
use headstart_testing::{as_nobody, disk_dir, has, is_root, noise, public_dir, skip};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Processes that are killed, each at a moment of its own.
const KILLS: usize = 20;

fn repack(root: &Path, names: &[PathBuf]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["elf", "repack", "--in-place", "--any-loader", "--quiet", "--root"]).arg(root);
    command.args(names).stdout(Stdio::null());
    command
}

/// What the hooks of package managers run.
fn renew(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["elf", "repack", "--renew", "--any-loader", "--quiet", "--root"]).arg(root);
    command
}

fn undo(root: &Path, name: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    let done = command.args(["elf", "undo", "--root"]).arg(root).arg(name).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn owner_mode_times_attributes_capabilities_and_hard_links_are_kept() {
    if !is_root() {
        return skip("other owners need root");
    }
    let dir = disk_dir();
    let path = library(dir.path(), "liba.so", 5000);
    let other = dir.path().join("sub/name");
    fs::create_dir(other.parent().unwrap()).unwrap();
    fs::hard_link(&path, &other).unwrap();
    chown(&path, Some(1234), Some(4321)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set("user.note", b"kept");
    // CAP_NET_RAW as a file capability of version 2, effective and permitted.
    let capability = [1u32 | 0x0200_0000, 1 << 13, 0, 0, 0].map(u32::to_le_bytes).concat();
    set("security.capability", &capability);
    // An ACL: owner rwx, user 99 r, group r-x, mask r-x, others --x.
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1u16, 7u16, u32::MAX), (2, 4, 99), (4, 5, u32::MAX), (16, 5, u32::MAX), (32, 1, u32::MAX)]
    {
        acl.extend(
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat(),
        );
    }
    set("system.posix_acl_access", &acl);
    let value = |name: &str| {
        let mut value = [0; 200];
        let size = rustix::fs::getxattr(&path, name, &mut value[..]).unwrap();
        value[..size].to_vec()
    };
    let state = || {
        let meta = path.metadata().unwrap();
        let times = (meta.mtime(), meta.mtime_nsec());
        let names = ["user.note", "security.capability", "system.posix_acl_access"];
        let is_same = meta.ino() == other.metadata().unwrap().ino();
        (meta.uid(), meta.gid(), meta.mode(), times, meta.nlink(), is_same, names.map(value))
    };
    let (before, bytes) = (state(), fs::read(&path).unwrap());
    assert!(repack(dir.path(), &[path.clone(), other.clone()]).status().unwrap().success());
    assert_eq!(state(), before);
    assert_ne!(fs::read(&path).unwrap(), bytes);
    undo(dir.path(), &other);
    assert_eq!(state(), before);
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn each_name_has_the_old_or_the_new_file_after_kill_9_at_any_moment() {
    if !is_root() {
        return skip("records of root need root");
    }
    let dir = disk_dir();
    let path = library(dir.path(), "liba.so", 50_000);
    let others = ["b", "c"].map(|name| dir.path().join(name));
    for other in &others {
        fs::hard_link(&path, other).unwrap();
    }
    let names = [std::slice::from_ref(&path), &others[..]].concat();
    let root = dir.path();
    kill(&names, &|| repack(root, &names), &|| renew(root), &|| undo(root, &path));
}

#[test]
fn a_copy_has_what_its_user_may_give_it_and_no_signature() {
    if !is_root() || !has("setpriv") {
        return skip("other users need root and setpriv");
    }
    let dir = public_dir();
    let path = library(dir.path(), "liba.so", 5000);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    let set = |name: &str| {
        rustix::fs::setxattr(&path, name, b"\x04of this", rustix::fs::XattrFlags::empty())
    };
    set("user.note").unwrap();
    // EVM checks what it is set to, where the kernel has it.
    let signatures = ["security.ima", "security.evm"].map(set);
    eprintln!("note: signatures: {signatures:?}");
    let program = dir.path().join("headstart");
    fs::copy(env!("CARGO_BIN_EXE_headstart"), &program).unwrap();
    let of_nobody = dir.path().join("nobody");
    fs::create_dir(&of_nobody).unwrap();
    chown(&of_nobody, Some(65534), Some(65534)).unwrap();
    let value = |of: &Path, name: &str| rustix::fs::getxattr(of, name, &mut [0u8; 64][..]);
    for (mut command, out, mode, owner) in [
        (as_nobody(&program), of_nobody.join("out"), 0o755, 65534),
        (Command::new(&program), dir.path().join("out"), 0o6755, 0),
    ] {
        command.env("HEADSTART_PACKS", of_nobody.join("packs"));
        command.args(["elf", "repack", "--any-loader", "-o"]).args([&out, &path]);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let meta = out.metadata().unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid()), (mode, owner), "{mode:o}");
        assert_eq!(meta.mtime(), path.metadata().unwrap().mtime());
        assert_eq!(value(&out, "user.note"), Ok(8));
        for name in ["security.ima", "security.evm"] {
            assert!(value(&out, name).is_err(), "{name}");
        }
    }
}

/// A root with programs and libraries, of which one has three names.
fn system(root: &Path) -> Vec<PathBuf> {
    let lib = root.join("usr/lib");
    fs::create_dir_all(lib.join("sub")).unwrap();
    let mut names: Vec<_> = [8_000, 3_000, 20_000, 1_000, 5_000]
        .into_iter()
        .enumerate()
        .map(|(n, relocations)| library(&lib, &format!("lib{n}.so"), relocations))
        .collect();
    for other in ["lib2.so.1", "sub/lib2.so"].map(|name| lib.join(name)) {
        fs::hard_link(&names[2], &other).unwrap();
        names.push(other);
    }
    names
}

fn repack_system(root: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["elf", "repack", "--system", "--in-place", "--any-loader", "--quiet", "--root"]);
    command.arg(root).args(more).stdout(Stdio::null());
    command
}

fn undo_all(root: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    let done = command.args(["elf", "undo", "--all", "--root"]).arg(root).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_system_has_old_and_new_files_only_after_kill_9_at_any_moment() {
    if !is_root() {
        return skip("records of root need root");
    }
    let dir = disk_dir();
    let names = system(dir.path());
    let root = dir.path();
    kill(&names, &|| repack_system(root, &[]), &|| renew(root), &|| undo_all(root));
}

#[test]
fn a_system_with_diversions_has_old_and_new_files_only_after_kill_9_at_any_moment() {
    if !is_root() || !has("dpkg-divert") {
        return skip("diversions need root and dpkg");
    }
    let dir = disk_dir();
    let names = system(dir.path());
    let list = names.iter().map(|name| name.strip_prefix(dir.path()).unwrap().to_str().unwrap());
    let list: String = list.map(|name| format!("/{name}\n")).collect();
    let (hook, database) =
        (dir.path().join("etc/dpkg/dpkg.cfg.d"), dir.path().join("var/lib/dpkg"));
    for path in [&hook, &database.join("info")] {
        fs::create_dir_all(path).unwrap();
    }
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/dpkg/headstart");
    fs::copy(shipped, hook.join("headstart")).unwrap();
    fs::write(database.join("status"), "Package: example\n").unwrap();
    fs::write(database.join("info/example.list"), list).unwrap();
    let divert = || repack_system(dir.path(), &["--divert"]);
    kill(&names, &divert, &|| renew(dir.path()), &|| {
        undo_all(dir.path());
        assert_eq!(fs::read_to_string(database.join("diversions")).unwrap(), "");
    });
}

/// Kills a command that repacks `names` at many moments. Each of them has to lead to the old or
/// to the new file, the next one has to end what was begun, and `undo` has to bring back the old
/// files, to the byte, with nothing left. A hook that `renew`s in between changes none of this.
fn kill(
    names: &[PathBuf],
    command: &dyn Fn() -> Command,
    renew: &dyn Fn() -> Command,
    undo: &dyn Fn(),
) {
    let contents = || names.iter().map(|name| fs::read(name).unwrap()).collect::<Vec<_>>();
    let links = || names.iter().map(|name| name.metadata().unwrap().nlink()).collect::<Vec<_>>();
    let (old, old_links) = (contents(), links());
    let began = Instant::now();
    let done = command().output().unwrap();
    assert!(done.status.success(), "{done:?}");
    // Moments are drawn from the time that it takes; one that came too late shortens it.
    let mut span = began.elapsed();
    let (new, new_links) = (contents(), links());
    assert!(old.iter().zip(&new).all(|(old, new)| old != new));
    undo();
    // Seeded, so that a failure can be met again.
    let mut moments = noise(40 * KILLS).into_iter();
    let (mut killed, mut halfway) = (0, 0);
    while killed < KILLS {
        let part = moments.next().expect("enough processes live to be killed");
        let moment = span * u32::from(part) / u32::from(u8::MAX);
        let mut child = command().spawn().unwrap();
        let began = Instant::now();
        // A busy wait hits the moment.
        while began.elapsed() < moment {}
        child.kill().unwrap();
        let is_killed = child.wait().unwrap().code().is_none();
        killed += usize::from(is_killed);
        span = if is_killed { span } else { moment.max(Duration::from_millis(1)) };
        let now = contents();
        let mut count = 0;
        for (n, name) in names.iter().enumerate() {
            assert!(now[n] == old[n] || now[n] == new[n], "{} after {moment:?}", name.display());
            count += usize::from(now[n] == new[n]);
        }
        halfway += usize::from(count > 0 && count < names.len());
        if killed % 2 == 1 {
            let renewed = renew().output().unwrap();
            let now = contents();
            let is_known = |n: usize| now[n] == old[n] || now[n] == new[n];
            assert!((0..names.len()).all(is_known), "after {moment:?}: {renewed:?}");
        }
        // The next one goes on, whatever was left.
        let done = command().output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() || said.contains("packed already"), "{moment:?}: {said}");
        assert!(contents() == new, "after {moment:?}");
        assert_eq!(links(), new_links, "after {moment:?}");
        undo();
        assert!(contents() == old, "after {moment:?}");
        assert_eq!(links(), old_links, "after {moment:?}");
        for dir in names.iter().filter_map(|name| name.parent()) {
            let left = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> =
                left.filter(|name| name.to_string_lossy().contains(".headstart")).collect();
            assert!(left.is_empty(), "{left:?} after {moment:?}");
        }
    }
    eprintln!("note: {killed} killed, {halfway} between two names");
}
