//! Packs of what other tools recorded, and page faults in their files, as the command tells of them.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn headstart_in(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(args).current_dir(dir).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/import").join(name)
}

/// A directory with files in a root, and a log of their use.
fn root() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::create_dir_all(dir.path().join("root/etc")).unwrap();
    fs::write(dir.path().join("root/etc/a"), [1; 20_000]).unwrap();
    std::os::unix::fs::symlink("/etc/a", dir.path().join("root/link")).unwrap();
    let log = "\
7 1700000000.000000 openat(AT_FDCWD, \"/link\", O_RDONLY) = 3
7 1700000000.000100 pread64(3, \"\", 100, 8192) = 100
7 1700000000.100000 read(3, \"\", 4096) = 4096
7 1700000000.200000 openat(AT_FDCWD, \"/gone\", O_RDONLY) = 4
7 1700000000.200100 read(4, \"\", 4096) = 4096
";
    fs::write(dir.path().join("log"), log).unwrap();
    dir
}

#[test]
fn a_log_becomes_a_pack_of_the_files_below_a_root_and_what_is_missing_is_named() {
    let dir = root();
    let output =
        headstart_in(dir.path(), &["pack", "import", "log", "-o", "x.pack", "--root", "root"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for words in [
        "log: strace, 1 file on this machine",
        "1 file missing here: /gone",
        "wrote x.pack: 1 file, 8.0 KiB",
    ] {
        assert!(told(&output).contains(words), "{words}: {}", told(&output));
    }
    assert_eq!(headstart_in(dir.path(), &["pack", "verify", "x.pack"]).status.code(), Some(0));
    let shown = headstart_in(dir.path(), &["show", "--list", "x.pack"]).stdout;
    let path = dir.path().join("root/etc/a");
    let lines = String::from_utf8(shown).unwrap();
    assert!(lines.contains(&format!("{} 0:4096,8192:4096\n", path.display())), "{lines}");
}

#[test]
fn a_file_that_is_none_of_the_formats_or_names_nothing_here_is_refused() {
    let dir = root();
    fs::write(dir.path().join("letter"), "Dear reader,\nthis is no recording.\n").unwrap();
    fs::write(dir.path().join("list"), "/nowhere/at/all 0:4096\n").unwrap();
    for (args, words) in [
        (&["pack", "import", "letter", "-o", "x.pack"][..], "none of the formats"),
        (
            &["pack", "import", "list", "-o", "x.pack"],
            "No file that was recorded is on this machine",
        ),
        (&["pack", "import", "log", "-o", "x.pack", "--format", "perf"], "byte order"),
        (&["pack", "import", "none", "-o", "x.pack"], "Can't import none"),
    ] {
        let output = headstart_in(dir.path(), args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(told(&output).contains(words), "{words}: {}", told(&output));
        assert!(!dir.path().join("x.pack").exists());
    }
}

#[test]
fn faults_of_a_trace_are_counted_as_the_tables_and_the_document_say() {
    let dir = tempfile::tempdir().unwrap();
    let trace = fixture("graph-v7-zstd.dat");
    let args = ["faults", "--json", "x.json", trace.to_str().unwrap()];
    let output = headstart_in(dir.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for line in
        ["page faults:        1,002", "page fault time:    0.001243 s", "file mapping count: 18"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    let document = fs::read(dir.path().join("x.json")).unwrap();
    let document: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["schema"], "headstart/faults-file/1");
    assert_eq!((&document["page_faults"], &document["file_mappings"]), (&1002.into(), &18.into()));
    assert_eq!(document["threads"][1]["name"], "chrome");
}

#[test]
fn faults_of_perf_have_the_places_of_their_mappings() {
    let dir = tempfile::tempdir().unwrap();
    let output = headstart_in(dir.path(), &["faults", fixture("faults.data").to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("libc.so.6") && text.contains("[anonymous]"), "{text}");
    let args =
        ["faults", "--csv", "x.csv", fixture("faults.data").to_str().unwrap()].map(str::to_owned);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(headstart_in(dir.path(), &args).status.code(), Some(1));
}
