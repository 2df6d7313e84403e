//! Any model of a device with any pack: what is expected, how it is read, what of it is sampled.
//! The first 24 bytes are the model.
#![no_main]

use headstart::replay::benefit::Expected;
use headstart::replay::frequency::Frequency;
use headstart::replay::model::Model;
use headstart::replay::pack_strategy::read_strategy;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::ranges::Ranges;
use headstart::replay::sample::sample;
use headstart_fuzz::pack;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((numbers, body)) = data.split_first_chunk::<24>() else { return };
    let mut numbers = numbers.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let mut number = || numbers.next().unwrap_or_default();
    let model = Model {
        latency_us: number(),
        next_us: number(),
        bandwidth_mb_s: number(),
        depth: number(),
        iops: number(),
        most_iops: number(),
    };
    let json = serde_json::to_vec(&model).expect("a model is JSON");
    assert_eq!(serde_json::from_slice::<Model>(&json).ok(), Some(model));
    let Some(pack) = pack(body) else { return };
    let gaps = Ranges::of(&pack).gaps;
    assert!(gaps.len() <= pack.ranges.len() && gaps.is_sorted());
    for often in [Frequency::EVER, Frequency::HALF] {
        let choice = often.choice(&pack);
        let expected = Expected::of(&pack, &choice, &model);
        let (least, most) = expected.gain();
        assert!((0.0..=1.0).contains(&least) && (0.0..=1.0).contains(&most));
        let _ = (expected.has_benefit(), expected.should_record(), expected.gain_us());
        let sampled = sample(&pack, &choice);
        assert!(sampled.len() <= 25 && sampled.iter().all(|range| choice.has(range)));
        for model in [Some(model), None] {
            let strategy = read_strategy(model, &pack);
            let limits = Limits { budget: 1 << 30, metadata: true };
            let plan = Plan::of_packs(std::slice::from_ref(&pack), often, limits, strategy);
            assert!(plan.bytes() <= limits.budget);
        }
    }
});
