use super::*;
use crate::accesses::Name;
use proptest::prelude::*;

/// First page, number of pages and time.
type Ranges = Vec<(u64, u64, u64)>;

/// Each file with its ranges of pages, and the times in µs.
fn found(log: &str) -> Vec<(String, Ranges)> {
    let accesses = import(log.as_bytes(), 4096).unwrap();
    let ranges = |spans: &headstart::profile::spans::Spans| {
        spans.iter().map(|s| (s.pages.first, s.pages.count(), s.at / 1000)).collect()
    };
    accesses
        .files()
        .into_iter()
        .map(|(name, spans)| match name {
            Name::Path(path) => (String::from_utf8(path.clone()).unwrap(), ranges(spans)),
            Name::Inode(id) => panic!("{id:?}"),
        })
        .collect()
}

#[test]
fn reads_go_on_where_the_last_one_ended_and_seeks_and_copies_of_descriptors_move_it() {
    let log = "\
1700000000.000000 openat(AT_FDCWD, \"/f\", O_RDONLY) = 3
1700000000.000010 read(3, \"x\"..., 4096) = 4096
1700000000.050000 read(3, \"x\"..., 4096) = 4096
1700000000.100000 lseek(3, 40960, SEEK_SET) = 40960
1700000000.100001 dup2(3, 7) = 7
1700000000.100002 read(7, \"x\"..., 4096) = 100
1700000000.200000 pread64(3, \"x\"..., 10, 81920) = 10
1700000000.300000 read(3, \"x\"..., 4096) = 4096
1700000000.400000 close(3) = 0
1700000000.500000 read(3, \"\", 1) = 0
";
    assert_eq!(
        found(log),
        [(
            "/f".to_owned(),
            vec![(0, 1, 0), (1, 1, 49_990), (10, 1, 99_992), (11, 1, 299_990), (20, 1, 199_990)]
        )]
    );
}

#[test]
fn a_child_has_copies_of_descriptors_and_a_thread_shares_them() {
    let log = "\
10 openat(AT_FDCWD, \"/f\", O_RDONLY) = 3
10 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f) = 11
10 clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD, child_tid=0x7f}, 88) = 12
11 close(3) = 0
11 chdir(\"/dir\") = 0
11 openat(AT_FDCWD, \"g\", O_RDONLY) = 3
11 read(3, \"\", 1) = 1
12 read(3, \"\", 1) = 1
12 close(3) = 0
10 read(3, \"\", 9) = 9
";
    let names: Vec<_> = found(log).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["/dir/g", "/f"]);
    assert_eq!(import(log.as_bytes(), 4096).unwrap().lacks.of_unknown_files, 1);
}

#[test]
fn mappings_and_programs_are_taken_as_a_whole_and_paths_of_y_need_no_open() {
    let log = "\
execve(\"/bin/x\", [\"x\", \"(a, b)\"], 0x7ffd /* 20 vars */) = 0
mmap(NULL, 8192, PROT_READ|PROT_EXEC, MAP_PRIVATE|MAP_DENYWRITE, 3</lib/l.so>, 0x2000) = 0x7f0000
mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000
read(5</etc/x>, \"\", 7) = 7
read(0</dev/pts/0>, \"\", 7) = -1 EAGAIN (Resource temporarily unavailable)
openat(AT_FDCWD</home>, \"gone\", O_RDONLY) = -1 ENOENT (No such file or directory)
openat(AT_FDCWD</home>, \"only\", O_RDONLY) = 3</home/only>
";
    let found = found(log);
    let names: Vec<_> = found.iter().map(|(name, spans)| (&name[..], spans[0].0)).collect();
    assert_eq!(names, [("/bin/x", 0), ("/lib/l.so", 2), ("/etc/x", 0)]);
    assert!(found[0].1[0].1 > 1 << 40, "as long as it may be");
    assert_eq!(import(log.as_bytes(), 4096).unwrap().lacks.only_opened, 1);
}

#[test]
fn a_log_without_accesses_is_refused_with_how_to_record_one() {
    let error = import(b"close(3) = 0\n", 4096).unwrap_err().to_string();
    assert!(error.contains("strace -f"), "{error}");
}

#[test]
fn many_forks_of_a_process_with_many_descriptors_are_bounded() {
    let mut log = String::new();
    for number in 0..20_000 {
        log += &format!("open(\"a\", 0) = {number}\n");
    }
    for number in 1..2000 {
        log += &format!("fork() = {number}\n");
    }
    assert_eq!(import(log.as_bytes(), 4096).unwrap_err(), ImportError::TooMuch(12));
}

proptest! {
    #[test]
    fn no_log_makes_it_panic(
        lines in prop::collection::vec(prop_oneof![
            "[0-9]{1,2} (read|open|close|dup|fork|mmap|chdir|lseek)\\([0-9\"a/,<> ]{0,12}\\) = [0-9-]{1,3}",
            "[ -~]{0,30}",
        ], 0..20),
    ) {
        let _ = import(lines.join("\n").as_bytes(), 4096);
    }
}
