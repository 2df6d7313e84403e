//! The crates and the folders of the library import only what comes before them in the
//! tables of `doc/architecture.md`, and no files form circles. There are no exceptions.

mod imports;
mod rules;

use rules::{Sources, circles, out_of_order};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The rows of the table of the document whose first column has this title, with their cells.
fn table(title: &str) -> Vec<Vec<String>> {
    let path = crates().parent().unwrap().join("doc/architecture.md");
    let text = fs::read_to_string(path).unwrap();
    let head = format!("| {title} |");
    let rows = text.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
    let cells = |row: &str| row.split('|').skip(1).map(|cell| cell.trim().to_owned()).collect();
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// The words of a cell that are set as code.
fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn sources(dir: &Path) -> Sources {
    let (mut out, mut left) = (Sources::new(), vec![dir.to_owned()]);
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            out.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    out
}

#[test]
fn folders_of_the_library_import_only_those_before_them() {
    let order: Vec<String> = table("folder").iter().flat_map(|row| names(&row[0])).collect();
    assert!(order.len() > 5, "{order:?}");
    let found = out_of_order(&order, &sources(&crates().join("headstart/src")));
    assert!(found.is_empty(), "see the folders in doc/architecture.md:\n{}", found.join("\n"));
}

#[test]
fn neither_folders_nor_files_form_circles() {
    for row in table("crate") {
        let name = &names(&row[0])[0];
        let sources = sources(&crates().join(name).join("src"));
        assert!(!sources.is_empty(), "{name}");
        let found = circles(&sources);
        assert!(found.is_empty(), "{name}:\n{}", found.join("\n"));
    }
}

#[test]
fn crates_depend_on_what_the_document_says_and_only_on_those_before_them() {
    let mut manifests = BTreeMap::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let manifest = fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap();
        let (name, needs) = dependencies(&manifest);
        manifests.insert(name, needs);
    }
    let found = wrong_crates(&table("crate"), &manifests);
    assert!(found.is_empty(), "see the crates in doc/architecture.md:\n{}", found.join("\n"));
}

/// The name of a package, and what it depends on but for its tests.
fn dependencies(manifest: &str) -> (String, Vec<String>) {
    let mut section = "";
    let (mut name, mut out) = (String::new(), Vec::new());
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().split('.').next().unwrap_or_default();
        match section {
            "[package]" if key == "name" => name = value.trim().trim_matches('"').to_owned(),
            "[dependencies]" => out.push(key.to_owned()),
            _ => {}
        }
    }
    (name, out)
}

fn wrong_crates(rows: &[Vec<String>], manifests: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut out = Vec::new();
    let mut before: Vec<String> = Vec::new();
    for row in rows {
        let (name, mut expected) = (names(&row[0]).concat(), names(&row[1]));
        expected.sort_unstable();
        let is_ours = |one: &&String| manifests.contains_key(*one);
        let needs = manifests.get(&name).into_iter().flatten().filter(is_ours);
        let mut needs: Vec<String> = needs.cloned().collect();
        needs.sort_unstable();
        if needs != expected {
            out.push(format!("{name} needs {needs:?}, and the document says {expected:?}"));
        }
        let later = needs.iter().filter(|one| !before.contains(one));
        out.extend(later.map(|one| format!("{name} needs {one}, which comes behind it")));
        before.push(name);
    }
    let unknown = manifests.keys().filter(|name| !before.contains(name));
    out.extend(unknown.map(|name| format!("{name} is not in the document")));
    out
}

#[test]
fn a_crate_that_needs_another_one_than_the_document_says_is_reported() {
    let manifest = |needs: &str| {
        format!(
            "[package]\nname = \"b\"\n[dependencies]\n{needs}[dev-dependencies]\nz.workspace = true\n"
        )
    };
    let row = |name: &str, needs: &str| vec![format!("`{name}`"), needs.to_owned()];
    for (name, needs, rows, expected) in [
        (
            "as told",
            "a.workspace = true\nserde = \"1\"\n",
            vec![row("a", ""), row("b", "`a`")],
            vec![],
        ),
        ("not told", "a.workspace = true\n", vec![row("a", ""), row("b", "")], vec!["says []"]),
        ("no longer", "", vec![row("a", ""), row("b", "`a`")], vec!["b needs []"]),
        (
            "the later",
            "a = { path = \"../a\" }\n",
            vec![row("b", "`a`"), row("a", "")],
            vec!["behind it"],
        ),
        ("unknown", "", vec![row("a", "")], vec!["b is not in the document"]),
    ] {
        let manifests = [("a".to_owned(), vec![]), dependencies(&manifest(needs))].into();
        let found = wrong_crates(&rows, &manifests);
        assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
        assert!(
            found.iter().zip(&expected).all(|(found, words)| found.contains(words)),
            "{name}: {found:?}"
        );
    }
}
