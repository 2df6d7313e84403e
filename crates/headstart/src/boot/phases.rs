//! The phases of a boot: their names, their order, and when each is over. Pure.
//!
//! A phase begins where the one before it ends. Times are microseconds of the kernel's
//! monotonic clock.

use std::collections::HashMap;
use thiserror::Error;

/// What ends a phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Until {
    /// The init process of the machine itself takes over from the initramfs.
    SwitchRoot,
    /// A unit is active.
    Unit(String),
    /// A user has logged in and reading has died down.
    Session,
}

/// A phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Its name, which those of its packs begin with.
    pub name: String,
    /// What ends it.
    pub until: Until,
}

/// The phase that is over when a user has logged in.
pub const SESSION: &str = "session";

/// The unit whose start ends the boot proper.
pub const DEFAULT_TARGET: &str = "default.target";

/// The phases of every boot.
pub fn built_in() -> Vec<Phase> {
    let phase = |name: &str, until| Phase { name: name.into(), until };
    vec![
        phase("initramfs", Until::SwitchRoot),
        phase("mounts", Until::Unit("local-fs.target".into())),
        phase("system", Until::Unit(DEFAULT_TARGET.into())),
        phase(SESSION, Until::Session),
    ]
}

/// A line of the configuration that can't be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "line {line}: {what}; write `phase NAME until UNIT` or `phase NAME until UNIT before PHASE`"
)]
pub struct ConfigError {
    /// Its number, from 1.
    pub line: usize,
    what: &'static str,
}

/// The phases of this machine: those of every boot and those that its configuration
/// names. Each of its lines, but empty ones and those that begin with `#`, is
/// `phase NAME until UNIT [before PHASE]`; without `before` the phase comes right
/// before that of the session.
///
/// # Errors
/// The first line that is none.
pub fn with_config(text: &str) -> Result<Vec<Phase>, ConfigError> {
    let mut phases = built_in();
    for (index, line) in text.lines().enumerate() {
        let wrong = |what| ConfigError { line: index + 1, what };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, unit, before) = match words[..] {
            ["phase", name, "until", unit] => (name, unit, SESSION),
            ["phase", name, "until", unit, "before", before] => (name, unit, before),
            _ => return Err(wrong("this is no phase")),
        };
        if !is_name(name) {
            return Err(wrong("a name has letters, digits, - and _ only"));
        }
        if phases.iter().any(|phase| phase.name == name) {
            return Err(wrong("there is a phase of this name"));
        }
        if !is_unit(unit) {
            return Err(wrong("this is no name of a unit"));
        }
        let at = phases.iter().position(|phase| phase.name == before);
        let at = at.ok_or_else(|| wrong("there is no phase to come before"))?;
        phases.insert(at, Phase { name: name.into(), until: Until::Unit(unit.into()) });
    }
    Ok(phases)
}

/// Whether a phase may be called so: its name becomes that of a file.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (1..=64).contains(&name.len()) && !name.starts_with('-') && name.chars().all(plain)
}

/// Whether this can be the name of a unit (systemd.unit(5)), and no option of systemctl.
fn is_unit(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    name.contains('.') && !name.starts_with('-') && name.len() < 256 && name.chars().all(usual)
}

/// The times of the events that end phases.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Moments {
    /// The boot began: 0, but in a container.
    pub began: u64,
    /// The machine's own init process began.
    pub user_space: Option<u64>,
    /// Units became active.
    pub units: HashMap<String, u64>,
    /// A user had logged in and reading had died down.
    pub session: Option<u64>,
}

/// When a phase began and ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Its begin.
    pub begin: u64,
    /// Its end, no earlier.
    pub end: u64,
}

/// When each phase was; `None` for phases that were not over, or never came. Phases after an
/// unfinished built-in phase are not over either; a configured unit may not be part of this boot,
/// and its phase is skipped.
pub fn spans(phases: &[Phase], moments: &Moments) -> Vec<Option<Interval>> {
    let built_in = built_in();
    let mut begin = Some(moments.began);
    phases
        .iter()
        .map(|phase| {
            let from = begin?;
            let end = match &phase.until {
                Until::SwitchRoot => moments.user_space,
                Until::Unit(unit) => moments.units.get(unit).copied(),
                Until::Session => moments.session,
            };
            let span = end.map(|end| Interval { begin: from, end: end.max(from) });
            begin = match span {
                Some(span) => Some(span.end),
                None if built_in.contains(phase) => None,
                None => Some(from),
            };
            span
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        with_config(text).unwrap().into_iter().map(|phase| phase.name).collect()
    }

    #[test]
    fn a_configured_phase_comes_before_the_session_or_where_it_is_put() {
        for (text, expected) in [
            ("", "initramfs mounts system session"),
            ("# none\n\n", "initramfs mounts system session"),
            ("phase web until nginx.service", "initramfs mounts system web session"),
            (
                "phase greeter until display-manager.service before system\nphase b until b.path",
                "initramfs mounts greeter system b session",
            ),
            (
                "phase b until b.service before system\nphase a until a.service before b\n",
                "initramfs mounts a b system session",
            ),
        ] {
            assert_eq!(names(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn a_line_that_is_no_phase_is_named_with_what_is_wrong() {
        for (text, line, what) in [
            ("phase", 1, "no phase"),
            ("\nfase a until b.service", 2, "no phase"),
            ("phase a until b.service after mounts", 1, "no phase"),
            ("phase ../a until b.service", 1, "letters"),
            ("phase system until b.service", 1, "of this name"),
            ("phase a until b", 1, "no name of a unit"),
            ("phase a until --root=/x.service", 1, "no name of a unit"),
            ("phase a until b.service before c", 1, "to come before"),
        ] {
            let error = with_config(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.to_string().contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn each_phase_lasts_from_the_end_of_the_one_before_it_to_its_own() {
        let phases = with_config("phase web until web.service\nphase no until no.service").unwrap();
        let moments = |units: &[(&str, u64)], session| Moments {
            began: 0,
            user_space: Some(5),
            units: units.iter().map(|(unit, at)| ((*unit).to_owned(), *at)).collect(),
            session,
        };
        let all = [("local-fs.target", 10), (DEFAULT_TARGET, 30), ("web.service", 20)];
        let span = |begin, end| Some(Interval { begin, end });
        for (name, moments, expected) in [
            (
                "a unit that was early, and one that this boot has not",
                moments(&all, Some(50)),
                [span(0, 5), span(5, 10), span(10, 30), span(30, 30), None, span(30, 50)],
            ),
            (
                "nobody logged in",
                moments(&all, None),
                [span(0, 5), span(5, 10), span(10, 30), span(30, 30), None, None],
            ),
            (
                "the target was not reached",
                moments(&all[..1], Some(50)),
                [span(0, 5), span(5, 10), None, None, None, None],
            ),
        ] {
            assert_eq!(spans(&phases, &moments), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn phases_follow_each_other_without_a_hole(
            began in 0u64..50,
            user_space in proptest::option::of(0u64..100),
            units in proptest::collection::vec(proptest::option::of(0u64..100), 3),
            session in proptest::option::of(0u64..100),
        ) {
            let phases = with_config("phase web until web.service before system").unwrap();
            let names = ["local-fs.target", "web.service", DEFAULT_TARGET];
            let units = names.iter().zip(units)
                .filter_map(|(name, at)| Some(((*name).to_owned(), at?)))
                .collect();
            let moments = Moments { began, user_space, units, session };
            let spans = spans(&phases, &moments);
            prop_assert_eq!(spans.len(), phases.len());
            let mut end = began;
            for span in spans.into_iter().flatten() {
                prop_assert_eq!(span.begin, end);
                prop_assert!(span.end >= span.begin);
                end = span.end;
            }
        }

        #[test]
        fn any_configuration_is_taken_or_refused(text in "\\PC{0,40}(\nphase a until [ab./ -]{0,9}){0,2}") {
            if let Ok(phases) = with_config(&text) {
                prop_assert!(phases.iter().all(|phase| is_name(&phase.name)));
            }
        }
    }
}
