//! Packs of subcommands. Tools like git or cargo do many jobs with one executable: a start that
//! uses less than half of what its program's pack prefetches gets a pack of its own, with one more
//! word of the command in its key. There is no list of tools: the wasted share decides. Pure.

use super::key::fnv1a;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The most subcommand words of a key.
const DEPTH: usize = 2;
/// Longest of them, in bytes.
const WORD_LENGTH: usize = 32;
/// Between the file name of the program's pack and the hash of such words.
const JOINT: char = '+';
/// The end of a pack's file name.
const ENDING: &str = ".pack";
/// A start that wastes less than this takes no pack of its own, in bytes.
const FEW: u64 = 1 << 20;

/// The words of a program's arguments that may name a subcommand: no files, no values of options,
/// and only words with the characters of such names. Without any, the first long option, such as
/// `--version`.
pub fn words(arguments: &[OsString], is_file: impl Fn(&OsStr) -> bool) -> Vec<String> {
    let is_option = |word: &OsStr| word.as_bytes().starts_with(b"-");
    let mut found = Vec::new();
    let mut may_be_value = false;
    for word in arguments.iter().take_while(|word| *word != "--") {
        if found.len() == DEPTH {
            break;
        }
        if !is_option(word) && !may_be_value && is_name(word) && !is_file(word) {
            found.extend(word.to_str().map(str::to_owned));
        }
        may_be_value = is_option(word);
    }
    if found.is_empty() {
        let is_long = |word: &&str| word.strip_prefix("--").is_some_and(|w| is_name(w.as_ref()));
        found.extend(arguments.first().and_then(|w| w.to_str()).filter(is_long).map(str::to_owned));
    }
    found
}

fn is_name(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    let has = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_:".contains(b);
    bytes.len() <= WORD_LENGTH
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(has)
}

/// The file name of the pack of a program's job. The words are hashed: one of them may be a
/// secret after all.
pub fn file_name(of_program: &str, words: &[String]) -> String {
    let stem = of_program.strip_suffix(ENDING).unwrap_or(of_program);
    format!("{stem}{JOINT}{:016x}{ENDING}", fnv1a(words.join("\0").as_bytes()))
}

/// The file name of the program's pack, of that of any of its jobs.
pub fn of_program(file_name: &str) -> String {
    match file_name.strip_suffix(ENDING).and_then(|stem| stem.rsplit_once(JOINT)) {
        Some((stem, hash)) if is_hash(hash) => format!("{stem}{ENDING}"),
        _ => file_name.to_owned(),
    }
}

/// Whether this is a hash as file names of packs have it.
pub(super) fn is_hash(digits: &str) -> bool {
    digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a start that wasted this many of the prefetched bytes is another job.
pub fn is_another_job(wasted: u64, prefetched: u64) -> bool {
    wasted >= FEW && wasted > prefetched / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(command: &str) -> String {
        let arguments: Vec<OsString> = command.split(' ').map(Into::into).collect();
        words(&arguments, |word| word == "file").join(" ")
    }

    #[test]
    fn words_that_name_a_job_are_no_files_and_no_values_of_options() {
        for (command, expected) in [
            ("status", "status"),
            ("remote add origin", "remote add"),
            ("-C dir status --short", "status"),
            ("-c user.name=x commit", "commit"),
            ("-n kube-system get pods", "get pods"),
            ("run build --prod", "run build"),
            ("+nightly build ./src", "build"),
            ("build -- test", "build"),
            ("-- test", ""),
            ("file show", "show"),
            ("--version", "--version"),
            ("--format=x", ""),
            ("-psecret db", ""),
            ("--config value --help", "--config"),
            ("-x --help", ""),
            ("Main Notes.txt 1st", ""),
            ("mod:task a_b", "mod:task a_b"),
            (&"a".repeat(WORD_LENGTH), &"a".repeat(WORD_LENGTH)),
            (&"a".repeat(WORD_LENGTH + 1), ""),
            ("", ""),
        ] {
            assert_eq!(found(command), expected, "{command}");
        }
    }

    #[test]
    fn packs_of_jobs_are_named_after_the_program_and_tell_no_word() {
        let program = "git-0123456789abcdef.pack";
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let status = file_name(program, &words(&["status"]));
        assert_eq!(status, "git-0123456789abcdef+c4d5696d6cc12c2f.pack");
        assert_ne!(file_name(program, &words(&["remote", "add"])), status);
        assert_ne!(
            file_name(program, &words(&["remote", "add"])),
            file_name(program, &words(&["remoteadd"]))
        );
        for name in [&*status, program] {
            assert_eq!(of_program(name), program);
        }
        for name in ["c++-0123456789abcdef.pack", "a+b.pack", "a+0123456789abcdeg.pack", "x"] {
            assert_eq!(of_program(name), name);
        }
    }

    #[test]
    fn a_start_is_another_job_when_it_wastes_more_than_half() {
        for (wasted, prefetched, expected) in [
            (0, 0, false),
            (FEW - 1, FEW, false),
            (FEW, FEW, true),
            (FEW, 2 * FEW, false),
            (FEW + 1, 2 * FEW, true),
        ] {
            assert_eq!(is_another_job(wasted, prefetched), expected, "{wasted} of {prefetched}");
        }
    }
}
