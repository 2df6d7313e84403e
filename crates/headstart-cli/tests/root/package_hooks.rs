//! The hooks of `dist` for package managers: the real managers run them, as they are
//! shipped, when they install, upgrade and remove packages in a root directory of a test's
//! own. What `headstart pack renew` makes of a pack is for `pack_renew.rs`.

use crate::common::managers::Manager::{self, Dpkg, Pacman, Rpm};
use crate::common::managers::words;
use crate::common::packs;
use crate::common::small_root::{Headstart, SmallRoot};
use headstart::host::identity::identity_of;
use headstart::host::usage::How;
use headstart::pack::{Identity, Pack, store};
use headstart_testing::noise;
use std::path::Path;
use std::process::Output;

const PAGE: usize = 4096;
/// What the package brings, and what is written when it is installed.
const FILES: [&str; 2] = ["/usr/games/example/data", "/var/cache/kept"];
/// What the hooks run.
const CALLS: [&str; 2] = ["elf repack --renew --quiet", "pack renew --quiet"];
/// A pack of a program and one of a boot.
const PACKS: [&str; 2] =
    ["/var/lib/headstart/packs/program.pack", "/var/lib/headstart/boot/default.pack"];

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Runs a command of the manager, which has to end well and has nothing to tell of
/// headstart.
fn manage(root: &SmallRoot, headstart: Headstart, command: &[String]) -> String {
    let output = root.run(headstart, &words(command));
    let said = text(&output);
    assert!(output.status.success(), "{headstart:?} {command:?}: {output:?}");
    assert!(!said.contains("headstart:"), "{headstart:?} {command:?}: {said}");
    said
}

fn identity(root: &SmallRoot, path: &str) -> Identity {
    identity_of(&rustix::fs::stat(root.place(path)).unwrap())
}

fn read(root: &SmallRoot, pack: &str) -> Pack {
    store::read(&root.place(pack), 0).unwrap()
}

/// What a pack says of a file.
fn known(pack: &Pack, path: &str) -> Option<(Identity, bool)> {
    let mut files = pack.files.iter().enumerate();
    let (index, file) = files.find(|(_, file)| pack.paths.path(file.node) == Path::new(path))?;
    let mut ranges = pack.ranges.iter().filter(|range| range.file as usize == index);
    Some((file.identity, ranges.all(|range| range.how.has(How::INFERRED))))
}

/// A package with one small file.
fn small(manager: Manager, root: &SmallRoot, name: &str, path: &str) -> Vec<String> {
    manager.install(&manager.build(root, name, 1, &[(path, b"x")], &[]))
}

/// What is learned follows the files through an upgrade and a removal.
fn packs_follow(manager: Manager) {
    let Some(root) = manager.root() else { return };
    let data = noise(220 * PAGE);
    let package =
        |version, data| manager.build(&root, "example", version, &[(&FILES[0][1..], data)], &[]);
    let versions = [package(1, &data[..200 * PAGE]), package(2, &data)];
    manage(&root, Headstart::Real, &manager.install(&versions[0]));
    let places = FILES.map(|path| root.place(path));
    let learned = [0, 1].map(|file| (Path::new(FILES[file]), places[file].as_path(), 100));
    PACKS.iter().for_each(|pack| packs::write(&root.fs, &root.place(pack), &learned));
    let before = FILES.map(|path| identity(&root, path));
    manage(&root, Headstart::Real, &manager.install(&versions[1]));
    for (path, was) in FILES.iter().zip(before) {
        let is = identity(&root, path);
        assert_ne!(is, was, "{path}");
        for pack in PACKS {
            assert_eq!(known(&read(&root, pack), path), Some((is, true)), "{path} {pack}");
        }
    }
    manage(&root, Headstart::Real, &manager.remove("example"));
    for pack in PACKS {
        assert_eq!(known(&read(&root, pack), FILES[0]), None, "{pack}");
    }
}

#[test]
fn packs_follow_the_upgrades_of_dpkg() {
    packs_follow(Dpkg);
}

#[test]
fn packs_follow_the_upgrades_of_rpm() {
    packs_follow(Rpm);
}

#[test]
fn packs_follow_the_upgrades_of_pacman() {
    packs_follow(Pacman);
}

/// Whatever headstart is and does, the manager ends as it does with one that does nothing.
fn the_manager_ends_as_ever(manager: Manager) {
    let Some(root) = manager.root() else { return };
    let install = small(manager, &root, "example", "usr/games/example/x");
    manage(&root, Headstart::Script(""), &install);
    assert!(!root.calls().is_empty());
    // From here on it is installed over itself.
    let expected = manage(&root, Headstart::Script(""), &install);
    for then in ["exit 1", "kill -KILL $$", "kill -PIPE $$"] {
        // The shell says this of what it started.
        let said = manage(&root, Headstart::Script(then), &install).replace("Killed\n", "");
        assert_eq!(said, expected, "{then}");
        assert!(root.calls().iter().all(|call| CALLS.contains(&call.as_str())));
    }
    // The last two have no packs.
    for headstart in [Headstart::Missing, Headstart::Real, Headstart::WithoutProc] {
        assert_eq!(manage(&root, headstart, &install), expected, "{headstart:?}");
    }
}

#[test]
fn dpkg_ends_as_ever_whatever_headstart_does() {
    the_manager_ends_as_ever(Dpkg);
}

#[test]
fn rpm_ends_as_ever_whatever_headstart_does() {
    the_manager_ends_as_ever(Rpm);
}

#[test]
fn pacman_ends_as_ever_whatever_headstart_does() {
    the_manager_ends_as_ever(Pacman);
}

#[test]
fn files_anywhere_are_a_reason_to_renew() {
    // dpkg does not ask which.
    for manager in [Rpm, Pacman] {
        let Some(root) = manager.root() else { continue };
        for (name, path) in [("one", "etc/x/y"), ("two", "opt/x/y/z"), ("three", "srv/x")] {
            manage(&root, Headstart::Script(""), &small(manager, &root, name, path));
            assert_eq!(root.calls(), CALLS, "{manager:?} {path}");
            manage(&root, Headstart::Script(""), &manager.remove(name));
            assert_eq!(root.calls(), CALLS, "{manager:?} {path}");
        }
    }
}

#[test]
fn rpm_hands_over_more_names_than_a_pipe_holds_and_nobody_reads_them() {
    let Some(root) = Rpm.root() else { return };
    let paths: Vec<String> =
        (0..1000).map(|file| format!("usr/games/{}/{file}", "long-name".repeat(20))).collect();
    let files: Vec<(&str, &[u8])> = paths.iter().map(|path| (path.as_str(), &b""[..])).collect();
    assert!(paths.iter().map(String::len).sum::<usize>() > 128 << 10);
    let package = Rpm.build(&root, "example", 1, &files, &[]);
    manage(&root, Headstart::Script(""), &Rpm.install(&package));
    assert_eq!(root.calls(), CALLS);
}

#[test]
fn boots_are_no_longer_recorded_when_the_package_of_headstart_is_removed() {
    const DISABLE: &str = "boot disable";
    for manager in [Dpkg, Rpm, Pacman] {
        let Some(root) = manager.root() else { continue };
        for version in [2, 3] {
            let install = manager.install(&manager.headstart(&root, version));
            manage(&root, Headstart::Script(""), &install);
        }
        assert!(!root.calls().iter().any(|call| call == DISABLE), "an upgrade of {manager:?}");
        manage(&root, Headstart::Script("exit 1"), &manager.remove("headstart"));
        let calls = root.calls();
        assert_eq!(
            calls.iter().filter(|call| *call == DISABLE).count(),
            1,
            "{manager:?} {calls:?}"
        );
    }
}
