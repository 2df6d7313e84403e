//! The plan of any pack: steps that are not empty and lie within a file that
//! can exist, and no more of them than the budget allows, in any order. The
//! first byte chooses the bounds.
#![no_main]

use headstart::pack::Pack;
use headstart::replay::frequency::Frequency;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::step::{Step, Target};
use headstart::replay::strategy::{Order, ReadStrategy};
use headstart_fuzz::{bounded, pack};
use headstart_sys::counting::Counting;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    let Some((&budget, body)) = data.split_first() else { return };
    let Some(pack) = pack(body) else { return };
    let seldom = budget & 4 != 0;
    // Up to 4 GiB, also no multiple of a page.
    let budget = (1u64 << (budget >> 3)) - u64::from(budget & 1);
    let metadata = budget & 2 != 0;
    let often = if seldom { Frequency::HALF } else { Frequency::EVER };
    let limits = Limits { budget, metadata };
    let pair = [pack.clone(), pack.clone()];
    let strategies =
        [(Order::Touch, None), (Order::Touch, Some(64 << 10)), (Order::Elevator, None)];
    for (order, metadata_lead) in strategies {
        let strategy = ReadStrategy { order, metadata_lead, ..ReadStrategy::default() };
        for packs in [&pair[..1], &pair] {
            // Two lists of steps at one time, one of them with room for twice as many.
            let steps = (limits.budget / strategy.step_bytes) as usize * 4 * size_of::<Step>();
            let plan = || Plan::of_packs(packs, often, limits, strategy);
            let plan = bounded(packs.len() * data.len(), steps, plan);
            check(&plan, often, limits, &pack);
        }
    }
});

fn check(plan: &Plan, often: Frequency, limits: Limits, pack: &Pack) {
    let bytes = plan.bytes();
    assert!(bytes <= limits.budget);
    if plan.over_budget > 0 {
        assert_eq!(bytes, limits.budget, "the budget is used up before anything is skipped");
    }
    for step in &plan.steps {
        assert!(step.bytes.length() > 0 && step.bytes.length() <= plan.strategy.step_bytes);
        let end =
            step.bytes.offset.checked_add(step.bytes.length()).expect("a step ends somewhere");
        assert!(i64::try_from(end).is_ok());
        assert!((step.target as usize) < plan.targets.len());
    }
    let is_file = |step: &Step| matches!(plan.targets[step.target as usize], Target::File { .. });
    assert_eq!(plan.steps.iter().take_while(|step| !is_file(step)).count(), plan.metadata);
    assert!(
        plan.strategy.metadata_lead.is_some() || plan.steps[plan.metadata..].iter().all(is_file)
    );
    assert!(plan.head <= plan.steps.len());
    let choice = often.choice(pack);
    let data = pack.ranges.iter().filter(|r| choice.has(r)).count();
    let metadata = pack.metadata.iter().filter(|r| choice.has_metadata(r)).count();
    let wanted = data + if limits.metadata { metadata } else { 0 };
    assert_eq!(plan.steps.is_empty(), wanted == 0 || limits.budget == 0);
}
