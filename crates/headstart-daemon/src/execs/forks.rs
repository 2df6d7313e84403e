//! Which processes fork and then do another job without exec, such as a zygote, a server that loads its
//! program before it forks, or Python's fork server. The driver.
//!
//! All forks that are no threads are recorded (`task_newtask`) and looked at twice a second: whether a child
//! reads from a disk, others find out. Children of programs that are known for that ([`Forkers`]) are
//! reported at once, and when they take another name (`task_rename`).

use super::buffers::Buffers;
use super::{Exec, Seen};
use headstart::trace::format::Field;
use headstart::trace::tracefs::{TraceError, Tracefs};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// What the instances are called among ours.
const LABEL_ALL: &str = "forks";
const LABEL_KNOWN: &str = "jobs";
pub(super) const FORK: (&str, &str) = ("task", "task_newtask");
const RENAME: (&str, &str) = ("task", "task_rename");
/// `CLONE_THREAD`, and `CLONE_VFORK`, after which exec follows (clone(2)).
const NO_FORK: &str = "!(clone_flags & 0x10000) && !(clone_flags & 0x4000)";
/// The buffer of each CPU, in KiB: hundreds of forks.
const BUFFER_KB: u32 = 16;
/// How often forks are looked at, in nanoseconds, as what follows.
const LOOK: u64 = 500_000_000;
/// How old a child is when it is reported.
const AGES: [u64; 2] = [500_000_000, 2_500_000_000];
const MINUTE: u64 = 60_000_000_000;
/// Children of parents with one name that are reported in a minute.
const MOST_OF_ONE: u32 = 20;
/// Children that are waited for, and names that are counted.
const MOST_WAITING: usize = 512;
/// Known programs that fork.
const MOST_FORKERS: usize = 16;
/// Bytes of a name in `comm`, with the zero byte.
const COMM: usize = 16;

/// What the kernel calls the programs whose children do slow jobs.
#[derive(Clone, Debug, Default)]
pub struct Forkers(Arc<Mutex<(Vec<String>, bool)>>);

impl Forkers {
    /// One more, if there is room for it.
    pub fn add(&self, comm: &str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
        let is_name = !comm.is_empty() && comm.len() < COMM && comm.bytes().all(is_plain);
        let is_new = names.0.len() < MOST_FORKERS && !names.0.iter().any(|known| known == comm);
        if is_name && is_new {
            names.0.push(comm.to_owned());
            names.1 = true;
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }

    /// All of them, if there are new ones.
    fn changed(&self) -> Option<Vec<String>> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut names.1).then(|| names.0.clone())
    }
}

/// The instances, and which children are waited for.
#[derive(Debug)]
pub(super) struct Forks {
    all: Buffers,
    known: Buffers,
    pid: Field,
    comm: Field,
    due: u64,
    waiting: Waiting,
    forkers: Forkers,
}

impl Forks {
    /// Makes the instances.
    ///
    /// # Errors
    /// This can't be traced here.
    pub(super) fn start(tracefs: &Tracefs, forkers: Forkers) -> Result<Self, TraceError> {
        let failed = |_| TraceError::NoEvents;
        let all = Buffers::create(tracefs, LABEL_ALL, BUFFER_KB).map_err(failed)?;
        let known = Buffers::create(tracefs, LABEL_KNOWN, BUFFER_KB).map_err(failed)?;
        // Twice a second is enough.
        all.instance.wake_at(100)?;
        let [pid, comm] = all.fields(FORK, ["pid", "comm"])?;
        if known.fields(RENAME, ["pid"])? != [pid.clone()] {
            return Err(TraceError::NoEvents);
        }
        all.instance.set_filter(FORK.0, FORK.1, NO_FORK)?;
        all.instance.enable(FORK.0, FORK.1)?;
        Ok(Self { all, known, pid, comm, due: 0, waiting: Waiting::default(), forkers })
    }

    /// Wakes when a child of a known program is there.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.known.fd()
    }

    /// Appends the children that are to be looked at.
    ///
    /// # Errors
    /// The kernel refuses to hand them out.
    pub(super) fn read(&mut self, now: u64, out: &mut Vec<Exec>) -> io::Result<()> {
        if let Some(names) = self.forkers.changed() {
            self.follow(&names);
        }
        let Self { all, known, pid, comm, waiting, .. } = self;
        let number = |record: &[u8]| pid.read(record).and_then(|pid| u32::try_from(pid).ok());
        known.drain(|at, record| {
            out.extend(number(record).map(|pid| Exec { pid, at, seen: Seen::Fork }));
        })?;
        if now < self.due {
            return Ok(());
        }
        self.due = now.saturating_add(LOOK);
        // A storm of forks is of programs that are executed often.
        all.drain(|at, record| {
            let name = record.get(comm.offset..comm.offset + comm.size).unwrap_or_default();
            number(record).into_iter().for_each(|pid| waiting.add(pid, name, at));
        })?;
        waiting.take(now, out);
        Ok(())
    }

    /// Reports children of programs with these names at once. Without that they are found later.
    fn follow(&self, names: &[String]) {
        let is = |field: &str| {
            let terms: Vec<_> = names.iter().map(|name| format!("{field} == \"{name}\"")).collect();
            terms.join(" || ")
        };
        let instance = &self.known.instance;
        for ((group, event), filter) in
            [(FORK, format!("({}) && {NO_FORK}", is("comm"))), (RENAME, is("oldcomm"))]
        {
            if instance.set_filter(group, event, &filter).is_ok() {
                let _ = instance.enable(group, event);
            }
        }
    }
}

/// Children that are waited for until they are old enough. Pure.
#[derive(Debug, Default)]
struct Waiting {
    /// With the time of the fork, and how often they were reported.
    children: VecDeque<(u32, u64, usize)>,
    minute: u64,
    counts: HashMap<Box<[u8]>, u32>,
}

impl Waiting {
    fn add(&mut self, pid: u32, comm: &[u8], at: u64) {
        if self.minute != at / MINUTE {
            self.minute = at / MINUTE;
            self.counts.clear();
        }
        if self.counts.len() >= MOST_WAITING && !self.counts.contains_key(comm) {
            return;
        }
        let count = self.counts.entry(comm.into()).or_default();
        *count += 1;
        if *count <= MOST_OF_ONE && self.children.len() < MOST_WAITING {
            self.children.push_back((pid, at, 0));
        }
    }

    fn take(&mut self, now: u64, out: &mut Vec<Exec>) {
        self.children.retain_mut(|(pid, at, reports)| {
            let is_due = |age: &&u64| now.saturating_sub(*at) >= **age;
            if AGES.get(*reports).filter(is_due).is_some() {
                *reports += 1;
                out.push(Exec { pid: *pid, at: *at, seen: Seen::Fork });
            }
            *reports < AGES.len()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_reported_when_it_is_old_enough_and_once_more() {
        let mut waiting = Waiting::default();
        waiting.add(7, b"zygote", 1);
        let mut reported = |now| {
            let mut out = Vec::new();
            waiting.take(now, &mut out);
            out.len()
        };
        let [first, second] = AGES;
        assert_eq!(reported(first), 0);
        assert_eq!(reported(first + 1), 1);
        assert_eq!(reported(second), 0);
        assert_eq!(reported(second + 1), 1);
        assert_eq!(reported(u64::MAX), 0);
    }

    #[test]
    fn of_one_name_few_children_are_reported_in_a_minute_and_few_are_waited_for() {
        let mut waiting = Waiting::default();
        (0..100).for_each(|pid| waiting.add(pid, b"sh", 1));
        assert_eq!(waiting.children.len(), MOST_OF_ONE as usize);
        (0..9000).for_each(|pid: u32| waiting.add(pid, &pid.to_ne_bytes(), 1));
        assert_eq!((waiting.children.len(), waiting.counts.len()), (MOST_WAITING, MOST_WAITING));
        waiting.children.clear();
        waiting.add(7, b"sh", 1 + MINUTE);
        assert_eq!((waiting.children.len(), waiting.counts.len()), (1, 1), "the next minute");
    }

    #[test]
    fn names_of_programs_that_fork_are_plain_and_few() {
        let forkers = Forkers::default();
        assert_eq!(forkers.changed(), None);
        for name in ["zygote", "zygote", "", "a\" || 1", "a-name-that-is-too-long"] {
            forkers.add(name);
        }
        assert_eq!((forkers.changed(), forkers.changed()), (Some(vec!["zygote".into()]), None));
        (0..99).for_each(|number| forkers.add(&number.to_string()));
        assert_eq!(forkers.changed().map(|names| names.len()), Some(MOST_FORKERS));
    }
}
