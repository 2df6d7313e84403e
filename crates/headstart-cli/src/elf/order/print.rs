//! `headstart elf order` as text.

use crate::output::{Align, Table, counted, grouped, size};
use headstart_elf::order::document::{Document, FileOrder};
use headstart_elf::order::merge;
use headstart_elf::order::predict::{Layout, predict};
use std::io::Write;

/// The most initializers that are named.
const NAMED: usize = 8;

/// A line for each file, and more of the one that order files are for.
pub fn table(document: &Document, share: f64, chosen: &FileOrder) -> Vec<u8> {
    let mut table = Table::new([
        ("CALLED", Align::Right),
        ("OF", Align::Right),
        ("CODE", Align::Right),
        ("4K PAGES", Align::Right),
        ("ORDERED", Align::Right),
        ("64K", Align::Right),
        ("ORDERED", Align::Right),
        ("128K", Align::Right),
        ("ORDERED", Align::Right),
        ("SPAN", Align::Right),
        ("ORDERED", Align::Right),
        ("FILE", Align::Left),
    ]);
    for file in &document.files {
        let order = merge::order(file, share);
        let found = predict(&order.functions, file.text_address);
        let Layout { pages, fault_around_windows, readahead_windows, span } = found.now;
        let then = found.ordered;
        table.row([
            grouped(order.functions.len() as u64),
            grouped(file.functions_in_file),
            size(found.bytes),
            grouped(pages),
            grouped(then.pages),
            grouped(fault_around_windows),
            grouped(then.fault_around_windows),
            grouped(readahead_windows),
            grouped(then.readahead_windows),
            size(span),
            size(then.span),
            file.path.shown(),
        ]);
    }
    let mut out = Vec::new();
    // Writing to memory does not fail.
    let _ = table.write(&mut out);
    for line in details(chosen, share) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Of the file that order files are for.
fn details(file: &FileOrder, share: f64) -> Vec<String> {
    let order = merge::order(file, share);
    let name = file.path.shown();
    let runs = counted(file.runs.len() as u64, "run");
    let mut lines = vec![String::new()];
    let dropped = match order.dropped {
        0 => String::new(),
        n => format!("; {} that few runs called are dropped", counted(n as u64, "function")),
    };
    lines.push(format!(
        "{name}: {} in {runs}{dropped}",
        counted(order.functions.len() as u64, "first call")
    ));
    let function = |index: &u32| file.functions.get(*index as usize).map(|one| one.name.as_str());
    let names: Vec<&str> = file.initializers.iter().filter_map(function).collect();
    if !names.is_empty() {
        let named = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let count = counted(names.len() as u64, "static initializer");
        lines.push(format!("{count} in the order in which they run: {named}{more}"));
        if names.len() > 1 {
            lines.push(
                "The order file puts their code into this order; the order itself is that of the \
                 object files in the link, and of init_priority"
                    .into(),
            );
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_elf::order::document::{Function, SCHEMA};
    use std::path::Path;

    #[test]
    fn the_table_has_what_is_now_and_what_would_be() {
        let function = |name: &str, page: u64| Function {
            name: name.into(),
            aliases: vec![],
            address: page * 4096,
            size: 500,
        };
        let file = FileOrder {
            path: Path::new("/bin/p").into(),
            build_id: String::new(),
            functions_in_file: 5484,
            text_address: 4096,
            functions: vec![function("main", 1), function("init", 100), function("b", 200)],
            runs: vec![vec![1, 0], vec![1, 0], vec![1, 0, 2]],
            initializers: vec![1],
        };
        let files = vec![file];
        let document = Document { schema: SCHEMA.into(), command: vec![], files };
        let text = String::from_utf8(table(&document, 0.5, &document.files[0])).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        let expected = "2 5,484 1000 B 2 1 2 1 2 1 400.0 KiB 4.0 KiB /bin/p";
        assert_eq!(words.join(" "), expected);
        assert_eq!(
            lines[3],
            "/bin/p: 2 first calls in 3 runs; 1 function that few runs called are dropped"
        );
        assert_eq!(lines[4], "1 static initializer in the order in which they run: init");
    }
}
