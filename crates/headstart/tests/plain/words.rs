//! No name, message, comment or document uses a word that CONTRIBUTING.md replaces.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The words of the line of CONTRIBUTING.md that lists them.
fn replaced() -> Vec<String> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let after = text.split_once("Not used anywhere:").unwrap().1;
    let list = after.split_once("\n\n").unwrap().0;
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
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

/// The words of a text in lower case: letters only, so that each part of a name is one.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut parts = String::with_capacity(text.len());
    let mut last_is_lower = false;
    for c in text.chars() {
        // A name like `PageGap` has two.
        if c.is_uppercase() && last_is_lower {
            parts.push(' ');
        }
        last_is_lower = c.is_lowercase();
        parts.extend(c.to_lowercase());
    }
    let words = parts.split(|c: char| !c.is_alphabetic()).map(str::to_owned);
    words.collect::<Vec<_>>().into_iter()
}

#[test]
fn words_that_were_replaced_are_nowhere() {
    let replaced = replaced();
    assert!(replaced.len() > 5, "{replaced:?}");
    let mut found = Vec::new();
    for path in texts() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let names = words(&name).filter(|word| replaced.contains(word));
        found.extend(names.map(|word| format!("{name}: the name has {word}")));
        for (number, line) in text.lines().enumerate() {
            let here = words(line).filter(|word| replaced.contains(word));
            found.extend(here.map(|word| format!("{name}:{}: {word}", number + 1)));
        }
    }
    assert!(found.is_empty(), "{} words:\n{}", found.len(), found.join("\n"));
}

#[test]
fn words_are_parts_of_names_too() {
    let found: Vec<String> =
        words("let pageGap = in_FLIGHT(Pass);").filter(|w| !w.is_empty()).collect();
    assert_eq!(found, ["let", "page", "gap", "in", "flight", "pass"]);
}
