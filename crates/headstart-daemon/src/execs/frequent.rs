//! Which names are executed so often that their files are in memory anyway, such as a shell or the
//! parts of a compiler: the kernel does not report them for a while, and they cost nothing. Pure:
//! times are given. Names are bytes that any user may choose.

use std::collections::HashMap;

/// A name that is executed this often within [`WINDOW`] is ignored.
const OFTEN: u32 = 64;
/// In nanoseconds, as what follows.
const WINDOW: u64 = 60_000_000_000;
/// How long it is ignored.
const IGNORED_FOR: u64 = 600_000_000_000;
/// Between two changes of the filter, each of which takes the kernel some milliseconds.
const BETWEEN: u64 = 2_000_000_000;
/// Names that are counted.
const MOST_COUNTED: usize = 1024;
/// Names in a filter, which the kernel compares one by one, and bytes of each: together they are
/// less than a page, the most that a filter may have.
const MOST_IGNORED: usize = 32;
const LONGEST: usize = 96;

/// Counts names, and says which are ignored.
#[derive(Debug, Default)]
pub struct Frequent {
    window_began: u64,
    counts: HashMap<Box<[u8]>, u32>,
    /// With the time until which it is.
    ignored: Vec<(Box<[u8]>, u64)>,
    has_changed: bool,
    may_change_at: u64,
}

impl Frequent {
    /// A program was executed by this name.
    pub fn note(&mut self, name: &[u8], now: u64) {
        if now.saturating_sub(self.window_began) >= WINDOW {
            self.counts.clear();
            self.window_began = now;
        }
        if let Some(count) = self.counts.get_mut(name) {
            *count = count.saturating_add(1);
            let is_new = *count == OFTEN && self.ignored.iter().all(|(known, _)| **known != *name);
            if is_new && self.ignored.len() < MOST_IGNORED {
                self.ignored.push((name.into(), now.saturating_add(IGNORED_FOR)));
                self.has_changed = true;
            }
        } else if self.counts.len() < MOST_COUNTED && may_be_in_a_filter(name) {
            self.counts.insert(name.into(), 1);
        }
    }

    /// The kernel's filter (Documentation/trace/events.rst) for the field `filename`, if it is another
    /// one now, and one may be set.
    pub fn new_filter(&mut self, now: u64) -> Option<String> {
        let before = self.ignored.len();
        self.ignored.retain(|(_, until)| *until > now);
        self.has_changed |= self.ignored.len() < before;
        if !self.has_changed || now < self.may_change_at {
            return None;
        }
        self.has_changed = false;
        self.may_change_at = now.saturating_add(BETWEEN);
        let differs = |(name, _): &(Box<[u8]>, u64)| {
            format!("filename != \"{}\"", String::from_utf8_lossy(name))
        };
        let terms: Vec<String> = self.ignored.iter().map(differs).collect();
        // A single 0 removes the filter.
        Some(if terms.is_empty() { "0".into() } else { terms.join(" && ") })
    }
}

/// Whether it is an absolute name with nothing that means something in a filter.
fn may_be_in_a_filter(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(byte);
    name.len() <= LONGEST && name.starts_with(b"/") && name.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn note(frequent: &mut Frequent, name: &str, times: u32, now: u64) {
        for _ in 0..times {
            frequent.note(name.as_bytes(), now);
        }
    }

    #[test]
    fn what_is_executed_often_is_ignored_for_a_while() {
        let mut frequent = Frequent::default();
        note(&mut frequent, "/bin/sh", OFTEN - 1, 1);
        assert_eq!(frequent.new_filter(1), None);
        note(&mut frequent, "/bin/sh", 1, 1 + WINDOW);
        assert_eq!(frequent.new_filter(1 + WINDOW), None, "not within a minute");
        let now = 2 * WINDOW;
        note(&mut frequent, "/bin/sh", 2 * OFTEN, now);
        note(&mut frequent, "sh", OFTEN, now);
        note(&mut frequent, "/bin/a\" || 1 || \"", OFTEN, now);
        assert_eq!(frequent.new_filter(now), Some("filename != \"/bin/sh\"".into()));
        assert_eq!(frequent.new_filter(now), None, "it is set");
        note(&mut frequent, "/bin/ls", OFTEN, now);
        assert_eq!(frequent.new_filter(now + BETWEEN - 1), None, "too early");
        let both = "filename != \"/bin/sh\" && filename != \"/bin/ls\"";
        assert_eq!(frequent.new_filter(now + BETWEEN), Some(both.into()));
        assert_eq!(frequent.new_filter(now + IGNORED_FOR), Some("0".into()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_filter_fits_in_a_page_and_has_the_names_and_nothing_else(
            names in prop::collection::vec("[a-z/\" |&]{1,120}", 1..80),
        ) {
            let mut frequent = Frequent::default();
            for name in &names {
                note(&mut frequent, &format!("/{name}"), OFTEN, 1);
            }
            let filter = frequent.new_filter(1).unwrap_or_default();
            prop_assert!(filter.len() < 4096);
            for term in filter.split(" && ").filter(|term| !term.is_empty()) {
                let name = term.strip_prefix("filename != \"").and_then(|t| t.strip_suffix('"'));
                prop_assert!(name.is_some_and(|name| names.contains(&name[1..].to_owned())));
            }
            prop_assert!(frequent.counts.len() <= MOST_COUNTED);
        }
    }
}
