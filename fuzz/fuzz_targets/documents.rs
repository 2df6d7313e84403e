//! JSON documents that headstart reads back: results of benchmarks, its own and hyperfine's, the
//! timeline of a boot, what a boot has prefetched, and pictures. Each gets a picture or a comparison,
//! in which nothing is invisible.
#![no_main]

use headstart::boot::analysis::Analysis;
use headstart::boot::history;
use headstart::boot::replay_records::ReplayRecord;
use headstart::boot::timeline::Timeline;
use headstart::host::names::is_visible;
use headstart_bench::compare::compare;
use headstart_bench::side::{Side, align};
use headstart_bench::{document, hyperfine};
use headstart_fuzz::split;
use headstart_view::build::{before_after, read_back};
use headstart_view::render::{html, svg};
use headstart_view::{build, read, text_boot};
use libfuzzer_sys::fuzz_target;

fn check(text: &str) {
    assert!(text.chars().all(|c| is_visible(c) || c == '\n'), "{text}");
}

fuzz_target!(|data: &[u8]| {
    let (a, b) = split(data);
    if let (Ok(a), Ok(b)) = (serde_json::from_slice(a), serde_json::from_slice(b)) {
        let _ = headstart_advice::earlier::check(&a, &b);
    }
    let _ = hyperfine::parse(data);
    if let (Ok(first), Ok(second)) = (document::read(a), document::read(b)) {
        let (mut sides, results) = ([Side::default(), Side::default()], [first, second]);
        sides.iter_mut().zip(results).for_each(|(side, results)| side.add(results));
        let [first, second] = &mut sides;
        align(first, second);
        let found = compare(&first.counters, &second.counters, 50);
        let all = first.counters.len() + second.counters.len();
        assert!(found.rows.len() + found.unlisted.counters + found.skipped.len() <= all);
    }
    if let Ok(replayed) = serde_json::from_slice::<ReplayRecord>(data) {
        let again = serde_json::to_vec(&replayed).expect("it was JSON");
        assert!(serde_json::from_slice::<ReplayRecord>(&again).is_ok());
    }
    if let Ok(picture) = read::picture(data) {
        check(&svg::svg(&picture));
        check(&html::html(&picture).expect("all of it has a form in JSON"));
        if let Some(accesses) = read_back::accesses(&picture) {
            check(&svg::svg(&before_after::picture(&accesses, &accesses)));
        }
    }
    let Some(record) = history::parse(b) else { return };
    let boot = Analysis::of(1, record, Timeline::parse(a).ok());
    let picture = build::boot::picture(&boot);
    check(&svg::svg(&picture));
    check(&html::html(&picture).expect("all of it has a form in JSON"));
    check(&text_boot::title(&boot));
    check(&text_boot::summary(&boot));
    let _ = (boot.idle_us(), boot.slowest().len());
});
