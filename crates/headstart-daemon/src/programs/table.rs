//! All programs that are known, bounded. Pure.

use super::{Id, Program};
use std::collections::{BTreeMap, HashMap};

/// Programs that are kept.
pub const MOST: usize = 4096;
/// A full table is emptied to this.
const EMPTIED_TO: usize = MOST / 8 * 7;

/// The programs.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Table {
    programs: BTreeMap<Id, Program>,
    /// How many of the programs with each executable are remembered.
    known: HashMap<String, usize>,
}

impl Table {
    /// What is known of a program.
    pub fn get(&self, id: &Id) -> Option<&Program> {
        self.programs.get(id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &Program)> {
        self.programs.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.programs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }

    /// Whether some program with this executable is worth remembering.
    pub fn knows_executable(&self, executable: &str) -> bool {
        self.known.contains_key(executable)
    }

    /// Changes a program, which is made if it is not there. Returns those that are forgotten to
    /// make room, and that have a pack.
    pub fn change(
        &mut self,
        id: &Id,
        new: impl FnOnce() -> Program,
        change: impl FnOnce(&mut Program),
    ) -> Vec<Id> {
        let is_new = !self.programs.contains_key(id);
        let forgotten = if is_new { self.make_room() } else { Vec::new() };
        let program = self.programs.entry(id.clone()).or_insert_with(new);
        let was = (!is_new && program.is_remembered()).then(|| program.executable.clone());
        change(program);
        let is = program.is_remembered().then(|| program.executable.clone());
        self.count(was, is);
        forgotten
    }

    /// Forgets a program.
    pub fn remove(&mut self, id: &Id) -> Option<Program> {
        let program = self.programs.remove(id)?;
        self.count(program.is_remembered().then(|| program.executable.clone()), None);
        Some(program)
    }

    /// The executable of a program that was remembered, and of one that is.
    fn count(&mut self, was: Option<String>, is: Option<String>) {
        if was == is {
            return;
        }
        if let Some(count) = was.as_ref().and_then(|was| self.known.get_mut(was)) {
            *count -= 1;
        }
        if let Some(is) = is {
            *self.known.entry(is).or_default() += 1;
        }
        was.filter(|was| self.known.get(was) == Some(&0)).map(|was| self.known.remove(&was));
    }

    /// Forgets those of least value if it is full: first what was never slow, by the time of the
    /// last start, then by what they saved. Pinned ones stay as long as there are others.
    fn make_room(&mut self) -> Vec<Id> {
        if self.programs.len() < MOST {
            return Vec::new();
        }
        let value = |program: &Program| {
            let Program { pinned, saved_us, started_at, .. } = program;
            (*pinned, program.is_remembered(), *saved_us, *started_at)
        };
        let mut order: Vec<_> =
            self.programs.iter().map(|(id, program)| (value(program), id.clone())).collect();
        order.sort_unstable();
        order.truncate(self.programs.len() - EMPTIED_TO);
        let had_pack = |id: &Id| self.remove(id).is_some_and(|program| program.learned > 0);
        order.into_iter().map(|(_, id)| id).filter(had_pack).collect()
    }
}

impl FromIterator<(Id, Program)> for Table {
    fn from_iter<I: IntoIterator<Item = (Id, Program)>>(programs: I) -> Self {
        let mut table = Self::default();
        for (id, program) in programs.into_iter().take(MOST) {
            table.change(&id, || program, |_| ());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> Id {
        Id { uid: 0, file_name: format!("{number}.pack") }
    }

    fn add(table: &mut Table, number: usize, program: Program) -> Vec<Id> {
        table.change(&id(number), || program, |_| ())
    }

    #[test]
    fn a_full_table_forgets_what_was_never_slow_and_then_what_saved_least() {
        let mut table = Table::default();
        for number in 0..MOST {
            let learned = u64::from(number % 2 == 0);
            let pinned = number == 0;
            let saved_us = number as u64;
            let program = Program { learned, saved_us, pinned, ..Program::default() };
            assert_eq!(add(&mut table, number, program), []);
        }
        let without_pack = add(&mut table, MOST, Program { learned: 1, ..Program::default() });
        assert_eq!((without_pack, table.len()), (vec![], EMPTIED_TO + 1));
        // Nothing but learned ones.
        let learned = (0..MOST).map(|number| {
            let saved_us = number as u64;
            (
                id(number),
                Program { learned: 1, saved_us, pinned: number == 0, ..Program::default() },
            )
        });
        let mut table: Table = learned.collect();
        let forgotten = add(&mut table, MOST, Program::default());
        assert_eq!(forgotten.len(), MOST - EMPTIED_TO);
        assert!(table.get(&id(0)).is_some(), "it is pinned");
        assert!(table.get(&id(1)).is_none() && table.get(&id(MOST - 1)).is_some());
    }

    #[test]
    fn an_executable_is_known_as_long_as_one_of_its_programs_is() {
        let mut table = Table::default();
        let program = || Program { executable: "/bin/sh".into(), ..Program::default() };
        table.change(&id(1), program, |_| ());
        assert!(!table.knows_executable("/bin/sh"));
        for number in [1, 2] {
            table.change(&id(number), program, |program| program.cold_starts += 1);
        }
        table.remove(&id(1));
        assert!(table.knows_executable("/bin/sh"));
        table.remove(&id(2));
        assert!(!table.knows_executable("/bin/sh") && table.is_empty());
        // A pack that was found says nothing of the executable; a start does.
        table.change(&id(3), Program::default, |program| program.note_found(1));
        table.change(&id(3), Program::default, |program| program.executable = "/bin/sh".into());
        assert!(table.knows_executable("/bin/sh") && !table.knows_executable(""));
    }
}
