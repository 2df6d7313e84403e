//! The machine that the report was made on.

use headstart::host::contents;
use headstart_bench::machine::Machine;
use headstart_view::picture::{Table, Text};
use headstart_view::render::report::Section;
use std::fs;

/// Disks that are none.
const VIRTUAL: [&str; 4] = ["loop", "ram", "zram", "nbd"];

/// Its section.
pub fn section() -> Section {
    let read = |path: &str| contents::text(path).ok();
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let is_disk = |name: &String| !VIRTUAL.iter().any(|kind| name.starts_with(kind));
    let mut disks: Vec<String> = names.filter(is_disk).collect();
    disks.sort();
    let found = Machine::examine(&disks, read);
    let huge_pages = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let known = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let mut rows = vec![
        ["kernel".to_owned(), found.kernel],
        ["CPUs".to_owned(), format!("{} × {}", found.cpus, found.cpu.unwrap_or_default())],
        [
            "memory".to_owned(),
            found.memory_bytes.map_or_else(|| "?".to_owned(), crate::output::size),
        ],
        ["load".to_owned(), found.load.unwrap_or_default()],
        ["transparent huge pages".to_owned(), huge_pages.trim().to_owned()],
        ["headstart".to_owned(), env!("CARGO_PKG_VERSION").to_owned()],
    ];
    for disk in found.disks {
        let (readahead, request) = (known(disk.readahead_kb), known(disk.request_kb));
        rows.push([
            format!("disk {}", disk.name),
            format!(
                "readahead {readahead} KiB, requests of {request} KiB, queue {}",
                known(disk.queue)
            ),
        ]);
    }
    let rows = rows.into_iter().map(|row| row.map(Text::from).to_vec());
    Section {
        title: "Machine".into(),
        tables: vec![Table::new("Where this page was made", &["", ""], rows, usize::MAX)],
        ..Section::default()
    }
}
