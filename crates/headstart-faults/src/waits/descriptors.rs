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
    /// Waits of the call that opened it, in [`super::Waits::waits`], until the file is known.
    pub opened_by: Vec<u32>,
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
    fn no_process_has_more_than_the_limit() {
        let mut all = Descriptors::default();
        (0..MOST as i32 + 10).for_each(|number| all.set(1, number, Descriptor::default()));
        all.set(1, -1, Descriptor::default());
        assert_eq!(all.0[&1].len(), MOST);
        assert_eq!(all.get(1, -1), None);
    }
}
