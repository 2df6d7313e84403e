//! Threads in a PID namespace learn the numbers that traces have of them.

use headstart::trace::kernel_tids::KernelTids;
use headstart_testing::{libtest_name, root_or_skip, variable};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Barrier;

const THREADS: usize = 4;
const INNER: &str = "HEADSTART_TEST_INNER";

/// Says the numbers of some threads at once, ours and the kernel's, and waits until these
/// were looked up.
#[test]
#[ignore = "it is started in a PID namespace by the other test"]
fn numbers_of_some_threads() {
    if variable(INNER).is_none() {
        return;
    }
    let tids = KernelTids::here();
    let said = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let own = rustix::thread::gettid().as_raw_nonzero();
                println!("\ntid {own} {}", tids.own().unwrap());
                if said.wait().is_leader() {
                    println!("\nall");
                }
                let _ = std::io::stdin().lock().read_line(&mut String::new());
            });
        }
    });
}

#[test]
fn threads_in_a_pid_namespace_learn_the_kernels_numbers_of_them() {
    if !root_or_skip() {
        return;
    }
    let name = libtest_name(concat!(module_path!(), "::numbers_of_some_threads"));
    let mut child = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", name])
        .env(INNER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let said: Vec<String> = lines.take_while(|line| line != "all").collect();
    let numbers = said.iter().filter_map(|line| line.strip_prefix("tid ")).map(|pair| {
        let (own, kernel) = pair.split_once(' ').unwrap();
        // What the namespace above sees of that thread.
        let status = std::fs::read_to_string(format!("/proc/{kernel}/status")).unwrap_or_default();
        let of_namespaces = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        (
            own.to_owned(),
            of_namespaces.and_then(|all| all.split_whitespace().last()).map(str::to_owned),
        )
    });
    let found: Vec<_> = numbers.collect();
    child.stdin.take().unwrap().write_all(&[b'\n'; THREADS]).unwrap();
    let _ = child.wait().unwrap();
    assert_eq!(found.len(), THREADS, "{said:?}");
    assert!(found.iter().all(|(own, seen)| seen.as_ref() == Some(own)), "{found:?}");
}
