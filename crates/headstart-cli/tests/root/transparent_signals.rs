//! Signals, stops and closed descriptors pass through headstart as if it were
//! the program.

use crate::common::invocations::{Invocations, end_of, state_of, told, words};
use headstart_sys::signals::kill;
use headstart_testing::noise;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command};

/// Says its number, then what signals it gets and with which `si_code`, until
/// its stdin ends. It takes them one by one: a handler could be interrupted by the next.
const LISTENER: &str = "
import os, select, signal
signals = signal.valid_signals() - {9, 19}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print(os.getpid(), flush=True)
ended = False
while True:
    got = signal.sigtimedwait(signals, 0 if ended else 0.01)
    if got:
        print('got', got.si_signo, got.si_code, flush=True)
    elif ended:
        os._exit(3)
    else:
        ended = bool(select.select([0], [], [], 0)[0]) and not os.read(0, 1)
";

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
        let mut child = invocations.command(line).spawn().unwrap();
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
    in_each_invocation(&invocations, &[], &["/usr/bin/python3", "-c", LISTENER], |mut started| {
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

/// As the first process of a PID namespace: makes 20 orphans, and says how many of them stay
/// zombies, when all have ended.
const ADOPTER: &str = r#"
    use POSIX;
    $SIG{CHLD} = 'IGNORE';
    pipe(my $end, my $held);
    for (1..20) { if (!fork) { fork; POSIX::_exit(0) } }
    close $held;
    sysread($end, my $byte, 1);
    my ($zombies, $alive);
    for my $attempt (1..1000) {
        ($zombies, $alive) = (0, 0);
        for my $stat (glob '/proc/[0-9]*/stat') {
            open(my $file, '<', $stat) or next;
            my $line = <$file> // next;
            my ($pid, $name, $state) = $line =~ /^(\d+) \((.*)\) (.)/ or next;
            next if $name ne 'perl' || $pid == $$;
            $state eq 'Z' ? $zombies++ : $alive++;
        }
        last if !$zombies && !$alive;
        select(undef, undef, undef, 0.01);
    }
    print "$zombies zombies, $alive alive\n";
"#;

#[test]
fn orphans_that_the_first_process_of_a_namespace_adopts_are_reaped() {
    if !headstart_testing::is_root() || !headstart_testing::has("unshare") {
        return headstart_testing::skip("needs root and unshare");
    }
    let invocations = Invocations::new();
    let headstart = invocations.headstart();
    let headstart = headstart.to_str().unwrap();
    let first = ["unshare", "--pid", "--fork", "--mount-proc"];
    for through in [
        &[][..],
        &[headstart, "run", "--"],
        &[headstart, "run", "--no-learn", "--no-replay", "--"],
        &[headstart, "run", "-v", "--"],
        &[headstart, "record", "--"],
    ] {
        let line = [&first[..], through, &["perl", "-e", ADOPTER]].concat();
        let came = invocations.start(&words(&line), b"");
        let said = String::from_utf8(came.stdout).unwrap();
        assert_eq!(said, "0 zombies, 0 alive\n", "{through:?}");
    }
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
