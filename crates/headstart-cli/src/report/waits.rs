//! Waits of a document of `headstart faults --waits`: where the time of the first thread went, what it
//! waited for, and what disks did. Pure.

use super::faults::{list, number, text, time};
use crate::output::{JsonPath, grouped, percent, size};
use headstart_view::picture::{Table, Text};
use headstart_view::render::report::Section;
use serde::Deserialize;
use serde_json::Value;

/// Rows of a table.
const ROWS: usize = 40;

/// The section of a document; none if it has no waits.
pub fn section(document: &Value, command: &str) -> Option<Section> {
    let waits = document.get("waits").filter(|waits| waits.is_object())?;
    let [main, all] = ["main_thread", "all_threads"].map(|of| &waits[of]["total_ns"]);
    let mut words =
        vec![format!("The first thread: {}; all threads: {}.", time(main), time(all)).into()];
    let unrecorded = &waits["unrecorded"];
    let lost = ["calls_32_bit", "ends_of_calls", "ends_of_requests", "waits_not_kept"]
        .map(|what| number(&unrecorded[what]));
    if lost.iter().any(|count| *count > 0) {
        let [calls, ends, requests, kept] = lost.map(grouped);
        words.push(
            format!(
                "Not told: {calls} system calls of 32-bit programs, {ends} ends of calls, {requests} \
                 ends of requests, {kept} waits."
            )
            .into(),
        );
    }
    Some(Section {
        title: format!("Waits of {command}").into(),
        words,
        tables: vec![parts(&waits["main_thread"]), causes(waits), devices(waits)],
        ..Section::default()
    })
}

/// The parts of the first thread's time, the longest first.
fn parts(account: &Value) -> Table {
    let cpu = [
        ("CPU, own code", "cpu_user_ns"),
        ("CPU, system calls", "cpu_calls_ns"),
        ("CPU, page faults", "cpu_faults_ns"),
        ("waits that were not kept", "waits_not_kept_ns"),
    ];
    let cpu = cpu.map(|(name, key)| (name, 0, number(&account[key]), 0));
    let waits = account["waits"].as_object().into_iter().flatten().map(|(kind, sum)| {
        (&**kind, number(&sum["count"]), number(&sum["time_ns"]), number(&sum["longest_ns"]))
    });
    let mut rows: Vec<_> = cpu.into_iter().chain(waits).filter(|row| row.2 > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.2));
    let total = number(&account["total_ns"]);
    let or_none = |n: u64, shown: String| if n == 0 { "–".to_owned() } else { shown };
    let rows = rows.into_iter().map(|(name, count, ns, longest)| -> Vec<Text> {
        let cells = [
            name.to_owned(),
            or_none(count, grouped(count)),
            time(&ns.into()),
            format!("{} %", percent(ns, total)),
            or_none(longest, time(&longest.into())),
        ];
        cells.map(Text::from).into()
    });
    let head = ["", "count", "time", "of all", "longest"];
    Table::new("Where the time of the first thread went", &head, rows, usize::MAX)
}

fn causes(waits: &Value) -> Table {
    let row = |cause: &Value| -> Vec<Text> {
        let file = JsonPath::deserialize(cause).ok().filter(|_| cause["path"].is_string());
        let of = file.map_or_else(|| text(&cause["name"]).to_owned(), |path| path.shown());
        let (main, all) = (&cause["main_thread"], &cause["all_threads"]);
        let cells = [
            format!("{} {of}", text(&cause["kind"])),
            grouped(number(&main["count"])),
            time(&main["time_ns"]),
            time(&main["longest_ns"]),
            time(&all["time_ns"]),
        ];
        cells.map(Text::from).into()
    };
    let head = ["waits for", "count", "time", "longest", "all threads"];
    Table::new("By kind and file", &head, list(waits, "causes").map(row), ROWS)
}

fn devices(waits: &Value) -> Table {
    let row = |device: &Value| -> Vec<Text> {
        let n = |key: &str| number(&device[key]);
        let depth = device["mean_depth"].as_f64().unwrap_or(0.0);
        let cells = [
            text(&device["device"]).to_owned(),
            grouped(n("reads")),
            size(n("read_bytes")),
            grouped(n("writes")),
            size(n("written_bytes")),
            time(&device["busy_ns"]),
            format!("{depth:.2}"),
            grouped(n("gaps")),
            time(&device["idle_ns"]),
            time(&device["longest_idle_ns"]),
        ];
        cells.map(Text::from).into()
    };
    let head = [
        "device",
        "reads",
        "read",
        "writes",
        "written",
        "busy",
        "in flight then",
        "idle gaps",
        "idle",
        "longest gap",
    ];
    Table::new("Disks, whoever made the requests", &head, list(waits, "devices").map(row), ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_parts_of_the_first_thread_come_longest_first_and_disks_have_their_gaps() {
        let sum =
            |count: u64| json!({"count": count, "time_ns": 1_000_000 * count, "longest_ns": 9000});
        let document = json!({"waits": {
            "main_thread": {"total_ns": 10_000_000, "cpu_user_ns": 3_000_000, "cpu_calls_ns": 0,
                            "waits": {"read": sum(5), "fault": sum(2)}},
            "causes": [{"kind": "read", "path": "/a\u{202e}<", "main_thread": sum(5), "all_threads": sum(6)},
                       {"kind": "run-queue", "name": "k (7)", "main_thread": sum(1)}],
            "devices": [{"device": "8:0", "reads": 7, "read_bytes": 1_048_576, "mean_depth": 1.5,
                         "gaps": 3, "idle_ns": 2_000_000}],
            "unrecorded": {"calls_32_bit": 4},
        }});
        let found = section(&document, "app").unwrap();
        let rows = |table: usize| -> Vec<String> {
            let rows = found.tables[table].rows.iter();
            rows.map(|row| row.iter().map(Text::as_str).collect::<Vec<_>>().join("|")).collect()
        };
        assert_eq!(
            rows(0),
            [
                "read|5|5.0 ms|50.0 %|9.0 µs",
                "CPU, own code|–|3.0 ms|30.0 %|–",
                "fault|2|2.0 ms|20.0 %|9.0 µs"
            ]
        );
        assert_eq!(rows(1)[0], "read /a\\342\\200\\256<|5|5.0 ms|9.0 µs|6.0 ms");
        assert_eq!(rows(1)[1], "run-queue k (7)|1|1.0 ms|9.0 µs|0.0 µs");
        assert!(rows(2)[0].starts_with("8:0|7|1.0 MiB|0|"), "{:?}", rows(2));
        assert!(found.words[1].as_str().starts_with("Not told: 4 system calls"));
        assert!(section(&json!({"waits": null}), "app").is_none());
    }
}
