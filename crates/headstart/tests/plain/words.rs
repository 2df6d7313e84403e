//! No name, message, comment or document uses a word or phrase that CONTRIBUTING.md replaces.

use std::fs;
use std::path::{Path, PathBuf};

/// Names of the kernel that contain a replaced phrase.
const KERNEL_NAMES: [&str; 1] = ["read_ahead_kb"];
/// A phrase does not go on beyond these, where white space follows.
const ENDS: [char; 5] = ['.', ';', ':', '!', '?'];

/// A word of a text, in lower case.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Word {
    line: usize,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The words and phrases of the line of CONTRIBUTING.md that lists them.
fn replaced() -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let after = text.split_once("Not used anywhere:").unwrap().1;
    let list = after.split_once("\n\n").unwrap().0;
    let phrases = list.split('`').skip(1).step_by(2);
    phrases.map(|phrase| phrase.split_whitespace().map(str::to_owned).collect()).collect()
}

/// The files that people read: sources, documents, scripts, generated pages.
fn texts() -> Vec<PathBuf> {
    let (mut out, mut left) = (Vec::new(), Vec::new());
    for name in ["crates", "doc", "dist", "bench", "fuzz/fuzz_targets"] {
        left.push(root().join(name));
    }
    for name in ["README.md", "GUIDE.md", "SECURITY.md", "CHANGELOG.md", "check.sh", "demo.sh"] {
        out.push(root().join(name));
    }
    while let Some(path) = left.pop() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !matches!(name, "target" | "results" | "proptest-regressions") {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.is_file() {
            out.push(path);
        }
    }
    out
}

/// The words of a text: letters only, so that each part of a name is one. The end of a sentence
/// is a word of its own.
fn words(text: &str) -> Vec<Word> {
    let mut out = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = KERNEL_NAMES.iter().fold(line.to_owned(), |line, name| line.replace(name, "-"));
        let mut parts = String::with_capacity(line.len());
        let mut last_is_lower = false;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            // A name like `PageGap` has two.
            if c.is_uppercase() && last_is_lower {
                parts.push(' ');
            }
            last_is_lower = c.is_lowercase();
            let is_end = ENDS.contains(&c) && chars.peek().is_none_or(|next| next.is_whitespace());
            match c {
                _ if is_end => parts.push_str(" . "),
                c if c.is_alphabetic() => parts.extend(c.to_lowercase()),
                _ => parts.push(' '),
            }
        }
        let line = number + 1;
        out.extend(parts.split_whitespace().map(|text| Word { line, text: text.to_owned() }));
    }
    out
}

/// Where the phrases are, as `line: phrase`.
fn found<'a>(
    words: &'a [Word],
    phrases: &'a [Vec<String>],
) -> impl Iterator<Item = String> + use<'a> {
    let is_at = |at: usize, phrase: &[String]| {
        words.get(at..at + phrase.len()).is_some_and(|part| part.iter().map(|w| &w.text).eq(phrase))
    };
    (0..words.len()).flat_map(move |at| {
        let here = phrases.iter().filter(move |phrase| is_at(at, phrase));
        here.map(move |phrase| format!("{}: {}", words[at].line, phrase.join(" ")))
    })
}

#[test]
fn words_that_were_replaced_are_nowhere() {
    let replaced = replaced();
    assert!(replaced.iter().any(|phrase| phrase.len() > 1), "{replaced:?}");
    let mut hits = Vec::new();
    for path in texts() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        hits.extend(found(&words(&name), &replaced).map(|hit| format!("the name {name}: {hit}")));
        hits.extend(found(&words(&text), &replaced).map(|hit| format!("{name}:{hit}")));
    }
    assert!(hits.is_empty(), "{} words:\n{}", hits.len(), hits.join("\n"));
}

#[test]
fn phrases_are_found_in_names_and_across_lines_but_not_across_sentences() {
    let phrases = [vec!["page".to_owned()], vec!["in".to_owned(), "flight".to_owned()]];
    for (text, expected) in [
        ("let pageGap = IN_FLIGHT;", &["1: page", "1: in flight"][..]),
        ("/// It is in\n    /// flight.", &["1: in flight"]),
        ("It goes in. Flight is later; in: flight", &[]),
        ("queue/read_ahead_kb", &[]),
        ("inflight pages", &[]),
    ] {
        assert_eq!(found(&words(text), &phrases).collect::<Vec<_>>(), expected, "{text}");
    }
}
