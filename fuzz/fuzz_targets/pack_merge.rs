//! Any two packs can be compared and joined, by every rule, into one that can
//! be written and comes back as it was. The first byte chooses the rule.
#![no_main]

use headstart::pack::diff::diff;
use headstart::pack::merge::{Rule, merge};
use headstart_fuzz::{bounded, check_encoding, pack, split};
use headstart_sys::counting::Counting;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    let Some((&rule, data)) = data.split_first() else { return };
    let (old, new) = split(data);
    let (Some(old), Some(new)) = (pack(old), pack(new)) else { return };
    let rule = match rule & 0x0f {
        0 => Rule::Union,
        keep => Rule::NextStart {
            keep: keep.into(),
            metadata_seen: rule & 0x10 != 0,
            // 0, or 15 µs to 268 s.
            keep_time_us: (1 << (4 * (rule >> 5))) - 1,
        },
    };
    let merged = bounded(data.len(), 0, || merge(&old, &new, rule));
    check_encoding(&merged);
    // What was built lies in order: joining it with itself changes nothing.
    let again = merge(&merged, &merged, Rule::Union);
    check_encoding(&again);
    assert!(diff(&merged, &again).is_empty());
    let _ = diff(&old, &new);
});
