//! A program can't tell from what it was handed whether headstart started it.

use crate::common::invocations::{Came, Invocations, install, words};
use headstart_testing::{has, noise, skip};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Status, stdout and stderr: all that came.
fn all(came: Came) -> Came {
    came
}

#[test]
fn exit_statuses_and_signals_are_reported_as_by_a_shell() {
    let invocations = Invocations::new();
    for (script, status) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -SEGV $$", 139),
        ("kill -TERM $$", 143),
        // As its own group's member headstart gets it too.
        ("trap 'echo got TERM' TERM; kill -TERM 0", 0),
    ] {
        let prefix = words(&["setsid", "-w"]);
        invocations.compare(script, &prefix, &words(&["sh", "-c", script]), b"", |came| {
            assert_eq!(came.status, status, "{script}: {came:?}");
            came
        });
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_reported_as_env_tells_it() {
    let invocations = Invocations::new();
    let [text, script] = ["text", "script"].map(|name| invocations.scratch().join(name));
    std::fs::write(&text, "echo no interpreter was named: $0 $1\n").unwrap();
    install(&text, &script);
    let script = script.to_str().unwrap();
    for (program, status) in [
        (["no such program", ""], 127),
        (["", ""], 127),
        (["/no/such/program", ""], 127),
        (["/etc/passwd", ""], 126),
        (["/etc/passwd/file", ""], 126),
        (["/etc", ""], 126),
        ([script, "argument"], 0),
    ] {
        for (user, through) in invocations.users() {
            let start = |through: &[OsString]| {
                let line = user.iter().chain(through).map(OsString::as_os_str);
                invocations.start(&line.chain(words(&program)).collect::<Vec<_>>(), b"")
            };
            let expected = start(&["env".into()]);
            // Others may not even look into all of root's $PATH.
            assert!(expected.status == status || !user.is_empty(), "env: {expected:?}");
            for (invocation, through) in through {
                let came = start(&through);
                let same = (came.status, &came.stdout) == (expected.status, &expected.stdout);
                assert!(same, "{program:?}, {invocation}: {came:?} instead of {expected:?}");
                let said = String::from_utf8_lossy(&came.stderr).contains("Can't run");
                assert_eq!(said, status != 0, "{program:?}, {invocation}: {came:?}");
            }
        }
    }
}

#[test]
fn arguments_and_environment_pass_byte_for_byte() {
    let invocations = Invocations::new();
    let bytes = OsStr::from_bytes;
    let echo = words(&["perl", "-e", "print map { \"<$_>\" } @ARGV"]);
    let hostile = [bytes(b"--"), bytes(b"a\nb"), bytes(b""), bytes(b"\xff\xfe"), bytes(b"--help")];
    let more = [bytes(b"-q"), bytes(b"--"), bytes(b"--version"), bytes(b"run"), bytes(b"--")];
    invocations.compare("arguments", &[], &[&echo[..], &hostile, &more].concat(), b"", all);

    // Without the -- before the program.
    let through = invocations.headstart();
    let through = [through.as_os_str(), bytes(b"run")];
    let program = [&echo[..], &hostile, &more].concat();
    let came = invocations.start(&[&through[..], &program].concat(), b"");
    assert_eq!(came, invocations.start(&program, b""), "without --");

    let packs = invocations.packs();
    let packs = format!("HEADSTART_PACKS={}", packs.display());
    let odd = [bytes(b"A="), bytes(b"\xff=\xfe\x01"), bytes(b"LINES=a\nb"), bytes(b" =  ")];
    let prefix = [&words(&["env", "-i", &packs, "PATH=/usr/bin:/bin"])[..], &odd].concat();
    invocations.compare(
        "environment",
        &prefix,
        &words(&["cat", "/proc/self/environ"]),
        b"",
        |came| {
            assert!(came.stdout.windows(4).any(|w| w == b"\xff=\xfe\x01"), "{came:?}");
            came
        },
    );
    let empty = words(&["/usr/bin/env", "-i"]);
    let nothing = invocations.headstart();
    let nothing = [nothing.as_os_str(), bytes(b"run"), bytes(b"--no-learn")];
    let show = words(&["/bin/cat", "/proc/self/environ"]);
    let came = invocations.start(&[&empty[..], &nothing, &show].concat(), b"");
    assert_eq!((came.status, came.stdout), (0, Vec::new()), "empty environment");
}

#[test]
fn standard_input_belongs_to_the_program() {
    let invocations = Invocations::new();
    let data = noise(1 << 20);
    invocations.compare("all of it", &[], &words(&["cat"]), &data, |came| {
        assert!(came.stdout == data, "{} bytes of {}", came.stdout.len(), data.len());
        came.status
    });
    let rest = words(&["sh", "-c", "\"$@\"; echo; cat", "sh"]);
    let four = words(&["dd", "bs=1", "count=4", "status=none"]);
    invocations.compare("what is left", &rest, &four, b"1234rest", |came| {
        assert_eq!(came.stdout, b"1234\nrest");
        came
    });
}

/// Writes the descriptors, the working directory and the root to a file.
const DESCRIPTORS: &str = r#"
    opendir($d, "/proc/self/fd");
    for (sort { $a <=> $b } grep { /\d/ } readdir($d)) {
        $to = readlink("/proc/self/fd/$_");
        $to =~ s/\[\d+\]|\d+\/fd$/#/;
        $report .= "$_ $to\n";
    }
    $report .= "$_ " . readlink("/proc/self/$_") . "\n" for qw(cwd root);
    open($f, ">", $ARGV[0]); print $f $report;
"#;

#[test]
fn descriptors_stay_open_or_closed_and_none_is_added() {
    if !has("bash") {
        return skip("bash is missing");
    }
    let invocations = Invocations::new();
    let file = invocations.scratch().join("descriptors");
    let program = words(&["perl", "-e", DESCRIPTORS, file.to_str().unwrap()]);
    for redirected in [
        "",
        "<&-",
        ">&-",
        "2>&-",
        "<&- >&-",
        "<&- 2>&-",
        ">&- 2>&-",
        "<&- >&- 2>&-",
        "3</dev/null 7>/dev/null 200</etc/passwd",
        "3</dev/null <&- 2>&-",
        ">/dev/full 2>/dev/full",
    ] {
        let script = format!("cd /usr; exec \"$@\" {redirected}");
        invocations.compare(
            redirected,
            &words(&["bash", "-c", &script, "bash"]),
            &program,
            b"",
            |came| {
                let report = std::fs::read_to_string(&file).unwrap();
                std::fs::remove_file(&file).unwrap();
                assert!(report.contains("cwd /usr\n"), "{report}");
                (came.status, report)
            },
        );
    }
}

/// What the kernel says of a process, apart from its numbers and its size.
fn state(came: Came) -> Vec<String> {
    assert_eq!(came.status, 0, "{came:?}");
    let passing = ["Tgid:", "Pid:", "PPid:", "NStgid:", "NSpid:", "Vm", "Rss", "SigQ:", "FDSize:"];
    let text = String::from_utf8(came.stdout).unwrap();
    let of_status = |line: &&str| {
        !passing.iter().any(|p| line.starts_with(p)) && !line.contains("ctxt_switches")
    };
    let one = |line: &str| match line.rsplit_once(')') {
        // Of stat: group, session, terminal; priority, nice; class.
        Some((_, rest)) if line.contains("(cat)") => {
            let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
            [2, 3, 4, 5, 15, 16, 37, 38].map(|i| fields[i]).join(" ")
        }
        _ => line.to_owned(),
    };
    text.lines().filter(of_status).map(one).collect()
}

const IGNORE: &str = "trap '' HUP INT QUIT USR1 PIPE ALRM TERM CHLD TSTP TTIN TTOU WINCH 34 64; \
                      exec \"$@\"";
const BLOCK: &str = "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(1, 2, 10, 15, 17, 18, \
                     20, 34, 64)); exec @ARGV";
/// Also two that the program will find pending.
const PENDING: &str = "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(2, 10, 40)); \
                       kill(10, $$); kill(40, $$); exec @ARGV";
const PROC: &str = "echo 321 > /proc/$$/oom_score_adj; echo 123456 > /proc/$$/timerslack_ns; \
                    echo 5 > /proc/$$/coredump_filter; exec \"$@\"";

#[test]
fn signals_limits_and_priorities_are_inherited() {
    let invocations = Invocations::new();
    let files = ["status", "stat", "limits", "oom_score_adj", "timerslack_ns", "personality"];
    let files = [&files[..], &["coredump_filter", "cgroup", "autogroup", "uid_map"]].concat();
    let files: Vec<String> = files.iter().map(|f| format!("/proc/self/{f}")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let program = [&["cat"][..], &files].concat();
    for prefix in [
        &[][..],
        &["sh", "-c", IGNORE, "sh"],
        &["perl", "-e", BLOCK],
        &["perl", "-e", PENDING],
        &["perl", "-e", "$SIG{CHLD} = $SIG{PIPE} = 'IGNORE'; exec @ARGV"],
        &[
            "sh",
            "-c",
            "umask 027; ulimit -c 0; ulimit -t 99; ulimit -S -n 77; ulimit -s 512; exec \"$@\"",
            "sh",
        ],
        &["sh", "-c", PROC, "sh"],
        &["nice", "-n", "7"],
        &["taskset", "-c", "0"],
        &["chrt", "-b", "0"],
        &["setarch", "-R"],
        &["setpriv", "--no-new-privs"],
    ] {
        let name = prefix.join(" ");
        invocations.compare(&name, &words(prefix), &words(&program), b"", state);
    }
    for (prefix, program) in [
        (&["ionice", "-c", "2", "-n", "6"][..], &["ionice"][..]),
        (&["ionice", "-c", "3"], &["ionice"]),
        (&["setpriv", "--pdeathsig", "TERM"], &["setpriv", "--dump"]),
        (&["setpriv"], &["setpriv", "--dump"]),
    ] {
        invocations.compare(&prefix.join(" "), &words(prefix), &words(program), b"", all);
    }
}

#[test]
fn a_program_starts_where_headstart_can_do_nothing() {
    let invocations = Invocations::new();
    for limit in [
        // Descriptors for a pipe, processes, sizes of files, memory.
        &["prlimit", "--nofile=4:4"][..],
        &["prlimit", "--nofile=8:8"],
        &["prlimit", "--nofile=12:12"],
        &["prlimit", "--nproc=0:0"],
        &["prlimit", "--fsize=0:0"],
        &["prlimit", "--memlock=0:0"],
        &["prlimit", "--as=60000000"],
        &["env", "HEADSTART_PACKS=/proc/none"],
        &["env", "HEADSTART_PACKS=/dev/null"],
    ] {
        let name = limit.join(" ");
        invocations.compare(&name, &words(limit), &words(&["cat"]), b"in", |came| {
            (came.status, came.stdout)
        });
    }
}
