//! Signals, stops and closed descriptors pass through headstart as if it were
//! the program.

use crate::common::invocations::{Invocations, end_of, state_of, told, words};
use headstart_sys::signals::kill;
use headstart_testing::noise;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command};

/// Says its number, then what signals it gets and with which `si_code`, until
/// its stdin ends.
const LISTENER: &str = r#"
    use POSIX;
    for my $n (grep { $_ != 9 && $_ != 19 && $_ != 32 && $_ != 33 } 1..64) {
        my $say = sub { syswrite(STDOUT, "got $n $_[1]{code}\n") };
        sigaction($n, POSIX::SigAction->new($say, POSIX::SigSet->new, SA_SIGINFO));
    }
    syswrite(STDOUT, "$$\n");
    while (1) { my $got = sysread(STDIN, my $byte, 1); last if defined $got && $got == 0 }
    exit 3;
"#;

/// A program under way and what it says.
struct Started {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The program's number.
    pid: i32,
}

impl Started {
    /// Starts a program that begins with saying its number.
    fn new(invocations: &Invocations, line: &[&OsStr]) -> Self {
        let mut command = invocations.command(line);
        // Handlers run at once and for every signal.
        let mut child = command.env("PERL_SIGNALS", "unsafe").spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pid = lines.next().unwrap().unwrap().parse().unwrap();
        Self { child, lines, pid }
    }

    fn next(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    /// Ends its stdin; all else it said, and its status.
    fn end(mut self) -> (Vec<String>, i32) {
        drop(self.child.stdin.take());
        let status = end_of(&mut self.child);
        (self.lines.map(Result::unwrap).collect(), told(status))
    }
}

/// Does something with a program started in each invocation.
fn in_each_invocation(
    invocations: &Invocations,
    prefix: &[&str],
    program: &[&str],
    act: impl Fn(Started),
) {
    for (user, through) in invocations.users() {
        let bare = ("bare", Vec::new());
        for (invocation, through) in [vec![bare], through].concat() {
            let line: Vec<OsString> = [
                user.clone(),
                prefix.iter().map(OsString::from).collect(),
                through,
                program.iter().map(OsString::from).collect(),
            ]
            .concat();
            println!("{invocation}: {line:?}");
            let line: Vec<&OsStr> = line.iter().map(OsString::as_os_str).collect();
            act(Started::new(invocations, &line));
        }
    }
}

#[test]
fn every_signal_that_can_be_sent_reaches_the_program_once() {
    let invocations = Invocations::new();
    in_each_invocation(&invocations, &[], &["perl", "-e", LISTENER], |mut started| {
        let target = started.child.id().cast_signed();
        for number in (1..=64).filter(|n| ![9, 19, 32, 33].contains(n)) {
            kill(target, number).unwrap();
            assert_eq!(started.next(), format!("got {number} 0"));
        }
        for _ in 0..20 {
            kill(target, 40).unwrap();
        }
        for _ in 0..20 {
            assert_eq!(started.next(), "got 40 0");
        }
        // Queued, with a value.
        let queue = ["--queue", "77", "--signal", "41", &target.to_string()].map(String::from);
        assert!(Command::new("/bin/kill").args(queue).status().unwrap().success());
        assert_eq!(started.next(), "got 41 -1");
        assert_eq!(started.end(), (Vec::new(), 3));
    });
}

#[test]
fn a_signal_at_any_moment_of_the_launch_ends_the_program() {
    let invocations = Invocations::new();
    for (_, through) in invocations.users().into_iter().take(1) {
        for (_, through) in through {
            let delays = noise(20);
            for delay in delays {
                let words = through.iter().map(OsString::as_os_str);
                let mut child = invocations
                    .command(&words.chain(words_of_sleep()).collect::<Vec<_>>())
                    .spawn()
                    .unwrap();
                spin(u32::from(delay) * 80);
                kill(child.id().cast_signed(), 15).unwrap();
                // Killed itself, or told that the program was.
                assert_eq!(told(end_of(&mut child)), 128 + 15, "after {delay} × 80 µs");
            }
        }
    }
}

fn words_of_sleep() -> Vec<&'static OsStr> {
    words(&["sleep", "1000"])
}

/// Lets some µs pass.
fn spin(us: u32) {
    let from = std::time::Instant::now();
    while from.elapsed().as_micros() < us.into() {
        std::hint::spin_loop();
    }
}

#[test]
fn a_reader_that_leaves_ends_the_program_and_not_headstart() {
    let invocations = Invocations::new();
    in_each_invocation(&invocations, &[], &["sh", "-c", "echo $$; exec yes"], |started| {
        let Started { mut child, lines, .. } = started;
        drop(lines);
        assert_eq!(told(end_of(&mut child)), 128 + 13);
    });
}

#[test]
fn what_the_program_closes_is_closed() {
    let invocations = Invocations::new();
    let lock = invocations.scratch().join("lock");
    let locked = format!("exec 9>>{}; flock 9; exec \"$@\"", lock.display());
    let program = "use POSIX; $| = 1; print \"$$\\n\"; close STDIN; close STDOUT; \
                   POSIX::close(9); sleep 1000";
    let prefix = ["bash", "-c", &locked, "bash"];
    in_each_invocation(&invocations, &prefix, &["perl", "-e", program], |started| {
        let Started { mut child, lines, pid } = started;
        // The end of its stdout, while it sleeps.
        assert_eq!(lines.map(Result::unwrap).count(), 0);
        let refused = child.stdin.as_mut().unwrap().write_all(b"x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
        // This waits until it has closed the lock too.
        assert!(Command::new("flock").arg(&lock).arg("true").status().unwrap().success());
        assert!(child.try_wait().unwrap().is_none());
        kill(pid, 15).unwrap();
        assert_eq!(told(end_of(&mut child)), 128 + 15);
    });
}

#[test]
fn a_program_is_stopped_and_continued_as_ever() {
    let invocations = Invocations::new();
    // A session of its own has no terminal.
    let program = ["sh", "-c", "echo $$; exec cat"];
    in_each_invocation(&invocations, &["setsid"], &program, |mut started| {
        kill(started.pid, 19).unwrap();
        while state_of(started.pid) != 'T' {}
        kill(started.pid, 18).unwrap();
        while state_of(started.pid) == 'T' {}
        started.child.stdin.as_mut().unwrap().write_all(b"on\n").unwrap();
        assert_eq!(started.next(), "on");
        assert_eq!(started.end(), (Vec::new(), 0));
    });
}

#[test]
fn the_program_is_the_process_that_was_started_and_has_no_child() {
    let invocations = Invocations::new();
    let program = [
        "sh",
        "-c",
        "echo $$; read line; read children </proc/$$/task/$$/children; \
                    echo \"<$children>\"; exit 3",
    ];
    in_each_invocation(&invocations, &[], &program, |mut started| {
        assert_eq!(started.child.id().cast_signed(), started.pid);
        started.child.stdin.as_mut().unwrap().write_all(b"on\n").unwrap();
        assert_eq!(started.next(), "<>");
        assert_eq!(started.end(), (Vec::new(), 3));
    });
}

#[test]
fn a_caller_that_kills_what_it_started_kills_the_program() {
    let invocations = Invocations::new();
    for prefix in [&["timeout", "--signal=KILL", "1000"][..], &["nohup"], &["setsid", "--wait"]] {
        in_each_invocation(
            &invocations,
            prefix,
            &["sh", "-c", "echo $$; exec sleep 1000"],
            |started| {
                let Started { mut child, lines, pid } = started;
                kill(pid, 9).unwrap();
                assert_eq!(lines.count(), 0, "its output ends with it");
                assert_ne!(told(end_of(&mut child)), 0);
            },
        );
    }
    let python = "import subprocess, sys\n\
        try: subprocess.run(sys.argv[1:], timeout=0.5, stdout=subprocess.PIPE)\n\
        except subprocess.TimeoutExpired as e: print(e.output.decode(), end='')";
    let prefix = ["/usr/bin/python3", "-c", python];
    in_each_invocation(
        &invocations,
        &prefix,
        &["sh", "-c", "echo $$; exec sleep 1000"],
        |started| {
            let pid = started.pid;
            assert_eq!(started.end(), (Vec::new(), 0));
            assert!(kill(pid, 0).is_err(), "{pid} goes on");
        },
    );
}
