//! Which names are executed so often that their files are in memory anyway, such as a shell or the
//! parts of a compiler: the kernel does not report them for a while, and they cost nothing. Those that
//! read from a disk nevertheless are reported by `reads`. Pure: times are given. Names are
//! bytes that any user may choose.

use std::collections::HashMap;

/// A name that is executed this often within [`WINDOW`] is ignored.
const OFTEN: u32 = 20;
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
/// Bytes of a name in `comm` (`TASK_COMM_LEN` without the zero byte).
const COMM: usize = 15;

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

    /// What the kernel is to ignore, if it is something else now, and may be set.
    pub fn new_filter(&mut self, now: u64) -> Option<Ignored> {
        let before = self.ignored.len();
        self.ignored.retain(|(_, until)| *until > now);
        self.has_changed |= self.ignored.len() < before;
        if !self.has_changed || now < self.may_change_at {
            return None;
        }
        self.has_changed = false;
        self.may_change_at = now.saturating_add(BETWEEN);
        let text = |(name, _): &(Box<[u8]>, u64)| String::from_utf8_lossy(name).into_owned();
        Some(Ignored(self.ignored.iter().map(text).collect()))
    }
}

/// Names that are ignored: absolute ones, with no characters that mean something in a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ignored(Vec<String>);

impl Ignored {
    /// The kernel's filter (Documentation/trace/events.rst) for the field `filename`.
    pub fn filter(&self) -> String {
        let differs = |name: &String| format!("filename != \"{name}\"");
        let terms: Vec<String> = self.0.iter().map(differs).collect();
        // A single 0 removes the filter.
        if terms.is_empty() { "0".into() } else { terms.join(" && ") }
    }

    /// What the kernel calls their processes (`comm`).
    pub fn comms(&self) -> impl Iterator<Item = &str> {
        let last = |name: &'_ String| name.rfind('/').map_or(0, |at| at + 1);
        let called = self.0.iter().map(move |name| &name[last(name)..]);
        called.filter(|name| !name.is_empty()).map(|name| &name[..name.len().min(COMM)])
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
        let mut filter = |note: &dyn Fn(&mut Frequent), now| {
            note(&mut frequent);
            frequent.new_filter(now).map(|ignored| ignored.filter())
        };
        assert_eq!(filter(&|f| note(f, "/bin/sh", OFTEN - 1, 1), 1), None);
        let later = 1 + WINDOW;
        assert_eq!(filter(&|f| note(f, "/bin/sh", 1, later), later), None, "not within a minute");
        let now = 2 * WINDOW;
        let many = |frequent: &mut Frequent| {
            note(frequent, "/bin/sh", 2 * OFTEN, now);
            note(frequent, "sh", OFTEN, now);
            note(frequent, "/bin/a\" || 1 || \"", OFTEN, now);
        };
        assert_eq!(filter(&many, now), Some("filename != \"/bin/sh\"".into()));
        assert_eq!(filter(&|_| (), now), None, "it is set");
        let early = now + BETWEEN - 1;
        assert_eq!(filter(&|f| note(f, "/bin/ls", OFTEN, now), early), None, "too early");
        let both = "filename != \"/bin/sh\" && filename != \"/bin/ls\"";
        assert_eq!(filter(&|_| (), now + BETWEEN), Some(both.into()));
        assert_eq!(filter(&|_| (), now + IGNORED_FOR), Some("0".into()));
    }

    #[test]
    fn a_process_is_called_by_the_first_bytes_of_the_last_part_of_its_name() {
        let names = ["/usr/bin/python3", "/x/a-long-name-of-it", "/x/", "/"];
        let ignored = Ignored(names.map(String::from).to_vec());
        assert_eq!(ignored.comms().collect::<Vec<_>>(), ["python3", "a-long-name-of-"]);
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
            let filter = frequent.new_filter(1).map(|ignored| ignored.filter()).unwrap_or_default();
            prop_assert!(filter.len() < 4096);
            for term in filter.split(" && ").filter(|term| !term.is_empty()) {
                let name = term.strip_prefix("filename != \"").and_then(|t| t.strip_suffix('"'));
                prop_assert!(name.is_some_and(|name| names.contains(&name[1..].to_owned())));
            }
            prop_assert!(frequent.counts.len() <= MOST_COUNTED);
        }
    }
}
