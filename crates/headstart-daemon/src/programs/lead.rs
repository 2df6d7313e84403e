//! Programs that lead to another one: a wrapper script that executes the real program, or starts it and
//! waits. A start of the first is then a start of the second, which is prefetched earlier. Pure.

use super::Program;

/// Earlier starts count for so many at most, when it is first seen where a program leads.
const MOST_BEFORE: u32 = 3;
/// From so many starts on, both counts are halved, so that the latest count most.
const HALVED_AT: u32 = 16;

impl Program {
    /// A start of this program led to a slow one, the pack of which has this file name.
    pub fn note_led_to(&mut self, file_name: &str) {
        match &self.leads_to {
            None => {
                let starts = u32::try_from(self.starts).unwrap_or(u32::MAX);
                self.leads_to = Some(file_name.to_owned());
                (self.led, self.led_of) = (1, starts.clamp(1, MOST_BEFORE));
            }
            Some(known) if known == file_name => {
                self.led = self.led.saturating_add(1).min(self.led_of);
            }
            // A start may have several slow programs: the first of them counts.
            Some(_) => {}
        }
    }

    /// Where this program leads, if three of four starts did.
    pub fn leads(&self) -> Option<&str> {
        let usually = self.led.saturating_mul(4) >= self.led_of.saturating_mul(3);
        self.leads_to.as_deref().filter(|_| usually)
    }

    /// One more start, of which is not known yet where it leads.
    pub(super) fn note_may_lead(&mut self) {
        if self.leads_to.is_none() {
            return;
        }
        self.led_of = self.led_of.saturating_add(1);
        if self.led_of >= HALVED_AT {
            (self.led, self.led_of) = (self.led / 2, self.led_of / 2);
        }
        if self.led == 0 {
            self.leads_to = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A program after starts, each of which led to one of this name or nowhere.
    fn after(starts: &[&str]) -> Program {
        let mut program = Program::default();
        for to in starts {
            program.note_start(1);
            if !to.is_empty() {
                program.note_led_to(to);
            }
        }
        program
    }

    #[test]
    fn a_program_leads_where_nearly_all_of_its_starts_led() {
        for (starts, expected) in [
            (&["a"][..], Some("a")),
            (&["a", "a", "a"], Some("a")),
            (&["a", "a", "a", ""], Some("a")),
            (&["a", ""], None),
            (&["", "", "", "a"], None),
            (&["", "", "", "a", "a", "a", "a", "a", "a"], Some("a")),
            (&["a", "b", "a", "a"], Some("a")),
            (&["a", "b", "b"], None),
            (&["", ""], None),
        ] {
            assert_eq!(after(starts).leads(), expected, "{starts:?}");
        }
    }

    #[test]
    fn a_program_that_leads_nowhere_any_more_may_lead_elsewhere_later() {
        let mut starts = vec!["a"];
        starts.extend([""; 64]);
        let program = after(&starts);
        assert_eq!((program.leads(), &program.leads_to), (None, &None));
    }

    proptest! {
        #[test]
        fn no_more_starts_led_somewhere_than_there_were(
            starts in proptest::collection::vec("[ab]?", 0..60)
        ) {
            let starts: Vec<_> = starts.iter().map(String::as_str).collect();
            let program = after(&starts);
            prop_assert!(program.led <= program.led_of && program.led_of < HALVED_AT);
        }
    }
}
