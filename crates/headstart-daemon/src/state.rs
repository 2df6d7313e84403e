//! What the service remembers over restarts, as a file. Pure; `service/keeper` reads and writes it.

use crate::early::model::Model;
use crate::programs::table::{MOST, Table};
use crate::programs::{Id, Program};
use crate::week::Week;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The form of the file.
const SCHEMA: &str = "headstart/daemon-state/1";
/// No state file is larger.
pub const MOST_BYTES: usize = 8 << 20;
/// Names are cut to this, in characters: a program may have any.
const MOST_NAME: usize = 256;

/// What is remembered.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct State {
    /// The programs.
    pub table: Table,
    /// The sums of this week.
    pub week: Week,
    /// What is started after a login, and after what.
    pub model: Model,
}

/// A file that can't be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// It is larger than any that is written.
    #[error("it is larger than {} MiB", MOST_BYTES >> 20)]
    Large,
    /// It is no such document.
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// It is of another version.
    #[error("it is of another version of headstart")]
    Version,
    /// It names what can't be a pack.
    #[error("it names a pack that can't be one")]
    Name,
}

#[derive(Serialize, Deserialize)]
struct Document {
    schema: String,
    week: Week,
    /// Versions before had none.
    #[serde(default)]
    model: Model,
    programs: Vec<(Id, Program)>,
}

/// The file of a state: only programs that are worth remembering are in it.
pub fn encode(state: &State) -> Vec<u8> {
    let kept = state.table.iter().filter(|(_, program)| program.is_remembered());
    let programs = kept.map(|(id, program)| (id.clone(), program.clone())).collect();
    let (week, model) = (state.week, state.model.clone());
    let document = Document { schema: SCHEMA.into(), week, model, programs };
    // Strings and numbers have a form.
    serde_json::to_vec(&document).unwrap_or_default()
}

/// The state in a file.
///
/// # Errors
/// It can't be used.
pub fn decode(bytes: &[u8]) -> Result<State, StateError> {
    if bytes.len() > MOST_BYTES {
        return Err(StateError::Large);
    }
    let Document { schema, week, model, programs } = serde_json::from_slice(bytes)?;
    if schema != SCHEMA {
        return Err(StateError::Version);
    }
    if programs.len() > MOST || !programs.iter().all(|(id, _)| is_file_name(&id.file_name)) {
        return Err(StateError::Name);
    }
    let cut = |(id, program): (Id, Program)| (id, program.with_short_names());
    let model = model.bounded(is_file_name);
    Ok(State { table: programs.into_iter().map(cut).collect(), week, model })
}

/// Whether this is the plain name of a pack file: it becomes a part of a path.
pub(crate) fn is_file_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    name.ends_with(".pack")
        && name.len() <= MOST_NAME
        && !name.starts_with('.')
        && name.chars().all(is_plain)
}

impl Program {
    /// The same with names that are not longer than a line.
    #[must_use]
    pub fn with_short_names(mut self) -> Self {
        for name in [&mut self.name, &mut self.executable, &mut self.forker] {
            if let Some((at, _)) = name.char_indices().nth(MOST_NAME) {
                name.truncate(at);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::early::model::{LOGIN, Open};
    use proptest::prelude::*;

    fn state(programs: &[(&str, Program)]) -> State {
        let id = |name: &str| Id { uid: 7, file_name: name.into() };
        let programs = programs.iter().map(|(name, program)| (id(name), program.clone()));
        let mut model = Model::default();
        model.occurs(&mut Open::default(), 7, LOGIN, 5, 6);
        let week = Week { since: 9, saved_us: 3, ..Week::default() };
        State { table: programs.collect(), week, model }
    }

    #[test]
    fn only_what_is_worth_remembering_survives_the_file() {
        let slow = Program { cold_starts: 2, name: "\u{1b}ä".into(), ..Program::default() };
        let hot = Program { starts: 9, ..Program::default() };
        let quiet = Program { quiet_until_ms: 5, ..slow.clone() };
        let written = state(&[("a.pack", slow.clone()), ("b.pack", hot), ("c.pack", quiet)]);
        let read = decode(&encode(&written)).unwrap();
        assert_eq!(read, state(&[("a.pack", slow.clone()), ("c.pack", slow)]));
    }

    #[test]
    fn a_file_that_is_not_one_of_ours_is_refused_in_one_line() {
        let with = |text: &str, other: &str| {
            let slow = Program { cold_starts: 1, ..Program::default() };
            let file = String::from_utf8(encode(&state(&[("a.pack", slow)]))).unwrap();
            assert!(file.contains(text), "{file}");
            file.replace(text, other)
        };
        for (file, why) in [
            (String::new(), "damaged"),
            ("[]".into(), "damaged"),
            ("[".repeat(100_000), "damaged"),
            (with("state/1", "state/2"), "another version"),
            (with("\"uid\":7", "\"uid\":-7"), "damaged"),
            (with("a.pack", "../a.pack"), "can't be one"),
            (with("a.pack", ".pack"), "can't be one"),
            (with("a.pack", "passwd"), "can't be one"),
            (" ".repeat(MOST_BYTES + 1), "larger than 8 MiB"),
        ] {
            let error = decode(file.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn a_file_of_the_version_before_has_no_model() {
        let slow = Program { cold_starts: 1, ..Program::default() };
        let written = state(&[("a.pack", slow)]);
        let file = String::from_utf8(encode(&written)).unwrap();
        let model = serde_json::to_string(&written.model).unwrap();
        let old = file.replace(&format!("\"model\":{model},"), "");
        assert!(old.len() < file.len());
        assert_eq!(decode(old.as_bytes()).unwrap(), State { model: Model::default(), ..written });
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let program = Program { name: "ä".repeat(999), ..Program::default() }.with_short_names();
        assert_eq!(program.name, "ä".repeat(MOST_NAME));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn figures_survive_the_file(
            saved_us: u64, cold_starts in 1u64.., learned_at: u64, useless_until: u64, pinned: bool
        ) {
            let program =
                Program { saved_us, cold_starts, learned_at, useless_until, pinned, ..Program::default() };
            let state = state(&[("a.pack", program)]);
            prop_assert_eq!(decode(&encode(&state)).unwrap(), state);
        }
    }
}
