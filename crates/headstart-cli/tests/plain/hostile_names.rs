//! Names that would move a cursor, forge a line, or turn the direction of text: no verb prints
//! them as they are. And every `--json` is one, whatever the bytes of the paths.

use crate::command::headstart;
use headstart::host::identity::identity_of;
use headstart::host::names::is_visible;
use headstart::host::usage::How;
use headstart::pack::build::{FilePart, Parts};
use headstart::pack::paths::PathInterner;
use headstart::pack::pieces::Piece;
use headstart::pack::{FileSystem, History, Origin, Pack, store};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Escape, line end, right-to-left override, a C1 control, no UTF-8.
const HOSTILE: &[u8] = b"a\x1b[2J\nFORGED\xe2\x80\xae\xc2\x9b\r\xff\x7f";

/// Files, packs and lists below a directory, all with such names.
struct Place {
    dir: tempfile::TempDir,
    file: PathBuf,
    pack: PathBuf,
    other: PathBuf,
    list: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let named =
        |ending: &str| dir.path().join(OsStr::from_bytes(&[HOSTILE, ending.as_bytes()].concat()));
    let (file, list) = (named(""), named(".list"));
    fs::write(&file, [0; 8192]).unwrap();
    fs::write(&list, "no list\x1b[2J\u{202e} 0:x\n").unwrap();
    let (pack, other) = (named(".pack"), named("2.pack"));
    store::lock(&pack).unwrap().write(&pack_of(&file, 1)).unwrap();
    store::lock(&other).unwrap().write(&pack_of(&file, 2)).unwrap();
    Place { dir, file, pack, other, list }
}

fn pack_of(file: &Path, pages: u64) -> Pack {
    let hostile = String::from_utf8_lossy(HOSTILE).into_owned();
    let on = FileSystem { uuid: None, kind: hostile.clone(), source: HOSTILE.to_vec() };
    let origin = Origin {
        page_shift: 12,
        starts: 1,
        name: hostile.clone(),
        command: HOSTILE.to_vec(),
        kernel: hostile,
        ..Origin::default()
    };
    let (mut parts, mut names) = (Parts { origin, ..Parts::default() }, PathInterner::default());
    let file_system = parts.file_system(&on).unwrap();
    // One that is what was learned, and one that is gone.
    for name in [file.to_owned(), file.join("gone")] {
        let identity = identity_of(&rustix::fs::stat(file).unwrap());
        let piece =
            Piece { pages: (0..pages).into(), at_us: 0, how: How::READ, history: History(1) };
        let part = FilePart { file_system, identity, changes: History(0), pieces: vec![piece] };
        parts.files.insert(names.intern(&name).unwrap(), part);
    }
    parts.build(names.table())
}

fn words<'a>(words: &[&'a str], paths: &[&'a Path]) -> Vec<&'a OsStr> {
    words
        .iter()
        .map(|word| OsStr::new(*word))
        .chain(paths.iter().map(|path| path.as_os_str()))
        .collect()
}

fn check(output: &Output, args: &[&OsStr]) {
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let text = std::str::from_utf8(bytes);
        let text = text.unwrap_or_else(|_| panic!("{name} of {args:?} is no text: {output:?}"));
        let bad: Vec<char> =
            text.chars().filter(|&c| !is_visible(c) && !"\n\t".contains(c)).collect();
        assert!(bad.is_empty(), "{name} of {args:?} has {bad:?}: {text}");
        assert!(!text.contains("\nFORGED"), "{name} of {args:?}: {text}");
    }
}

/// Runs the command with these packs.
fn with_packs(args: &[&OsStr], packs: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(args).env("HEADSTART_PACKS", packs).output().unwrap()
}

#[test]
fn no_text_view_prints_a_name_that_is_not_visible() {
    let Place { dir, file, pack, other, list } = &place();
    let hostile = Path::new(OsStr::from_bytes(HOSTILE));
    let (missing, inside) = (dir.path().join("gone").join(hostile), file.join("x"));
    let svg = inside.as_path();
    for (args, prints) in [
        (words(&["show"], &[pack]), true),
        (words(&["show", "--list"], &[pack]), true),
        (words(&["show", "--dump"], &[pack]), true),
        (words(&["show", "--last-run"], &[pack]), false),
        (words(&["show"], &[&missing]), false),
        (words(&["replay", "--dry-run"], &[pack]), true),
        (words(&["replay", "--dry-run"], &[list]), false),
        (words(&["replay"], &[&missing]), false),
        (words(&["pack", "verify"], &[pack]), true),
        (words(&["pack", "diff"], &[pack, other]), true),
        (words(&["pack", "merge", "-o"], &[file, pack]), false),
        (words(&["pages", "--total"], &[file, &missing]), true),
        (words(&["pages", "--list"], &[dir.path()]), true),
        (words(&["evict"], &[&missing]), false),
        (words(&["compare"], &[file, list]), false),
        (words(&["doctor"], &[]), true),
        (words(&["list"], &[]), true),
        (words(&["forget"], &[&missing]), false),
        (words(&["forget"], &[list]), false),
        (words(&["unit", "--root"], &[dir.path(), hostile]), false),
        (words(&["boot", "analyze", "--root"], &[&missing]), false),
        (words(&["boot", "analyze", "--picture"], &[svg, Path::new("--root"), &missing]), false),
        (words(&["run", "--no-learn", "--no-replay", "--"], &[&missing]), false),
        (words(&["run", "-v", "--no-learn", "--no-replay", "--"], &[&missing]), false),
        (words(&[], &[hostile]), false),
        (words(&["show", "--list"], &[pack, hostile]), false),
        (words(&["record", "--name"], &[hostile]), false),
    ] {
        let output = with_packs(&args, dir.path());
        check(&output, &args);
        let told = if prints { &output.stdout } else { &output.stderr };
        assert!(!told.is_empty(), "{args:?} says nothing: {output:?}");
    }
}

#[test]
fn a_list_of_names_that_are_not_visible_is_read_back() {
    let Place { dir, file, pack, .. } = &place();
    let listed = headstart(&words(&["show", "--list"], &[pack])).stdout;
    let list = dir.path().join("list");
    fs::write(&list, &listed).unwrap();
    let plan = headstart(&words(&["replay", "--dry-run", "--json"], &[&list]));
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(path_of(&plan["steps"][0]), file.as_os_str(), "{plan}");
}

/// The exact path of an object with `path` and, perhaps, `path_bytes`.
fn path_of(object: &serde_json::Value) -> OsString {
    let bytes: Vec<u8> = serde_json::from_value(object["path_bytes"].clone()).unwrap();
    OsStr::from_bytes(&bytes).to_owned()
}

#[test]
fn every_json_is_one_and_has_the_exact_paths() {
    let Place { dir, file, pack, other, .. } = &place();
    for (args, at, path) in [
        (words(&["show", "--json"], &[pack]), "/files/0", file),
        (words(&["show", "--json"], &[pack]), "/pack", pack),
        (words(&["replay", "--dry-run", "--json"], &[pack]), "/steps/0", file),
        (words(&["pack", "verify", "--json"], &[pack]), "/pack", pack),
        (words(&["pack", "verify", "--json"], &[pack]), "/not_same/0", &file.join("gone")),
        (words(&["pack", "diff", "--json"], &[pack, other]), "/files/0", file),
        (words(&["pages", "--json"], &[file]), "/files/0", file),
        (words(&["evict", "--json"], &[file]), "/files/0", file),
        (words(&["doctor", "--json"], &[]), "/packs/0", pack),
        (words(&["list", "--json"], &[]), "/packs/0", pack),
    ] {
        let output = with_packs(&args, dir.path());
        check(&output, &args);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"));
        let object = document.pointer(at).unwrap_or_else(|| panic!("{args:?}: {document:#}"));
        assert_eq!(path_of(object), path.as_os_str(), "{args:?}");
    }
}
