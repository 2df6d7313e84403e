//! What the descriptors of processes are, as far as it follows from the calls that were recorded.

use std::collections::HashMap;
use std::rc::Rc;

/// What a descriptor is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptor {
    /// Which file, in [`super::Waits::files`]; `None` until a call tells.
    pub file: Option<u32>,
    /// Whether it is a pipe, a socket or the like.
    pub is_other: bool,
    /// Whether execve(2) keeps it open.
    pub is_kept: bool,
    /// Waits of the call that opened it, in [`super::Waits::waits`], until the file is known.
    pub opened_by: Vec<u32>,
}

/// A descriptor of a process that runs already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Its number.
    pub number: i32,
    /// What /proc says that it is: a path, or `pipe:[7]` and the like.
    pub link: Vec<u8>,
    /// Whether execve(2) keeps it open.
    pub is_kept: bool,
}

/// Of a process, more are not followed.
const MOST: usize = 4096;

/// The descriptors of all processes.
#[derive(Clone, Debug, Default)]
pub struct Descriptors(HashMap<i32, Rc<HashMap<i32, Descriptor>>>);

impl Descriptors {
    /// What one is.
    pub fn get(&self, pid: i32, number: i32) -> Option<&Descriptor> {
        self.0.get(&pid)?.get(&number)
    }

    /// A descriptor is new, or another than before.
    pub fn set(&mut self, pid: i32, number: i32, descriptor: Descriptor) {
        let all = Rc::make_mut(self.0.entry(pid).or_default());
        if number >= 0 && (all.len() < MOST || all.contains_key(&number)) {
            all.insert(number, descriptor);
        }
    }

    /// One is the same as another now. If that is not known, this isn't either.
    pub fn copy(&mut self, pid: i32, old: i32, new: i32, is_kept: bool) {
        match self.get(pid, old).cloned() {
            Some(known) => self.set(pid, new, Descriptor { is_kept, ..known }),
            None => self.close(pid, new),
        }
    }

    /// Whether execve(2) keeps one open has changed.
    pub fn keep(&mut self, pid: i32, number: i32, is_kept: bool) {
        if let Some(known) = self.get(pid, number).filter(|known| known.is_kept != is_kept) {
            let known = Descriptor { is_kept, ..known.clone() };
            self.set(pid, number, known);
        }
    }

    /// The process executes a program: what is not kept open is closed.
    pub fn execute(&mut self, pid: i32) {
        self.retain(pid, |_, known| known.is_kept);
    }

    /// Those from the first to the last were closed.
    pub fn close_range(&mut self, pid: i32, first: u32, last: u32) {
        self.retain(pid, |number, _| !(first..=last).contains(&number.unsigned_abs()));
    }

    fn retain(&mut self, pid: i32, is_open: impl Fn(i32, &Descriptor) -> bool) {
        if let Some(all) = self.0.get_mut(&pid)
            && !all.iter().all(|(number, known)| is_open(*number, known))
        {
            Rc::make_mut(all).retain(|number, known| is_open(*number, known));
        }
    }

    /// It was closed.
    pub fn close(&mut self, pid: i32, number: i32) {
        if let Some(all) = self.0.get_mut(&pid).filter(|all| all.contains_key(&number)) {
            Rc::make_mut(all).remove(&number);
        }
    }

    /// The file of one is known now; the waits of the call that opened it. Nothing if it was known.
    pub fn learn(&mut self, pid: i32, number: i32, file: u32) -> Vec<u32> {
        match self.get(pid, number) {
            Some(known) if known.file.is_some() => return Vec::new(),
            Some(_) => {}
            // Opened before the recording, or passed by another process.
            None => self.set(pid, number, Descriptor::default()),
        }
        let Some(all) = self.0.get_mut(&pid) else { return Vec::new() };
        let Some(known) = Rc::make_mut(all).get_mut(&number) else { return Vec::new() };
        known.file = Some(file);
        known.is_other = false;
        std::mem::take(&mut known.opened_by)
    }

    /// A child has those of its parent.
    pub fn fork(&mut self, parent: i32, child: i32) {
        match self.0.get(&parent).cloned() {
            Some(all) => self.0.insert(child, all),
            None => self.0.remove(&child),
        };
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: i32) {
        self.0.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_what_it_was_opened_as_until_it_is_closed_and_a_child_has_its_own() {
        let mut all = Descriptors::default();
        all.set(1, 3, Descriptor { opened_by: vec![5], ..Descriptor::default() });
        all.fork(1, 2);
        assert_eq!(all.learn(1, 3, 7), [5]);
        assert!(all.learn(1, 3, 8).is_empty());
        assert_eq!(all.get(1, 3).unwrap().file, Some(7));
        assert_eq!(all.get(2, 3).unwrap().file, None);
        all.close(1, 3);
        assert_eq!((all.get(1, 3), all.get(2, 3).is_some()), (None, true));
        all.forget(2);
        assert_eq!(all.get(2, 3), None);
        assert!(all.learn(9, 4, 1).is_empty() && all.get(9, 4).unwrap().file == Some(1));
    }

    #[test]
    fn a_copy_of_what_is_not_known_is_not_known_and_a_program_has_what_is_kept_open() {
        let mut all = Descriptors::default();
        let open =
            |file, is_kept| Descriptor { file: Some(file), is_kept, ..Descriptor::default() };
        (0..6).for_each(|number| all.set(1, number, open(number as u32, number < 3)));
        all.copy(1, 9, 0, true);
        all.copy(1, 5, 1, true);
        all.keep(1, 4, true);
        all.fork(1, 2);
        all.execute(1);
        let files = |all: &Descriptors, pid| -> Vec<_> {
            (0..6).map(|number| all.get(pid, number).and_then(|known| known.file)).collect()
        };
        assert_eq!(files(&all, 1), [None, Some(5), Some(2), None, Some(4), None]);
        all.close_range(2, 2, u32::MAX);
        assert_eq!(files(&all, 2), [None, Some(5), None, None, None, None]);
    }

    #[test]
    fn no_process_has_more_than_the_limit() {
        let mut all = Descriptors::default();
        (0..MOST as i32 + 10).for_each(|number| all.set(1, number, Descriptor::default()));
        all.set(1, -1, Descriptor::default());
        assert_eq!(all.0[&1].len(), MOST);
        assert_eq!(all.get(1, -1), None);
    }
}
