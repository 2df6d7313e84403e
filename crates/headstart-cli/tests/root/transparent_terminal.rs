//! At a terminal headstart and its program are one job.

use crate::common::invocations::{Invocations, state_of};
use crate::common::terminal::Terminal;
use headstart_sys::signals::kill;
use headstart_testing::noise;
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::OsString;

/// The invocations to start a job, the bare one first.
fn kinds_of(invocations: &Invocations, job: &[&str]) -> Vec<(&'static str, Vec<OsString>)> {
    let job: Vec<OsString> = job.iter().map(OsString::from).collect();
    let mut out = vec![("bare", job.clone())];
    for (user, through) in invocations.users() {
        out.extend(
            through
                .into_iter()
                .map(|(invocation, t)| (invocation, [user.clone(), t, job.clone()].concat())),
        );
    }
    out
}

/// Says its number, then which signals it gets, until its input ends.
fn listener(signals: &str) -> String {
    format!(
        r#"use POSIX;
        for my $n ({signals}) {{
            sigaction($n, POSIX::SigAction->new(sub {{ syswrite(STDOUT, "<got $n>") }}));
        }}
        syswrite(STDOUT, "<I am $$>");
        while (1) {{ my $r = sysread(STDIN, my $b, 99); last if defined $r && $r == 0 }}
        exit 3;"#
    )
}

/// The number that the program says.
fn number(terminal: &mut Terminal) -> i32 {
    terminal.shows("<I am ");
    terminal.shows(">").trim_end_matches('>').parse().unwrap()
}

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

#[test]
fn keys_and_window_sizes_reach_the_program_once() {
    let invocations = Invocations::new();
    let program = listener("1, 2, 3, 12, 20, 28");
    for (invocation, job) in kinds_of(&invocations, &["perl", "-e", &program]) {
        println!("{invocation}");
        let mut terminal = Terminal::new(&invocations, "foreground", &job);
        let leader = terminal.job();
        let pid = number(&mut terminal);
        assert_eq!(pid, leader, "{invocation}");
        let mut all = String::new();
        for _ in 0..3 {
            for (key, shown) in
                [(CTRL_C, "<got 2>"), (CTRL_BACKSLASH, "<got 3>"), (CTRL_Z, "<got 20>")]
            {
                terminal.type_in(key);
                all += &terminal.shows(shown);
            }
        }
        let size = Winsize { ws_row: 33, ws_col: 99, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(terminal.master(), size).unwrap();
        all += &terminal.shows("<got 28>");
        // Headstart is done with all of them when it has passed on the last.
        kill(leader, 12).unwrap();
        all += &terminal.shows("<got 12>");
        terminal.type_in(CTRL_D);
        assert_eq!(terminal.told(), "exited 3", "{invocation}");
        all += &terminal.rest();
        for (signal, times) in [(2, 3), (3, 3), (20, 3), (28, 1), (12, 1), (1, 0)] {
            let got = all.matches(&format!("<got {signal}>")).count();
            assert_eq!(got, times, "{invocation}: signal {signal} in {all:?}");
        }
    }
}

#[test]
fn ctrl_z_stops_both_and_either_way_of_continuing_continues_both() {
    let invocations = Invocations::new();
    let program = listener("12, 18");
    for (invocation, job) in kinds_of(&invocations, &["perl", "-e", &program]) {
        println!("{invocation}");
        let mut terminal = Terminal::new(&invocations, "foreground", &job);
        let leader = terminal.job();
        let pid = number(&mut terminal);
        let mut all = String::new();
        for order in ["fg", "the leader", "fg", "the leader"] {
            terminal.type_in(CTRL_Z);
            assert_eq!(terminal.told(), "stopped 20", "{invocation}");
            assert_eq!((state_of(leader), state_of(pid)), ('T', 'T'), "{invocation}");
            terminal.order(order);
            all += &terminal.shows("<got 18>");
            kill(leader, 12).unwrap();
            all += &terminal.shows("<got 12>");
            assert!(state_of(leader) != 'T' && state_of(pid) != 'T', "{invocation}");
        }
        terminal.type_in(CTRL_D);
        assert_eq!(terminal.told(), "exited 3", "{invocation}");
        all += &terminal.rest();
        assert_eq!(all.matches("<got 18>").count(), 4, "{invocation}: {all:?}");
    }
}

#[test]
fn a_program_that_suspends_itself_suspends_its_job() {
    let invocations = Invocations::new();
    for (how, signal) in [
        // As editors and pagers do it.
        ("kill 'STOP', 0", 19),
        ("kill 'STOP', $$", 19),
        ("kill 'TSTP', 0", 20),
        ("kill 'TSTP', $$", 20),
    ] {
        let program = format!("$SIG{{CONT}} = sub {{ $n++ }}; {how}; {how}; exit(40 + $n)");
        for (invocation, job) in kinds_of(&invocations, &["perl", "-e", &program]) {
            println!("{how}, {invocation}");
            let mut terminal = Terminal::new(&invocations, "foreground", &job);
            terminal.job();
            for _ in 0..2 {
                assert_eq!(terminal.told(), format!("stopped {signal}"), "{how}, {invocation}");
                terminal.order("fg");
            }
            assert_eq!(terminal.told(), "exited 42", "{how}, {invocation}");
        }
    }
}

#[test]
fn a_background_job_that_reads_waits_for_the_foreground() {
    let invocations = Invocations::new();
    let program = ["sh", "-c", "read line; echo \"<$line>\"; exit 5"];
    for (invocation, job) in kinds_of(&invocations, &program) {
        println!("{invocation}");
        let mut terminal = Terminal::new(&invocations, "background", &job);
        terminal.job();
        assert_eq!(terminal.told(), "stopped 21", "{invocation}");
        terminal.order("fg");
        terminal.type_in("word\n");
        terminal.shows("<word>");
        assert_eq!(terminal.told(), "exited 5", "{invocation}");
    }
}

#[test]
fn a_lost_terminal_is_told_to_the_program_that_leads_the_session() {
    let invocations = Invocations::new();
    let fifo = invocations.scratch().join("fifo");
    headstart_testing::must("mkfifo", &["-m", "666", fifo.to_str().unwrap()]);
    let program = r#"$SIG{HUP} = sub { print $f "hup $$"; close $f; exit };
                     open($f, ">", $ARGV[0]); syswrite(STDOUT, "<ready>"); sleep 1000;"#;
    for (invocation, job) in
        kinds_of(&invocations, &["perl", "-e", program, fifo.to_str().unwrap()])
    {
        println!("{invocation}");
        let mut terminal = Terminal::new(&invocations, "leader", &job);
        let mut from = std::fs::File::open(&fifo).unwrap();
        terminal.shows("<ready>");
        terminal.hang_up();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut from, &mut text).unwrap();
        assert!(text.starts_with("hup "), "{invocation}: {text}");
    }
}

#[test]
fn keys_at_any_moment_of_the_launch_stop_or_end_the_job() {
    let invocations = Invocations::new();
    let all = kinds_of(&invocations, &["sleep", "1000"]);
    for (invocation, job) in all {
        for (i, delay) in noise(10).into_iter().enumerate() {
            let mut terminal = Terminal::new(&invocations, "foreground", &job);
            let leader = terminal.job();
            let from = std::time::Instant::now();
            while from.elapsed().as_micros() < u128::from(delay) * 80 {}
            let context = format!("{invocation}, {i}: after {delay} × 80 µs");
            println!("{context}");
            if i % 2 == 0 {
                // Continued, it can be ended.
                terminal.type_in(CTRL_Z);
                assert_eq!(terminal.told(), "stopped 20", "{context}");
                terminal.order("fg");
                kill(leader, 15).unwrap();
                let end = terminal.told();
                assert!(["killed 15", "exited 143"].contains(&end.as_str()), "{context}: {end}");
            } else {
                terminal.type_in(CTRL_C);
                let end = terminal.told();
                assert!(["killed 2", "exited 130"].contains(&end.as_str()), "{context}: {end}");
            }
        }
    }
}
