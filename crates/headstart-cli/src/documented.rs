//! Tests that the commands in the documents are accepted by headstart, and that each dependency has
//! a reason. Nothing is run. Only compiled for tests.

use crate::cli::Cli;
use clap::Parser;
use clap::error::ErrorKind;
use std::path::{Path, PathBuf};

const DOCUMENTS: [&str; 11] = [
    "README.md",
    "GUIDE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "doc/architecture.md",
    "doc/daemon.md",
    "doc/elf.md",
    "doc/elf-order.md",
    "doc/faults.md",
    "doc/import.md",
    "doc/layout.md",
];

/// What may stand before a command: the prompt, a unit's key, what runs it.
const BEFORE: [&str; 6] = ["# ", "$ ", "ExecStart=", "ExecStartPre=-+", "sudo ", "/usr/local/bin/"];

/// Command lines of headstart in a text: of its indented blocks, and between
/// backticks.
fn commands(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.lines().filter_map(|line| line.strip_prefix("    "));
    let quoted = text.split('`').skip(1).step_by(2);
    let bare = |command| BEFORE.iter().fold(command, |c: &str, b| c.strip_prefix(b).unwrap_or(c));
    blocks.chain(quoted).map(bare).filter(|c| c.starts_with("headstart "))
}

fn in_project(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = std::fs::read_to_string(in_project("Cargo.toml")).unwrap();
    let reasons = std::fs::read_to_string(in_project("doc/dependencies.md")).unwrap();
    let (_, section) = manifest.split_once("[workspace.dependencies]\n").unwrap();
    let section = section.split("\n[").next().unwrap();
    let names = section.lines().filter_map(|line| Some(line.split_once(" = ")?.0));
    let without: Vec<&str> = names
        .filter(|name| !name.starts_with("headstart"))
        .filter(|name| !reasons.contains(&format!("`{name}`")))
        .collect();
    assert!(without.is_empty(), "not in doc/dependencies.md: {without:?}");
}

#[test]
fn every_command_in_the_documents_is_one_that_headstart_takes() {
    let mut seen = 0;
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(in_project(document)).unwrap();
        for command in commands(&text) {
            // What follows is the shell's, a remark, or left to the reader.
            let words = command.split_whitespace();
            let words = words.take_while(|w| !["#", ">", ";", "…"].contains(w));
            let taken = match Cli::try_parse_from(words) {
                Ok(_) => true,
                // An abbreviated mention omits what the verb is about.
                Err(e) => {
                    matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::MissingRequiredArgument)
                }
            };
            assert!(taken, "{document}: {command}");
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} commands found");
}
