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

/// The names in a log, in order.
fn names(log: &str) -> Vec<String> {
    found(log).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_child_that_has_a_line_before_its_start_returns_has_what_its_parent_has() {
    let log = "\
10 chdir(\"/dir\") = 0
10 openat(AT_FDCWD, \"f\", O_RDONLY) = 3
10 vfork( <unfinished ...>
11 read(3, \"\", 9) = 9
11 execve(\"x\", [\"x\"], 0x7ffd /* 20 vars */ <unfinished ...>
10 <... vfork resumed>)              = 11
11 <... execve resumed>)             = 0
11 openat(AT_FDCWD, \"g\", O_RDONLY) = 4
11 read(4, \"\", 9) = 9
";
    assert_eq!(names(log), ["/dir/f", "/dir/x", "/dir/g"]);
    assert_eq!(import(log.as_bytes(), 4096).unwrap().lacks.of_unknown_files, 0);
}

#[test]
fn a_log_of_a_terminal_numbers_a_process_only_while_there_are_several() {
    let log = "\
chdir(\"/dir\") = 0
clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
[pid    11] execve(\"a\", [\"a\"], 0x7ffd /* 20 vars */) = 0
[pid    10] <... clone resumed>, child_tidptr=0x7f) = 11
[pid    10] execve(\"b\", [\"b\"], 0x7ffd /* 20 vars */) = 0
[pid    11] +++ exited with 0 +++
execve(\"c\", [\"c\"], 0x7ffd /* 20 vars */) = 0
";
    assert_eq!(names(log), ["/dir/a", "/dir/b", "/dir/c"]);
}

#[test]
fn threads_share_their_directory_and_a_number_is_another_process_after_its_end() {
    let log = "\
10 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, child_tid=0x7f}, 88) = 12
12 chdir(\"/dir\") = 0
12 +++ exited with 0 +++
10 openat(AT_FDCWD, \"f\", O_RDONLY) = 3
10 read(3, \"\", 1) = 1
10 fork() = 12
12 chdir(\"/else\") = 0
12 +++ killed by SIGKILL +++
10 fork() = 12
12 openat(AT_FDCWD, \"g\", O_RDONLY) = 5
12 read(5, \"\", 1) = 1
";
    assert_eq!(names(log), ["/dir/f", "/dir/g"]);
}

#[test]
fn a_descriptor_that_is_something_else_now_has_not_the_file_that_it_was() {
    let log = |between: &str| {
        format!(
            "openat(AT_FDCWD, \"/f\", O_RDONLY|O_CLOEXEC) = 3\n\
             read(3, \"\", 1) = 1\n{between}\nread(3, \"\", 4096) = 4096\n"
        )
    };
    for between in [
        "execve(\"/x\", [\"x\"], 0x7ffd /* 20 vars */) = 0",
        "pipe2([3, 4], O_CLOEXEC) = 0",
        "socketpair(AF_UNIX, SOCK_STREAM, 0, [5, 3]) = 0",
        "socket(AF_INET, SOCK_STREAM, IPPROTO_IP) = 3",
        "close_range(3, 4294967295, 0) = 0",
        "dup2(9, 3) = 3",
        "openat(9, \"relative to what\", O_RDONLY) = 3",
    ] {
        let accesses = import(log(between).as_bytes(), 4096).unwrap();
        let pages: u64 = accesses
            .files()
            .iter()
            .filter(|(name, _)| **name == Name::Path(b"/f".to_vec()))
            .map(|(_, spans)| spans.pages())
            .sum();
        assert_eq!(pages, 1, "{between}");
        assert!(accesses.lacks.of_unknown_files >= 1, "{between}");
    }
    for between in [
        "fcntl(3, F_SETFD, 0) = 0\nexecve(\"/x\", [\"x\"], 0x7ffd /* 20 vars */) = 0",
        "dup3(3, 3, 0) = -1 EINVAL (Invalid argument)",
        "close_range(3, 4294967295, CLOSE_RANGE_CLOEXEC) = 0",
    ] {
        let accesses = import(log(between).as_bytes(), 4096).unwrap();
        assert_eq!(accesses.lacks.of_unknown_files, 0, "{between}");
    }
}

#[test]
fn reads_that_pass_by_the_page_cache_are_none_and_positions_of_calls_are_those_before_them() {
    let log = "\
openat(AT_FDCWD, \"/direct\", O_RDONLY|O_DIRECT) = 3
read(3, \"\", 4096) = 4096
openat(AT_FDCWD, \"/copied\", O_RDONLY) = 4
sendfile(1, 4, [8192] => [12288], 4096) = 4096
copy_file_range(4, [40960], 5, NULL, 4096, 0) = 4096
read(4, \"\", 4096) = 4096
";
    let found = found(log);
    assert_eq!(found.len(), 1);
    let pages: Vec<_> = found[0].1.iter().map(|(first, ..)| *first).collect();
    assert_eq!(pages, [0, 2, 10]);
    assert_eq!(import(log.as_bytes(), 4096).unwrap().lacks.only_opened, 0);
    let log = "open(\"/x\", O_RDONLY) = 3\nexecveat(3, \"\", [\"x\"], 0x7f, AT_EMPTY_PATH) = 0\n";
    assert_eq!(names(log), ["/x"]);
}

#[test]
fn a_thread_that_executes_a_program_goes_on_as_the_first_one() {
    let log = "\
10 chdir(\"/dir\") = 0
10 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 11
11 execve(\"x\", [\"x\"], 0x7ffd /* 20 vars */ <unfinished ...>
10 +++ superseded by execve in pid 11 +++
10 <... execve resumed>)             = 0
";
    assert_eq!(names(log), ["/dir/x"]);
}

#[test]
fn a_directory_that_grows_with_each_line_is_bounded() {
    let mut log = "execve(\"/x\", [\"x\"], 0x7f) = 0\n".to_owned();
    log += &"chdir(\"a\") = 0\n".repeat(20_000);
    log += &"openat(AT_FDCWD, \"b\", O_RDONLY) = 3\n".repeat(2000);
    log += "openat(AT_FDCWD, \"c\", O_RDONLY) = 3\nread(3, \"\", 1) = 1\n";
    let accesses = import(log.as_bytes(), 4096).unwrap();
    let longest = accesses.files().into_iter().map(|(name, _)| match name {
        Name::Path(path) => path.len(),
        Name::Inode(_) => 0,
    });
    assert!(longest.max() < Some(4096));
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
