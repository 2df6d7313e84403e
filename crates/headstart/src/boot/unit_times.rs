//! When each systemd unit was started, became active and ended, from `systemctl show`. Pure;
//! [`super::systemd`] runs it.

use serde::{Deserialize, Serialize};

/// The properties to request, of all units.
pub const PROPERTIES: &str = "Id,InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic,\
                              ActiveExitTimestampMonotonic,InactiveEnterTimestampMonotonic";

/// Units that are kept; a machine has some hundreds.
pub const MOST: usize = 2000;
/// Bytes of a unit's name (`UNIT_NAME_MAX` of systemd).
const LONGEST: usize = 255;

/// One unit, with times in µs from the beginning of the boot. A unit that was started
/// several times has those of the last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitTimes {
    /// Its name.
    pub name: String,
    /// It was started.
    pub activating_us: Option<u64>,
    /// It was active.
    pub active_us: Option<u64>,
    /// It began to end.
    pub deactivating_us: Option<u64>,
    /// It had ended.
    pub inactive_us: Option<u64>,
}

/// What a unit did until a moment, as times in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    /// It was started.
    pub from: u64,
    /// It was active, or failed to be.
    pub active: u64,
    /// It began to end.
    pub deactivating: u64,
    /// It had ended.
    pub to: u64,
}

impl UnitTimes {
    /// When it was first seen to do anything.
    pub fn began(&self) -> Option<u64> {
        self.activating_us.or(self.active_us)
    }

    /// How long it took to become active, or to have done its work.
    pub fn took_us(&self) -> Option<u64> {
        let from = self.activating_us?;
        let until = self.active_us.filter(|at| *at >= from);
        Some(until.or(self.inactive_us.filter(|at| *at >= from))? - from)
    }

    /// What is drawn of it in a boot that is followed until `end`, as systemd's own
    /// plot has it: a time that is missing or of an earlier start is that of the step
    /// behind it. `None` for a unit that began later or never.
    pub fn bar(&self, end: u64) -> Option<Bar> {
        let from = self.began().filter(|from| *from <= end)?;
        let within = |at: Option<u64>| at.filter(|at| (from..=end).contains(at));
        let to = within(self.inactive_us).unwrap_or(end);
        let deactivating = within(self.deactivating_us).unwrap_or(to).min(to);
        let active = within(self.active_us).unwrap_or(deactivating).min(deactivating);
        Some(Bar { from, active, deactivating, to })
    }
}

/// The units of an answer that have ever been started, in the order in which they were,
/// with times from `began` (µs of the monotonic clock) on; and how many there was no
/// room for. What is no such block is passed over.
pub fn parse(answer: &str, began: u64) -> (Vec<UnitTimes>, u64) {
    let mut units: Vec<UnitTimes> =
        answer.split("\n\n").filter_map(|block| unit(block, began)).collect();
    units.sort_by(|a, b| (a.began(), &a.name).cmp(&(b.began(), &b.name)));
    // A name that is an alias of another may be told twice.
    units.dedup_by(|a, b| a.name == b.name);
    let skipped = units.len().saturating_sub(MOST) as u64;
    units.truncate(MOST);
    (units, skipped)
}

fn unit(block: &str, began: u64) -> Option<UnitTimes> {
    let mut unit = UnitTimes::default();
    for (key, value) in block.lines().filter_map(|line| line.split_once('=')) {
        // 0 is never.
        let at = || Some(value.parse::<u64>().ok().filter(|at| *at > 0)?.saturating_sub(began));
        match key {
            "Id" => value.clone_into(&mut unit.name),
            "InactiveExitTimestampMonotonic" => unit.activating_us = at(),
            "ActiveEnterTimestampMonotonic" => unit.active_us = at(),
            "ActiveExitTimestampMonotonic" => unit.deactivating_us = at(),
            "InactiveEnterTimestampMonotonic" => unit.inactive_us = at(),
            _ => {}
        }
    }
    let is_name = (1..=LONGEST).contains(&unit.name.len());
    (is_name && unit.began().is_some()).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of a container's systemd 252; made by `fixtures/boot/make.sh`.
    const SHOWN: &str = include_str!("../../../../fixtures/boot/systemctl-show.txt");

    fn times(name: &str, times: [u64; 4]) -> UnitTimes {
        let [activating_us, active_us, deactivating_us, inactive_us] =
            times.map(|at| Some(at).filter(|at| *at > 0));
        UnitTimes { name: name.into(), activating_us, active_us, deactivating_us, inactive_us }
    }

    #[test]
    fn a_systemds_answer_gives_its_started_units_in_their_order() {
        let began = 40_455_600_000;
        let (units, skipped) = parse(SHOWN, began);
        assert_eq!((units.len(), skipped), (UNITS, 0));
        assert!(units.is_sorted_by_key(UnitTimes::began));
        let of = |name: &str| units.iter().find(|unit| unit.name == name).unwrap();
        assert_eq!(
            *of("postgresql@15-main.service"),
            times("postgresql@15-main.service", [169_275, 2_505_752, 0, 0])
        );
        assert_eq!(of("postgresql@15-main.service").took_us(), Some(2_336_477));
        assert!(units.iter().all(|unit| unit.began().is_some_and(|at| at < 10_000_000)));
    }

    /// Units in the answer that were ever started.
    const UNITS: usize = 72;

    #[test]
    fn only_blocks_with_a_name_and_a_time_are_units() {
        let block = |id: &str, at: &str| format!("Id={id}\nActiveEnterTimestampMonotonic={at}\n");
        let long = "x".repeat(256);
        for (answer, expected) in [
            (String::new(), 0),
            ("\n\n\n\n".into(), 0),
            (block("a.service", "0"), 0),
            (block("a.service", "soon"), 0),
            (block("a.service", "-5"), 0),
            (block("a.service", "99999999999999999999"), 0),
            (block("", "5"), 0),
            (block(&long, "5"), 0),
            (block("a=b.service", "5"), 1),
            ("ActiveEnterTimestampMonotonic=5\n".into(), 0),
            ([block("a.service", "5"), block("a.service", "5")].join("\n"), 1),
        ] {
            assert_eq!(parse(&answer, 0).0.len(), expected, "{answer}");
        }
        let many: Vec<String> =
            (0..MOST + 3).map(|i| block(&format!("{i}.service"), "7")).collect();
        let (units, skipped) = parse(&many.join("\n"), 0);
        assert_eq!((units.len(), skipped), (MOST, 3));
    }

    #[test]
    fn a_bar_has_the_steps_that_were_and_stretches_over_those_that_were_not() {
        let bar = |from, active, deactivating, to| Some(Bar { from, active, deactivating, to });
        for (what, unit, expected) in [
            ("still active", times("a", [10, 20, 0, 0]), bar(10, 20, 90, 90)),
            ("ended", times("a", [10, 20, 30, 40]), bar(10, 20, 30, 40)),
            ("still starting", times("a", [10, 0, 0, 0]), bar(10, 90, 90, 90)),
            (
                "has done its work and was never active",
                times("a", [10, 0, 0, 40]),
                bar(10, 40, 40, 40),
            ),
            ("a device", times("a", [0, 20, 0, 0]), bar(20, 20, 90, 90)),
            ("started again", times("a", [50, 60, 30, 40]), bar(50, 60, 90, 90)),
            ("ends after what is followed", times("a", [10, 20, 95, 99]), bar(10, 20, 90, 90)),
            ("starts after it", times("a", [91, 92, 0, 0]), None),
        ] {
            assert_eq!(unit.bar(90), expected, "{what}");
        }
        assert_eq!(times("a", [10, 0, 0, 40]).took_us(), Some(30));
        assert_eq!(times("a", [50, 20, 0, 40]).took_us(), None);
    }

    proptest! {
        #[test]
        fn any_answer_gives_names_and_bars_that_can_be_drawn(
            text in "((Id|InactiveExitTimestampMonotonic|ActiveEnterTimestampMonotonic|ActiveExitTimestampMonotonic|InactiveEnterTimestampMonotonic)=[0-9a.]{0,4}\n|\n|\\PC{0,9}\n){0,40}",
            began in 0u64..9000,
            end in any::<u64>(),
        ) {
            for unit in parse(&text, began).0 {
                prop_assert!((1..=LONGEST).contains(&unit.name.len()));
                if let Some(bar) = unit.bar(end) {
                    prop_assert!(bar.from <= bar.active && bar.active <= bar.deactivating);
                    prop_assert!(bar.deactivating <= bar.to && bar.to <= end);
                }
            }
        }
    }
}
