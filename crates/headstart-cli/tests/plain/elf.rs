//! `headstart elf`: report, repack and undo, on files of each linker, which
//! `fuzz/fuzz_targets/elf_repack.rs` describes.

use crate::command::{headstart, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file that a linker made.
fn linked(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/elf_repack").join(name)
}

/// A copy of it in a directory.
fn copy(name: &str, dir: &Path) -> PathBuf {
    let path = dir.join(name);
    fs::copy(linked(name), &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o754)).unwrap();
    path
}

/// `headstart elf` with this system: records are below it.
fn elf(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env("HEADSTART_PACKS", dir.join("packs")).arg("elf").args(words);
    command.arg("--root").arg(dir).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_repacked_file_of_each_linker_is_undone_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["bfd.so", "gold.so", "lld.so", "mold.so", "bfd.exe", "lld.exe", "arm.so"] {
        let path = copy(name, dir.path());
        let (before, was) = (fs::read(&path).unwrap(), path.metadata().unwrap());
        let done = elf(dir.path(), &["repack", "--in-place", "--any-loader", text(&path)]);
        assert_eq!(done.status.code(), Some(0), "{name}: {done:?}");
        let now = path.metadata().unwrap();
        assert_ne!(fs::read(&path).unwrap(), before, "{name}");
        assert_eq!((now.mode(), now.mtime_nsec()), (was.mode(), was.mtime_nsec()), "{name}");
        let again = elf(dir.path(), &["repack", "--in-place", "--any-loader", text(&path)]);
        assert_eq!(again.status.code(), Some(3), "{name}: {again:?}");
        let undone = elf(dir.path(), &["undo", text(&path)]);
        assert_eq!(undone.status.code(), Some(0), "{name}: {undone:?}");
        assert_eq!(fs::read(&path).unwrap(), before, "{name}");
        let twice = elf(dir.path(), &["undo", text(&path)]);
        assert_eq!(twice.status.code(), Some(3), "{name}: {twice:?}");
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| !name.to_str().unwrap().starts_with('.')), "{names:?}");
    }
}

#[test]
fn a_repacked_program_prints_what_it_did() {
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for name in ["bfd.exe", "lld.exe"] {
        let (old, new) = (copy(name, dir.path()), dir.path().join("new"));
        let check = "{} 1 2";
        let words = ["elf", "repack", "-o", text(&new), "--check", check, text(&old)];
        let done = headstart(&words);
        if done.status.code() == Some(3) {
            // glibc before 2.36, or none.
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(said.contains("loader"), "{said}");
            return;
        }
        assert_eq!(done.status.code(), Some(0), "{name}: {done:?}");
        let run = |path: &Path| Command::new(path).output().unwrap();
        assert_eq!(run(&old), run(&new), "{name}");
        assert!(run(&new).status.success());
        let refused =
            headstart(&["elf", "repack", "-o", text(&new), "--check", "echo $$", text(&old)]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    }
}

#[test]
fn what_is_replaced_or_has_other_names_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy("bfd.so", dir.path());
    let other = dir.path().join("other.so");
    fs::hard_link(&path, &other).unwrap();
    let repack = |paths: &[&str]| {
        elf(dir.path(), &[&["repack", "--in-place", "--any-loader"], paths].concat())
    };
    let refused = repack(&[text(&path)]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("2 names"), "{refused:?}");
    let done = repack(&[text(&path), text(&other)]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(path.metadata().unwrap().ino(), other.metadata().unwrap().ino());
    fs::copy(linked("lld.so"), &path).unwrap();
    let undone = elf(dir.path(), &["undo", text(&path)]);
    assert_eq!(undone.status.code(), Some(3), "{undone:?}");
    assert_eq!(fs::read(&path).unwrap(), fs::read(linked("lld.so")).unwrap());
}

/// Two names of a file, repacked.
fn with_two_names(dir: &Path) -> [PathBuf; 2] {
    let path = copy("bfd.so", dir);
    let other = dir.join("other.so");
    let _ = fs::remove_file(&other);
    fs::hard_link(&path, &other).unwrap();
    let words = ["repack", "--in-place", "--any-loader", text(&path), text(&other)];
    let done = elf(dir, &words);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    [path, other]
}

#[test]
fn renewing_finishes_a_change_that_was_left_half_way_and_keeps_its_record() {
    let old = fs::read(linked("bfd.so")).unwrap();
    for n in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let names = with_two_names(dir.path());
        let new = fs::read(&names[0]).unwrap();
        // A process was killed when this name was the next one.
        fs::remove_file(&names[n]).unwrap();
        fs::copy(linked("bfd.so"), &names[n]).unwrap();
        let renewed = elf(dir.path(), &["repack", "--renew", "--any-loader", "--quiet"]);
        assert_eq!(renewed.status.code(), Some(0), "{renewed:?}");
        assert_eq!(
            names.clone().map(|name| fs::read(name).unwrap()),
            [&new, &new].map(Clone::clone)
        );
        let undone = elf(dir.path(), &["undo", text(&names[0])]);
        assert_eq!(undone.status.code(), Some(0), "{undone:?}");
        assert_eq!(names.map(|name| fs::read(name).unwrap()), [&old, &old].map(Clone::clone));
    }
}

#[test]
fn a_file_is_undone_after_one_of_its_names_was_removed() {
    let old = fs::read(linked("bfd.so")).unwrap();
    for (n, words) in [(0, "--all"), (1, "--all"), (0, "name"), (1, "name")] {
        let dir = tempfile::tempdir().unwrap();
        let names = with_two_names(dir.path());
        fs::remove_file(&names[n]).unwrap();
        let left = &names[1 - n];
        let renewed = elf(dir.path(), &["repack", "--renew", "--any-loader", "--quiet"]);
        assert_eq!(renewed.status.code(), Some(0), "{renewed:?}");
        let word = if words == "name" { text(left) } else { words };
        let undone = elf(dir.path(), &["undo", word]);
        assert_eq!(undone.status.code(), Some(0), "{undone:?}");
        assert_eq!(fs::read(left).unwrap(), old);
        assert!(!names[n].exists());
    }
}

#[test]
fn an_upgrade_of_one_name_is_packed_without_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let names = with_two_names(dir.path());
    let packed = fs::read(&names[1]).unwrap();
    fs::remove_file(&names[0]).unwrap();
    fs::copy(linked("lld.so"), &names[0]).unwrap();
    for _ in 0..2 {
        let renewed = elf(dir.path(), &["repack", "--renew", "--any-loader", "--quiet"]);
        assert_eq!((renewed.status.code(), renewed.stderr), (Some(0), vec![]));
    }
    assert_ne!(fs::read(&names[0]).unwrap(), fs::read(linked("lld.so")).unwrap());
    assert_eq!(fs::read(&names[1]).unwrap(), packed);
    let undone = elf(dir.path(), &["undo", "--all"]);
    assert_eq!(undone.status.code(), Some(0), "{undone:?}");
    for (name, of) in names.iter().zip(["lld.so", "bfd.so"]) {
        assert_eq!(fs::read(name).unwrap(), fs::read(linked(of)).unwrap(), "{of}");
    }
}

#[test]
fn only_skipped_files_that_are_named_themselves_are_told_and_give_a_status() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    fs::create_dir(&below).unwrap();
    let (path, script, packed) =
        (copy("bfd.so", dir.path()), dir.path().join("script"), copy("lld.so", &below));
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let pack = |words: &[&str]| elf(dir.path(), &[&["repack", "--any-loader"], words].concat());
    assert_eq!(pack(&["--in-place", text(&packed)]).status.code(), Some(0));
    let told = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let done = pack(&[text(&path), text(&below)]);
    assert_eq!((done.status.code(), told(&done)), (Some(0), String::new()));
    let done = pack(&[text(&script), text(&below)]);
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    assert!(told(&done).contains("script: ") && !told(&done).contains("lld.so"), "{done:?}");
    // A mistyped name is none of a whole system.
    for name in ["usr", "opt"] {
        let done = pack(&[text(&dir.path().join(name))]);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
    }
    assert_eq!(pack(&["--system"]).status.code(), Some(0));
}

#[test]
fn a_copy_is_never_written_over_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy("bfd.so", dir.path());
    let (link, other) = (dir.path().join("link"), dir.path().join("other"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    fs::hard_link(&path, &other).unwrap();
    for out in [&path, &link, &other] {
        let refused = elf(dir.path(), &["repack", "--any-loader", "-o", text(out), text(&path)]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("give --in-place"), "{said}");
        assert_eq!(fs::read(out).unwrap(), fs::read(linked("bfd.so")).unwrap());
    }
}

#[test]
fn a_file_of_a_package_is_repacked_if_asked_and_again_after_an_upgrade() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("usr/lib")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::write(root.join("var/lib/dpkg/info/a.list"), "/usr/lib/lld.so\n").unwrap();
    let path = copy("lld.so", &root.join("usr/lib"));
    let repack = |more: &[&str]| elf(root, &[&["repack", "--any-loader"], more].concat());
    let refused = repack(&["--in-place", text(&path)]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let done = repack(&["--in-place", "--packaged", text(&root.join("usr"))]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let packed = fs::read(&path).unwrap();
    // Nothing to renew.
    assert_eq!(repack(&["--renew", "--quiet"]).status.code(), Some(0));
    assert_eq!(fs::read(&path).unwrap(), packed);
    copy("lld.so", &root.join("usr/lib"));
    let renewed = repack(&["--renew", "--quiet"]);
    assert_eq!((renewed.status.code(), renewed.stderr), (Some(0), vec![]));
    assert_eq!(fs::read(&path).unwrap(), packed);
    // The package went.
    fs::remove_file(&path).unwrap();
    assert_eq!(repack(&["--renew", "--quiet"]).status.code(), Some(0));
    assert_eq!(elf(root, &["undo", "--all"]).status.code(), Some(0));
}

#[test]
fn a_report_tells_relocations_initializers_and_what_to_do() {
    let found = json(&["elf", "report", "--json", text(&linked("bfd.so"))]);
    assert_eq!(found["schema"], "headstart/elf-report/1");
    let file = &found["files"][0];
    let relocations = &file["relocations"];
    assert!(relocations["relative"].as_u64().unwrap() >= 200, "{relocations}");
    assert_eq!(relocations["kinds"][0]["kind"], "RELATIVE");
    assert!(relocations["as_relr_bytes"].as_u64().unwrap() < 100);
    assert!(file["repack"]["saved"].as_u64().unwrap() > 4096);
    assert!(file["initializers"].as_array().unwrap().len() >= 2);
    let advice = file["advice"].to_string();
    assert!(advice.contains("pack-relative-relocs"), "{advice}");
    let shown = headstart(&["elf", "report", text(&linked("bfd.so"))]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    for words in ["RELATIVE", "Before main", "code in large folios", "Advice"] {
        assert!(shown.contains(words), "{shown}");
    }
    let table = headstart(&["elf", "report", text(linked("bfd.so").parent().unwrap())]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("7 files: "), "{table}");
    assert_eq!(headstart(&["elf", "report", "/etc/passwd"]).status.code(), Some(1));
}

/// Links a program with this flag and these bytes of code; whether there is such a linker.
fn link(dir: &Path, words: &[&str], code: u64) -> Option<PathBuf> {
    let (source, out) = (dir.join("a.c"), dir.join("program"));
    let code = format!(
        "__asm__(\".text\\n.fill {code},1,0x90\\n\"); int main(void) {{ return 0; }}\n\
         __attribute__((constructor)) static void first(void) {{}}\n"
    );
    fs::write(&source, code).unwrap();
    let mut command = Command::new("cc");
    command.args(["-pie", "-fPIE", "-o", text(&out), text(&source)]).args(words);
    let linked = command.output().ok()?;
    let said = String::from_utf8_lossy(&linked.stderr).into_owned();
    assert!(linked.status.success() || said.contains("cannot find"), "{words:?}: {said}");
    linked.status.success().then_some(out)
}

#[test]
fn the_flag_for_alignment_lets_code_of_each_linker_be_mapped_by_large_folios() {
    let dir = tempfile::tempdir().unwrap();
    for linker in ["-fuse-ld=bfd", "-fuse-ld=gold", "-fuse-ld=lld", "-fuse-ld=mold"] {
        let folios = |flags: &[&str]| {
            let out = link(dir.path(), &[&[linker], flags].concat(), 6 << 20)?;
            let found = json(&["elf", "report", "--json", text(&out)]);
            Some((found["files"][0]["layout"]["large_folios"].clone(), found))
        };
        let Some((before, found)) = folios(&[]) else { continue };
        assert!(before == "not-congruent" || before == "not-aligned", "{linker}: {before}");
        let advice = found["files"][0]["advice"].as_array().unwrap();
        let fixes = advice.iter().flat_map(|one| one["fixes"].as_array().unwrap());
        let name = linker.trim_start_matches("-fuse-ld=").replace("bfd", "ld");
        let mut fixes = fixes.filter(|fix| fix[0] == *name).map(|fix| fix[1].as_str().unwrap());
        let flag = fixes.find(|flag| flag.contains("page-size")).unwrap();
        assert_eq!(folios(&[flag]).unwrap().0, "possible", "{linker} {flag}");
    }
}

#[test]
fn a_stripped_program_gets_names_from_its_debug_file_which_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = link(dir.path(), &["-Wl,--build-id"], 16) else { return };
    let debug = dir.path().join(".debug/program.debug");
    fs::create_dir(debug.parent().unwrap()).unwrap();
    let objcopy = |words: &[&str]| {
        let done = Command::new("objcopy").args(words).output();
        done.is_ok_and(|done| done.status.success())
    };
    if !objcopy(&["--only-keep-debug", text(&program), text(&debug)]) {
        return;
    }
    let link = format!("--add-gnu-debuglink={}", text(&debug));
    assert!(objcopy(&["--strip-all", &link, text(&program)]));
    let shown = || {
        let output = headstart(&["elf", "report", text(&program)]);
        String::from_utf8(output.stdout).unwrap()
    };
    let named = shown();
    assert!(named.contains(&format!("symbols: {} (by .gnu_debuglink)", text(&debug))), "{named}");
    assert!(named.contains("  first\n"), "{named}");
    let found = json(&["elf", "report", "--json", text(&program)]);
    assert_eq!(found["files"][0]["debug_file"]["path"], text(&debug));
    assert_eq!(found["files"][0]["debug_file_by"], "debug-link");
    // One of another build has another checksum.
    let mut bytes = fs::read(&debug).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&debug, bytes).unwrap();
    let unnamed = shown();
    assert!(
        unnamed.contains("symbols: stripped; there is no /usr/lib/debug/.build-id/"),
        "{unnamed}"
    );
    assert!(!unnamed.contains("  first\n"), "{unnamed}");
}
