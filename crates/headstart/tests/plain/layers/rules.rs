//! What the sources of a crate may not do: import from a later folder, or form circles.

use super::imports::imports;
use std::collections::{BTreeMap, BTreeSet};

/// The sources of a crate: paths below `src/` with their texts.
pub type Sources = BTreeMap<String, String>;

/// A file that imports another.
#[derive(Clone, Debug)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    /// The line, and what stands there.
    place: String,
}

/// Circles of more files than that are none that two halves of one thing form.
const FILES_OF_A_CIRCLE: usize = 2;

/// What is wrong with a library whose folders may import those before them in `order`.
pub fn out_of_order(order: &[String], sources: &Sources) -> Vec<String> {
    let number = |folder: &str| order.iter().position(|one| one == folder);
    let folders: BTreeSet<&str> = sources.keys().filter_map(|file| folder(file, sources)).collect();
    let unknown = folders.iter().filter(|folder| number(folder).is_none());
    let mut out: Vec<_> = unknown.map(|folder| format!("{folder} is not in the list")).collect();
    let gone = order.iter().filter(|folder| !folders.contains(folder.as_str()));
    out.extend(gone.map(|folder| format!("{folder} is in the list and not there")));
    for Edge { from, to, place } in edges(sources) {
        let (Some(from), Some(to)) = (folder(from, sources), folder(to, sources)) else { continue };
        if from != to && number(from) <= number(to) {
            out.push(format!("{place}: {to} comes behind {from}"));
        }
    }
    out
}

/// The circles of folders, and those of more than two files, each with its imports.
pub fn circles(sources: &Sources) -> Vec<String> {
    let of_files = edges(sources);
    let of_folders: Vec<Edge> = of_files
        .iter()
        .filter_map(|edge| {
            let (from, to) = (folder(edge.from, sources)?, folder(edge.to, sources)?);
            (from != to).then(|| Edge { from, to, place: edge.place.clone() })
        })
        .collect();
    let mut out = circles_of(&of_folders, 1);
    out.extend(circles_of(&of_files, FILES_OF_A_CIRCLE));
    out
}

/// The circles of more than `most`.
fn circles_of(edges: &[Edge], most: usize) -> Vec<String> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for edge in edges {
        next.entry(edge.from).or_default().insert(edge.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reached(from, &next))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
    for one in next.keys().filter(|one| reaches(one, one)) {
        circles.insert(
            next.keys().copied().filter(|to| reaches(one, to) && reaches(to, one)).collect(),
        );
    }
    let told = |circle: Vec<&str>| {
        // One import for each two.
        let within = |edge: &&Edge| circle.contains(&edge.from) && circle.contains(&edge.to);
        let pairs = edges.iter().filter(within).map(|edge| ((edge.from, edge.to), &edge.place[..]));
        let places: Vec<&str> = pairs.collect::<BTreeMap<_, _>>().into_values().collect();
        format!("a circle of {}:\n    {}", circle.join(", "), places.join("\n    "))
    };
    circles.into_iter().filter(|circle| circle.len() > most).map(told).collect()
}

/// What can be come to from one.
fn reached<'a>(from: &'a str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(one) = left.pop() {
        left.extend(next.get(one).into_iter().flatten().filter(|to| seen.insert(**to)));
    }
    seen
}

/// Which file imports which.
fn edges(sources: &Sources) -> Vec<Edge<'_>> {
    let files: BTreeMap<Vec<&str>, &str> =
        sources.keys().map(|file| (module(file), &file[..])).collect();
    let mut out = Vec::new();
    for (file, text) in sources {
        let own = module(file);
        for import in imports(text) {
            let path: Vec<&str> = import.path.iter().map(String::as_str).collect();
            let Some(mut target) = absolute(&own, &path, import.inside, &files) else { continue };
            while !target.is_empty() && !files.contains_key(&target) {
                target.pop();
            }
            let Some(to) = files.get(&target).filter(|to| *to != file) else { continue };
            let place = format!("src/{file}:{}: {}", import.line, import.path.join("::"));
            out.push(Edge { from: file, to, place });
        }
    }
    out
}

/// A path from the crate's root on; `None` when it leads to another crate, or stays within
/// the file.
fn absolute<'a>(
    own: &[&'a str],
    path: &[&'a str],
    inside: usize,
    files: &BTreeMap<Vec<&str>, &str>,
) -> Option<Vec<&'a str>> {
    let up = path.iter().take_while(|word| **word == "super").count();
    let (begin, rest) = match path {
        ["crate", rest @ ..] => (&[][..], rest),
        _ if up > 0 => {
            let up_from_file = up.checked_sub(inside)?;
            (&own[..own.len().saturating_sub(up_from_file)], &path[up..])
        }
        ["self", rest @ ..] => (own, rest),
        // A module below this one.
        [first, ..] if files.contains_key(&[own, &[*first][..]].concat()) => (own, path),
        _ => return None,
    };
    Some([begin, rest].concat())
}

/// The module that a file is, as a path from the root of its crate.
fn module(file: &str) -> Vec<&str> {
    let mut path: Vec<_> = file.trim_end_matches(".rs").split('/').collect();
    let is_root = path.len() == 1 && ["lib", "main"].contains(&path[0]);
    if is_root || path.last() == Some(&"mod") {
        path.pop();
    }
    path
}

/// The folder of the crate's root that a file belongs to, with the file beside the folder that
/// has its name.
fn folder<'a>(file: &'a str, sources: &Sources) -> Option<&'a str> {
    let name = file.split_once('/').map_or(file.trim_end_matches(".rs"), |(folder, _)| folder);
    let below = format!("{name}/");
    sources.keys().any(|other| other.starts_with(&below)).then_some(name)
}

fn made_up(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn an_import_from_a_later_folder_is_reported_with_file_line_and_path() {
    let order = ["low".to_owned(), "high".to_owned()];
    for (name, low, high, expected) in [
        ("downwards", "", "use crate::low::a;", &[][..]),
        (
            "upwards",
            "\nuse crate::high;",
            "",
            &["src/low/a.rs:2: crate::high: high comes behind low"],
        ),
        (
            "in a group",
            "use crate::{high::b::C, low};",
            "",
            &["src/low/a.rs:1: crate::high::b::C: high"],
        ),
        (
            "in code",
            "fn f() { crate::high::b::c() }",
            "",
            &["src/low/a.rs:1: crate::high::b::c: high"],
        ),
        ("by super", "use super::super::high::b;", "", &["src/low/a.rs:1: super::super::high::b"]),
        (
            "in a test",
            "mod t { use super::super::super::high::b; }",
            "",
            &["src/low/a.rs:1: super"],
        ),
        ("within itself", "use super::a; mod t { use super::*; }", "", &[]),
        ("of another crate", "use high::b; use std::fs;", "", &[]),
        ("in words", "//! use crate::high;\nconst A: &str = \"crate::high\";", "", &[]),
    ] {
        let sources = made_up(&[
            ("lib.rs", "mod low;"),
            ("low/a.rs", low),
            ("low/mod.rs", ""),
            ("high/mod.rs", ""),
            ("high/b.rs", high),
        ]);
        let found = out_of_order(&order, &sources);
        assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{name}: {found}");
        }
    }
}

#[test]
fn the_list_has_each_folder_and_no_other() {
    let sources = made_up(&[("lib.rs", ""), ("new/mod.rs", ""), ("single.rs", "")]);
    let found = out_of_order(&["old".to_owned()], &sources);
    assert_eq!(found, ["new is not in the list", "old is in the list and not there"]);
}

#[test]
fn circles_of_folders_and_of_three_files_are_reported_with_their_imports() {
    for (name, files, expected) in [
        ("two files", &[("f/a.rs", "use super::b;"), ("f/b.rs", "use super::a;")][..], &[][..]),
        (
            "three files",
            &[
                ("f/a.rs", "use super::b;"),
                ("f/b.rs", "use super::c::D;"),
                ("f/c.rs", "use crate::f::a;"),
            ],
            &["f/a.rs, f/b.rs, f/c.rs", "src/f/b.rs:1: super::c::D"],
        ),
        (
            "children that take what their parent has, which takes what they have",
            &[
                ("f.rs", "use a::A; use b::B;"),
                ("f/a.rs", "use super::F;"),
                ("f/b.rs", "use super::F;"),
            ],
            &["f.rs, f/a.rs, f/b.rs", "src/f.rs:1: a::A"],
        ),
        (
            "at the root",
            &[("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a;")],
            &["a.rs, b.rs, c.rs"],
        ),
        (
            "two folders by other files",
            &[
                ("f/a.rs", "use crate::g::b;"),
                ("g/b.rs", ""),
                ("g/c.rs", "use crate::f::d;"),
                ("f/d.rs", ""),
            ],
            &["a circle of f, g", "src/g/c.rs:1: crate::f::d"],
        ),
        ("a row", &[("f/a.rs", "use super::b;"), ("f/b.rs", "use super::c;"), ("f/c.rs", "")], &[]),
    ] {
        let found = circles(&made_up(files));
        assert_eq!(found.len(), usize::from(!expected.is_empty()), "{name}: {found:?}");
        for words in expected {
            assert!(found[0].contains(words), "{name}: {found:?}");
        }
    }
}
