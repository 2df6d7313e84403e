//! What a program asks of the kernel, and what it answers, is the same with
//! and without headstart.

use crate::common::invocations::{Invocations, words};
use headstart_testing::{has, skip};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::process::Command;

/// The lines of `strace -f -o` of a program, from its execve on, and of its
/// descendants, one list for each process, without what is never twice the
/// same.
fn calls_of(text: &str, program: &str) -> Vec<Vec<String>> {
    let mut calls: HashMap<&str, Vec<String>> = HashMap::new();
    // The lines of calls that have not returned.
    let mut begun = HashMap::new();
    for line in text.lines() {
        let (pid, line) = line.split_once(' ').unwrap();
        let line = line.trim_start();
        let own = calls.entry(pid).or_default();
        if let Some((_, rest)) = line.split_once(" resumed>") {
            let at: usize = begun.remove(pid).unwrap();
            own[at].push_str(rest);
        } else if let Some(begin) = line.strip_suffix(" <unfinished ...>") {
            begun.insert(pid, own.len());
            own.push(begin.to_owned());
        } else {
            own.push(line.to_owned());
        }
    }
    let begin = format!("execve(\"{program}\"");
    let begins = |line: &String| line.starts_with(&begin) && line.ends_with("= 0");
    let first = calls.iter().find(|(_, own)| own.iter().any(begins)).unwrap();
    let mut pids = vec![(*first.0).to_owned()];
    let mut out = Vec::new();
    let mut next = 0;
    while let Some(pid) = pids.get(next) {
        let own = &calls[&pid[..]];
        let own = &own[if next == 0 { own.iter().position(begins).unwrap() } else { 0 }..];
        out.push(own);
        let forks = own.iter().filter(|line| line.starts_with("clone") || line.contains("fork("));
        let children = forks.map(|line| line.rsplit("= ").next().unwrap().to_owned());
        pids.extend(children.collect::<Vec<_>>());
        next += 1;
    }
    // Whether a child's signal comes before or behind the wait is chance.
    let by_chance = ["--- SIGCHLD", "rt_sigreturn("];
    let fixed = |line: &&String| !by_chance.iter().any(|begin| line.starts_with(begin));
    let constant = |line: &String| constant(line, &pids);
    out.iter().map(|own| own.iter().filter(fixed).map(constant).collect()).collect()
}

/// How lines begin that have numbers of processes. Anywhere else a number that happens to be
/// that of a process, as a size may, is not taken for it.
const OF_PROCESSES: [&str; 12] = [
    "clone",
    "fork(",
    "vfork(",
    "wait4(",
    "waitid(",
    "kill(",
    "tkill(",
    "tgkill(",
    "getpid(",
    "gettid(",
    "set_tid_address(",
    "--- SIG",
];

/// A line without addresses, process numbers, random bytes and times.
fn constant(line: &str, pids: &[String]) -> String {
    if line.starts_with("getppid()") || line.starts_with("getrandom(") {
        return line.split('(').next().unwrap().to_owned();
    }
    // Results are aligned where a call took long.
    let line = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let of_processes = OF_PROCESSES.iter().any(|begin| line.starts_with(begin));
    let mut out = String::new();
    let mut rest = &line[..];
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        out += &rest[..at];
        rest = &rest[at..];
        let hexadecimal = rest.starts_with("0x");
        let digit =
            |c: char| c.is_ascii_digit() || hexadecimal && (c.is_ascii_hexdigit() || c == 'x');
        let end = rest.find(|c| !digit(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        out += match pids.iter().position(|pid| *pid == number) {
            _ if hexadecimal => "ADDRESS",
            Some(_) if of_processes => "PID",
            _ => number,
        };
        rest = after;
    }
    out + rest
}

#[test]
fn strace_sees_the_same_with_and_without_headstart() {
    if !has("strace") {
        return skip("strace is missing");
    }
    let invocations = Invocations::new();
    let script = "trap 'echo USR1' USR1; read line; echo \"$line $#\"; kill -USR1 $$; \
                  cat /etc/hostname /no/such/file; ls -d / /usr; (exit 3); exit $?";
    let file = invocations.scratch().join("calls");
    for program in [
        &["/bin/cat", "/etc/passwd", "-"][..],
        &["/bin/sh", "-c", script, "sh", "", "a\nb"],
        &["/usr/bin/head", "-n", "1"],
    ] {
        for (user, through) in invocations.users() {
            let trace = |through: &[OsString]| {
                let strace = ["strace", "-f", "-o"].map(OsString::from);
                let before = user.iter().chain(&strace).map(OsString::as_os_str);
                let line: Vec<&OsStr> = before
                    .chain([file.as_os_str()])
                    .chain(through.iter().map(OsString::as_os_str))
                    .chain(words(program))
                    .collect();
                let came = invocations.start(&line, b"one\ntwo\n");
                let text = std::fs::read_to_string(&file).unwrap();
                std::fs::remove_file(&file).unwrap();
                (came, calls_of(&text, program[0]))
            };
            let (bare, bare_calls) = trace(&[]);
            let counted: Vec<usize> = bare_calls.iter().map(Vec::len).collect();
            assert!(counted[0] > 20, "{counted:?}");
            println!("{program:?}: {counted:?} lines of {} processes", counted.len());
            for (invocation, through) in &through {
                let (came, calls) = trace(through);
                assert_eq!(came, bare, "{program:?}, {invocation}");
                for (calls, bare_calls) in calls.iter().zip(&bare_calls) {
                    for (call, bare_call) in calls.iter().zip(bare_calls) {
                        assert_eq!(call, bare_call, "{program:?}, {invocation}");
                    }
                }
                let lengths: Vec<usize> = calls.iter().map(Vec::len).collect();
                assert_eq!(lengths, counted, "{program:?}, {invocation}");
            }
        }
    }
}

#[test]
fn a_descriptor_that_could_not_be_looked_at_stays_open() {
    if !has("strace") {
        return skip("strace is missing");
    }
    // The second look before main is at standard output.
    let output = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "--inject=fcntl:error=EIO:when=2"])
        .args([env!("CARGO_BIN_EXE_headstart"), "run", "--no-learn", "--no-replay", "--"])
        .args(["echo", "said"])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"said\n", "{output:?}");
}
