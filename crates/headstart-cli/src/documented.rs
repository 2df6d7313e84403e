//! The commands that the documents show are commands that headstart takes.
//! Nothing is run. Only compiled for tests.

use crate::cli::Cli;
use clap::Parser;
use clap::error::ErrorKind;
use std::path::Path;

const DOCUMENTS: [&str; 5] =
    ["README.md", "GUIDE.md", "CONTRIBUTING.md", "SECURITY.md", "doc/architecture.md"];

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

#[test]
fn every_command_in_the_documents_is_one_that_headstart_takes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        for command in commands(&text) {
            // What follows is the shell's, a remark, or left to the reader.
            let words = command.split_whitespace();
            let words = words.take_while(|w| !["#", ">", ";", "…"].contains(w));
            let taken = match Cli::try_parse_from(words) {
                Ok(_) => true,
                // An abbreviated mention leaves out what the verb is about.
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
