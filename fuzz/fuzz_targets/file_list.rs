//! Lists of file parts, and the plan made of one.
#![no_main]

use headstart::cache::list;
use headstart::replay::list::parse_list;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::ReadStrategy;
use libfuzzer_sys::fuzz_target;
use std::os::unix::ffi::OsStrExt;

fuzz_target!(|data: &[u8]| {
    let Ok(entries) = parse_list(data) else { return };
    for entry in entries.iter().filter(|entry| !entry.ranges.is_empty()) {
        let name = entry.path.as_os_str().as_bytes();
        let line = list::line(name, &entry.ranges);
        assert!(!line.contains(&b'\n'));
        assert_eq!(list::parse(&line), Ok((name.to_vec(), entry.ranges.clone())));
    }
    let limits = Limits { budget: 64 << 20, metadata: false };
    let plan = Plan::of_list(&entries, |_| Some(u64::MAX), limits, ReadStrategy::default());
    assert!(plan.bytes() <= limits.budget);
    for step in &plan.steps {
        assert!(step.bytes.length() > 0 && step.bytes.length() <= plan.strategy.step_bytes);
        assert!(step.bytes.offset.checked_add(step.bytes.length()).is_some());
        assert!((step.target as usize) < plan.targets.len());
    }
});
