//! `headstart faults` as root: all faults are recorded, those of the kernel itself too, and each is
//! attributed to what was touched.

use crate::command::headstart;
use headstart_testing::{as_nobody, disk_dir, public_dir, python, root_or_skip, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Reads the first 100 pages of a file whose path it is given, and writes these and the last 100 in a
/// private mapping; lets the kernel fill 100 new pages by read(2); and does the same in a child.
const PROGRAM: &str = "
import mmap, os, sys
path = sys.argv[1]
def touch():
    with open(path, 'rb') as file:
        pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE,
                          prot=mmap.PROT_READ | mmap.PROT_WRITE)
        for page in range(100):
            pages[page * 4096]
        for page in (*range(100), *range(200, 300)):
            pages[page * 4096] = 1
        memory = mmap.mmap(-1, 100 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        file.seek(0)
        assert file.readinto(memory) == 100 * 4096
touch()
child = os.fork()
if child == 0:
    touch()
    os._exit(0)
os.waitpid(child, 0)
";

/// The document of a run of [`PROGRAM`].
fn recorded(dir: &Path, python: &str) -> Value {
    let (data, figures) = (dir.join("data"), dir.join("figures.json"));
    fs::write(&data, [7; 300 * 4096]).unwrap();
    let words = ["faults", "-q", "--json", figures.to_str().unwrap(), "--"];
    let program = [python, "-I", "-S", "-c", PROGRAM, data.to_str().unwrap()];
    let output = headstart(&[&words[..], &program].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&fs::read(figures).unwrap()).unwrap()
}

#[test]
fn each_page_that_is_touched_or_copied_is_a_fault_of_its_file() {
    if !root_or_skip() {
        return;
    }
    let Some(python) = python() else { return };
    let dir = disk_dir();
    let document = recorded(dir.path(), &python);
    let data = dir.path().join("data");
    let places = document["places"].as_array().unwrap();
    let place = places.iter().find(|place| place["path"] == data.to_str().unwrap()).unwrap();
    // Two processes, each with 200 pages that it writes, of which those that it has read are mapped;
    // a fault that reads maps pages around it, up to all. The file was written a moment ago, so
    // nothing waits for a disk.
    let minor = place["minor"]["count"].as_u64().unwrap();
    assert!((402..=600).contains(&minor), "{place:#}");
    let copied = place["copied"].as_u64().unwrap();
    assert!((200..=400).contains(&copied), "{place:#}");
    assert_eq!(place["major"]["count"], 0);
    assert_eq!(place["segment"], "data");
    assert!(place["minor"]["time_ns"].as_u64() > Some(minor * 100), "{place:#}");
    // Parent and child are two processes of one name.
    let processes = document["processes"].as_array().unwrap();
    let with_many =
        processes.iter().filter(|process| process["minor"]["count"].as_u64() >= Some(300));
    assert_eq!(with_many.count(), 2, "{processes:#?}");
}

#[test]
fn all_faults_that_getrusage_counts_are_recorded() {
    if !root_or_skip() {
        return;
    }
    let Some(python) = python() else { return };
    let dir = disk_dir();
    let document = recorded(dir.path(), &python);
    let number = |value: &Value| value.as_u64().unwrap();
    let (total, rest) = (&document["total"], &document["unlisted"]);
    let recorded = number(&total["minor"]["count"])
        + number(&total["major"]["count"])
        + number(&rest["minor_before_exec"])
        + number(&rest["major_before_exec"]);
    let usage = &document["getrusage"];
    let accounted = number(&usage["minor"]) + number(&usage["major"]);
    assert_eq!((&rest["lost_faults"], &rest["user_only"]), (&0.into(), &false.into()));
    let missing = accounted.abs_diff(recorded);
    assert!(missing * 200 <= accounted, "{missing} of {accounted}: {document:#}");
}

#[test]
fn of_a_program_that_gains_privileges_all_but_its_faults_is_known() {
    if !root_or_skip() {
        return;
    }
    let dir = public_dir();
    let (program, figures) = (dir.path().join("sleep"), dir.path().join("figures.json"));
    fs::copy("/bin/sleep", &program).unwrap();
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let program = program.to_str().unwrap();
    for (command, faults) in
        [(&[program, "0.2"][..], 0), (&["sh", "-c", "\"$0\" 0.2; :", program], 20)]
    {
        let words = ["faults", "--json", figures.to_str().unwrap(), "--"];
        let output = headstart(&[&words[..], command].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let document: Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
        if document["unlisted"]["privileged_programs"] == 0 {
            return skip("programs gain no privileges in /var/tmp");
        }
        assert_eq!(document["unlisted"]["privileged_programs"], 1, "{document:#}");
        assert!(document["wall_ns"].as_u64() >= Some(200_000_000), "{document:#}");
        assert!(document["total"]["minor"]["count"].as_u64() >= Some(faults), "{document:#}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("1 program gained privileges"), "{message}");
    }
}

#[test]
fn users_other_than_root_record_their_own_programs_without_faults_of_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let dir = public_dir();
    let program = dir.path().join("headstart");
    fs::copy(env!("CARGO_BIN_EXE_headstart"), &program).unwrap();
    let output = as_nobody(&program).args(["faults", "--", "/bin/true"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    let setting = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    match setting.trim().parse::<i32>().unwrap() {
        3.. => {
            assert_eq!(output.status.code(), Some(4), "{output:?}");
            assert!(message.contains("perf_event_paranoid is"), "{message}");
        }
        2 => {
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            assert!(message.contains("libc.so.6"), "{message}");
            assert!(message.contains("Faults of the kernel itself"), "{message}");
        }
        _ => assert_eq!(output.status.code(), Some(0), "{output:?}"),
    }
    let other = as_nobody(&program).args(["faults", "--pid", "1"]).output().unwrap();
    assert_eq!(other.status.code(), Some(4), "{other:?}");
}
