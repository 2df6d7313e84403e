//! What /proc says of a process becomes a command and the name of a pack, whatever the process
//! wrote there: its arguments, then its line of /proc/PID/stat, then names for the filter.
#![no_main]

use headstart::host::names::is_visible;
use headstart::pack::key::Key;
use headstart_daemon::execs::frequent::Frequent;
use headstart_daemon::started::command;
use libfuzzer_sys::fuzz_target;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

fuzz_target!(|input: (&[u8], bool, &[u8], Vec<&[u8]>)| {
    let (cmdline, is_cut, stat, names) = input;
    let path = Path::new("/usr/bin/program");
    let argv = command::words(cmdline, is_cut);
    let comm = command::comm(stat).unwrap_or_default();
    let script = command::script(&argv, comm, path);
    assert!(script.is_none_or(|at| at < argv.len()));
    let words = command::of(&argv, script, path);
    assert!(!words.is_empty());
    let locate = |word: &OsStr| -> Option<PathBuf> { Some(Path::new("/").join(word)) };
    let key = Key::of_command(&words, locate);
    assert!(key.file_name.len() < 128 && key.file_name.chars().all(is_visible));
    assert!(!key.file_name.starts_with('.') && !key.file_name.contains('/'));
    let mut frequent = Frequent::default();
    for name in names {
        (0..64).for_each(|_| frequent.note(name, 1));
    }
    let filter = frequent.new_filter(1).map(|ignored| ignored.filter()).unwrap_or_default();
    assert!(filter.len() < 4096 && !filter.contains(['|', '~', '\n', '\0']));
});
