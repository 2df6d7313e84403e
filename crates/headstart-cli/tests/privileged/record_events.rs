//! The accesses of a recorded start as text and CSV.

use crate::command::headstart;
use headstart_testing::{LoopFs, disk_dir, is_root, noise, skip, write_synced};
use std::path::Path;

/// A row of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    process: String,
    offset: u64,
    length: u64,
    accesses: u64,
    how: String,
}

/// The rows of a file, whose name has no comma, in a list as CSV.
fn rows_of(list: &str, file: &Path) -> Vec<Row> {
    let mut lines = list.lines();
    let header = "time_ns,until_ns,tid,process,file,offset,length,bytes,accesses,how";
    assert_eq!(lines.next(), Some(header));
    let fields = lines.map(|line| line.split(',').collect::<Vec<_>>());
    let rows = fields.filter(|fields| Path::new(fields[4]) == file);
    let number = |field: &str| field.parse().unwrap();
    let row = |fields: Vec<&str>| Row {
        process: fields[3].into(),
        offset: number(fields[5]),
        length: number(fields[6]),
        accesses: number(fields[8]),
        how: fields[9].into(),
    };
    rows.map(row).collect()
}

/// The pages of the rows that are of this kind.
fn pages(rows: &[Row], how: &str) -> Vec<u64> {
    let of_kind = rows.iter().filter(|row| row.how == how);
    let pages = |row: &Row| row.offset / 4096..(row.offset + row.length).div_ceil(4096);
    let mut pages: Vec<_> = of_kind.flat_map(pages).collect();
    pages.sort_unstable();
    pages
}

#[test]
fn the_accesses_of_a_program_are_listed_with_how_and_the_same_of_the_raw_trace() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let (file, program) = (fs.path().join("file"), fs.path().join("program"));
    write_synced(&file, &noise(1 << 20));
    std::fs::copy("/bin/echo", &program).unwrap();
    fs.remount();
    let dir = disk_dir();
    let at = |name: &str| dir.path().join(name).into_os_string().into_string().unwrap();
    let (pack, trace, csv, text) = (at("pack"), at("trace"), at("list.csv"), at("list"));
    // 64 KiB at two offsets, and a program.
    let read = |skip| format!("dd if={} of=/dev/null bs=64K skip={skip} count=1", file.display());
    let script = format!("{}; {}; {} done", read(1), read(8), program.display());
    let output = headstart(&[
        "record",
        "-q",
        "--pack",
        &pack,
        "--events",
        &csv,
        "--trace-out",
        &trace,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"done\n"[..]), "{output:?}");
    let list = std::fs::read_to_string(&csv).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let rows = rows_of(&list, &file);
    let expected: Vec<_> = (16..32).chain(128..144).collect();
    assert_eq!(pages(&rows, "read"), expected, "{list}");
    assert_eq!(pages(&rows, "added"), expected, "it was cold: {list}");
    assert!(rows.iter().all(|row| row.process == "dd" && row.accesses == 1), "{list}");
    let readahead = pages(&rows, "readahead");
    assert!(readahead.iter().all(|page| !expected.contains(page)), "{list}");
    assert!(!pages(&rows_of(&list, &program), "executed").is_empty(), "{list}");
    assert!(list.contains(",[metadata of "), "{list}");
    assert!(!list.contains(env!("CARGO_BIN_EXE_headstart")), "our own are not the program's");

    let from = ["record", "--from", &trace, "--events"];
    let listed = |options: &[&str]| {
        let output = headstart(&[&from[..], options].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let again = rows_of(&listed(&["-", "--events-format", "csv"]), &file);
    let unnamed = rows.iter().map(|row| Row { process: String::new(), ..row.clone() });
    assert_eq!(again, unnamed.collect::<Vec<_>>());
    let grouped = rows_of(&listed(&["-", "--events-format", "csv", "--group"]), &file);
    assert_eq!(grouped.len(), 2, "one of each dd: {grouped:?}");
    assert_eq!(grouped.iter().map(|row| row.accesses).sum::<u64>(), rows.len() as u64);
    listed(&[&text]);
    let text = std::fs::read_to_string(&text).unwrap();
    assert_eq!(text.lines().count(), list.lines().count());
    assert!(text.lines().any(|line| line.contains("read") && line.ends_with("/file")), "{text}");
}

#[test]
fn a_list_follows_the_output_of_the_program_and_replaces_no_other_file() {
    if !is_root() {
        skip("recording needs root");
        return;
    }
    let dir = disk_dir();
    let pack = dir.path().join("pack");
    let words = ["record", "-q", "--pack", pack.to_str().unwrap(), "--events"];
    let command = ["--", "sh", "-c", "echo hello"];
    let output = headstart(&[&words[..], &["-"], &command].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let (first, list) = text.split_once('\n').unwrap();
    assert_eq!(first, "hello");
    assert!(list.trim_start().starts_with("TIME ") && list.lines().count() > 10, "{list}");
    let mine = dir.path().join("mine");
    std::fs::write(&mine, "precious").unwrap();
    let output = headstart(&[&words[..], &[mine.to_str().unwrap()], &command].concat());
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
    assert_eq!(std::fs::read(&mine).unwrap(), b"precious");
}
