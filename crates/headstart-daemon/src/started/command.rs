//! Which command a process was started with: from what /proc says to the words that `headstart run`
//! would have been given. Pure, over bytes that any user may choose.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Bytes of a name in `comm` (`TASK_COMM_LEN` without the zero byte).
const COMM: usize = 15;
/// Fewer words of arguments that were cut may be one of inline code that was.
pub(super) const FEW: usize = 4;

/// The words of /proc/PID/cmdline; of text that was cut those that are whole.
pub fn words(cmdline: &[u8], is_cut: bool) -> Vec<OsString> {
    let mut words: Vec<_> = cmdline.split(|byte| *byte == 0).collect();
    // Behind the last zero byte there is nothing, or the first part of a word.
    if is_cut || words.last().is_some_and(|word| word.is_empty()) {
        words.pop();
    }
    words.into_iter().map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// Field 2 of /proc/PID/stat, in parentheses, any of which the name may have, too.
pub fn comm(stat: &[u8]) -> Option<&[u8]> {
    let begin = stat.iter().position(|byte| *byte == b'(')? + 1;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(begin..end)
}

/// Where the script is among the arguments, if the kernel started an interpreter for one (`#!`):
/// it puts the interpreter and its option, if the script names one, before the script. `comm` is of
/// the file that exec was called with. A script that is called as its interpreter is not recognized.
pub fn script(argv: &[OsString], comm: &[u8], path: &Path) -> Option<usize> {
    let is_called = |word: &OsStr| {
        let name = Path::new(word).file_name().unwrap_or(word).as_bytes();
        !comm.is_empty() && &name[..name.len().min(COMM)] == comm
    };
    if is_called(path.as_os_str()) || argv.first().is_none_or(|word| is_called(word)) {
        return None;
    }
    let matching = || (1..=2).filter(|at| argv.get(*at).is_some_and(|word| is_called(word)));
    let is_path = |at: &usize| argv[*at].as_bytes().contains(&b'/');
    matching().find(is_path).or_else(|| matching().next())
}

/// The command as somebody would type it: of a script without its interpreter.
pub fn of(argv: &[OsString], script: Option<usize>, path: &Path) -> Vec<OsString> {
    let mut words = argv.get(script.unwrap_or(0)..).unwrap_or_default().to_vec();
    match words.first_mut() {
        // A login shell: login(1) puts a hyphen before its name.
        Some(name) if name.as_bytes().starts_with(b"-") && script.is_none() => {
            *name = OsStr::from_bytes(&name.as_bytes()[1..]).to_owned();
        }
        Some(name) if !name.is_empty() => {}
        Some(name) => *name = path.into(),
        None => words.push(path.into()),
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn argv(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    #[test]
    fn arguments_end_at_zero_bytes_and_a_cut_one_does_not_count() {
        for (cmdline, is_cut, expected) in [
            (&b"ls\0-l\0"[..], false, &["ls", "-l"][..]),
            (b"ls\0\0", false, &["ls", ""]),
            // As programs leave it that write their state there.
            (b"postgres: idle", false, &["postgres: idle"]),
            (b"sh\0-c\0ec", true, &["sh", "-c"]),
            (b"sh\0-c\0", true, &["sh", "-c"]),
            (b"", false, &[]),
        ] {
            assert_eq!(words(cmdline, is_cut), argv(expected), "{cmdline:?}");
        }
    }

    #[test]
    fn a_script_is_the_one_whose_name_exec_was_called_with() {
        for (path, comm, words, expected) in [
            ("/usr/bin/python3.11", "app.py", &["/usr/bin/python3", "./app.py", "x"][..], Some(1)),
            ("/usr/bin/env", "app.py", &["/usr/bin/env", "python3", "./app.py"], Some(2)),
            ("/usr/bin/env", "app.py", &["env", "-S python3 -u", "/srv/app.py"], Some(2)),
            ("/usr/bin/env", "python3", &["/usr/bin/env", "bash", "/shims/python3"], Some(2)),
            ("/usr/bin/env", "foo", &["/usr/bin/env", "foo", "/bin/foo"], Some(2)),
            ("/bin/dash", "a-long-name-of-", &["/bin/sh", "/bin/a-long-name-of-it"], Some(1)),
            ("/usr/bin/python3.11", "python3", &["python3", "app.py"], None),
            ("/usr/bin/python3.11", "python3.11", &["x", "python3.11"], None),
            ("/bin/busybox", "ls", &["ls", "ls"], None),
            ("/bin/dash", "x", &["/bin/sh", "-c", "true", "x"], None),
            ("/bin/dash", "", &["sh", ""], None),
            ("/bin/dash", "x", &[], None),
        ] {
            assert_eq!(
                script(&argv(words), comm.as_bytes(), Path::new(path)),
                expected,
                "{words:?}"
            );
        }
    }

    #[test]
    fn a_command_is_what_somebody_would_type() {
        for (words, script, expected) in [
            (&["ls", "-l"][..], None, &["ls", "-l"][..]),
            (&["-bash"], None, &["bash"]),
            (&["/bin/sh", "-e", "/srv/x", "y"], Some(2), &["/srv/x", "y"]),
            (&["/bin/sh", "-x", "y"], Some(1), &["-x", "y"]),
            (&["", "y"], None, &["/bin/p", "y"]),
            (&[], None, &["/bin/p"]),
        ] {
            assert_eq!(of(&argv(words), script, Path::new("/bin/p")), argv(expected), "{words:?}");
        }
    }

    #[test]
    fn a_name_may_have_parentheses() {
        assert_eq!(comm(b"7 (a) b) S 1"), Some(&b"a) b"[..]));
        for broken in [&b""[..], b")", b"7 )a(", b"7 (a"] {
            assert_eq!(comm(broken), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_command(cmdline: Vec<u8>, stat: Vec<u8>, is_cut: bool) {
            let path = Path::new("/bin/p");
            let argv = words(&cmdline, is_cut);
            let script = script(&argv, comm(&stat).unwrap_or_default(), path);
            prop_assert!(!of(&argv, script, path).is_empty());
        }
    }
}
