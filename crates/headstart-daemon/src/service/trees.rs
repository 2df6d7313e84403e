//! Which start a process belongs to: what a program executes within its start is a part of that, as
//! with `headstart run`. Processes are known by what called exec; between them may be a few that did not.

use crate::programs::Id;
use crate::started::Started;
use headstart::host::contents;
use headstart::host::proc;
use headstart::pack::key::Key;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Processes that are remembered.
const MOST: usize = 512;
/// Ancestors of a process that are looked at.
const GENERATIONS: usize = 3;

/// A start that is prefetched or recorded.
#[derive(Debug)]
pub(super) struct Tree {
    /// Whose start it is.
    pub(super) id: Id,
    /// The program that led to it, if its exec was that of another one.
    pub(super) by: Option<Id>,
    /// The program's own exec, once it came: at once, or after that of a program that leads to it.
    own: Mutex<Option<(Key, Started)>>,
    is_over: AtomicBool,
}

/// What began a start.
#[derive(Clone, Debug)]
pub(super) enum Root {
    /// One that is watched: this program, which may lead to others.
    Watched(Id),
    /// One that is handled.
    Handled(Arc<Tree>),
}

/// A process of a start.
#[derive(Clone, Debug)]
struct Member {
    pid: u32,
    start_time: u64,
    /// When the start began, in milliseconds of the monotonic clock.
    began_ms: u64,
    root: Root,
}

/// The processes of the latest starts.
#[derive(Debug, Default)]
pub(super) struct Trees(VecDeque<Member>);

impl Tree {
    pub(super) fn new(id: Id, by: Option<Id>) -> Arc<Self> {
        Arc::new(Self { id, by, own: Mutex::default(), is_over: AtomicBool::new(false) })
    }

    /// The program itself was executed; whether this is its first exec.
    pub(super) fn came(&self, key: Key, started: Started) -> bool {
        let mut own = self.lock();
        let is_first = own.is_none();
        own.get_or_insert((key, started));
        is_first
    }

    /// The program's own exec, if it came.
    pub(super) fn own(&self) -> Option<(Key, Started)> {
        self.lock().clone()
    }

    /// If it was begun by a child without an exec, and that now executes a program, it had only waited for
    /// that: the start is none, and over. Whether that is so.
    pub(super) fn is_undone_by(&self, exec: &Started) -> bool {
        let mut own = self.lock();
        let is_process = |own: &Started| (own.pid, own.start_time) == (exec.pid, exec.start_time);
        let is_it =
            !exec.is_job && own.as_ref().is_some_and(|(_, own)| own.is_job && is_process(own));
        if is_it {
            *own = None;
            self.end();
        }
        is_it
    }

    /// Nothing is prefetched or recorded any more.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether what is executed within this start is a part of it. It goes on, and a program in a container is
    /// none of what starts containers: another image has other files.
    pub(super) fn has(&self, started: &Started) -> bool {
        let is_in_image = || self.own().is_some_and(|(_, own)| own.is_in_image);
        !self.is_over() && (!started.is_in_image || is_in_image())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Key, Started)>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trees {
    /// The start that this process belongs to, if that began within this time; and when, in
    /// milliseconds of the monotonic clock.
    pub(super) fn of(
        &self,
        started: &Started,
        now_ms: u64,
        within: Duration,
    ) -> Option<(Root, u64)> {
        let is_new = |member: &&Member| {
            Duration::from_millis(now_ms.saturating_sub(member.began_ms)) < within
        };
        if !self.0.iter().any(|member| is_new(&member)) {
            return None;
        }
        let is_it =
            |member: &Member| (member.pid, member.start_time) == (started.pid, started.start_time);
        let mut parent = started.parent;
        let mut found = self.0.iter().find(|member| is_it(member) && is_new(member));
        for _ in 0..GENERATIONS {
            if found.is_some() || parent <= 1 {
                break;
            }
            found = self.0.iter().find(|member| member.pid == parent && is_new(member));
            parent = if found.is_some() { 0 } else { parent_of(parent) };
        }
        found.map(|member| (member.root.clone(), member.began_ms))
    }

    /// Remembers a process of a start that began then.
    pub(super) fn join(&mut self, started: &Started, began_ms: u64, root: Root) {
        let Started { pid, start_time, .. } = *started;
        self.0.truncate(MOST - 1);
        self.0.push_front(Member { pid, start_time, began_ms, root });
    }
}

fn parent_of(pid: u32) -> u32 {
    let stat = contents::bytes(format!("/proc/{pid}/stat")).unwrap_or_default();
    proc::parse_parent(&stat).and_then(|parent| u32::try_from(parent).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    /// This process as another one.
    fn process(pid: u32, start_time: u64, parent: u32) -> Started {
        let own = Started::read(std::process::id()).unwrap();
        Started { pid, start_time, parent, ..own }
    }

    fn id(name: &str) -> Id {
        Id { uid: 0, file_name: name.into() }
    }

    fn watched(found: Option<(Root, u64)>) -> Option<(String, u64)> {
        found.map(|(root, began)| match root {
            Root::Watched(id) => (id.file_name, began),
            Root::Handled(tree) => (format!("handled {}", tree.id.file_name), began),
        })
    }

    #[test]
    fn a_process_belongs_to_the_start_that_it_or_a_parent_began_a_short_time_ago() {
        // No process has such a number.
        let (a, b) = (u32::MAX - 1, u32::MAX - 2);
        let mut trees = Trees::default();
        trees.join(&process(a, 7, 1), 1000, Root::Watched(id("a")));
        trees.join(&process(b, 8, a), 1000, Root::Handled(Tree::new(id("b"), Some(id("a")))));
        let own = std::process::id();
        trees.join(&process(own, 1, 1), 1000, Root::Watched(id("own")));
        for (name, started, now_ms, expected) in [
            ("the same process", process(a, 7, 1), 5000, Some("a")),
            ("another one of its number", process(a, 9, 1), 5000, None),
            ("a child", process(5, 9, a), 5000, Some("a")),
            ("a child of a child", process(5, 9, b), 5000, Some("handled b")),
            ("too late", process(5, 9, a), 11_000, None),
            ("a child of nobody", process(5, 9, 1), 5000, None),
            ("an orphan", process(5, 9, 0), 5000, None),
        ] {
            let expected = expected.map(|name| (name.to_owned(), 1000));
            assert_eq!(watched(trees.of(&started, now_ms, WITHIN)), expected, "{name}");
        }
        // A shell between them, which calls no exec.
        let mut shell = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = trees.of(&process(5, 9, shell.id()), 5000, WITHIN);
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(watched(found), Some(("own".into(), 1000)));
    }

    #[test]
    fn only_the_latest_processes_are_remembered() {
        let mut trees = Trees::default();
        for pid in 0..=MOST as u32 {
            trees.join(&process(1_000_000 + pid, 1, 1), 1000, Root::Watched(id("a")));
        }
        assert_eq!(trees.0.len(), MOST);
        assert!(trees.of(&process(1_000_000, 1, 1), 1000, WITHIN).is_none());
    }

    #[test]
    fn the_first_exec_of_the_program_itself_counts() {
        let tree = Tree::new(id("a"), None);
        assert!(tree.own().is_none() && !tree.is_over());
        let key = Key::of_name("a");
        assert!(tree.came(key.clone(), process(1, 2, 3)));
        assert!(!tree.came(key, process(4, 5, 6)));
        assert_eq!(tree.own().map(|(_, own)| own.pid), Some(1));
        tree.end();
        assert!(tree.is_over());
    }

    #[test]
    fn a_child_that_was_taken_for_a_job_and_executes_a_program_was_none() {
        let job = Started { is_job: true, ..process(4, 5, 1) };
        for (began, executed, expected) in [
            (&job, process(4, 5, 1), true),
            (&job, job.clone(), false),
            (&job, process(6, 7, 4), false),
            (&process(4, 5, 1), process(4, 5, 1), false),
        ] {
            let tree = Tree::new(id("a"), None);
            tree.came(Key::of_name("a"), began.clone());
            assert_eq!(tree.is_undone_by(&executed), expected);
            assert_eq!((tree.is_over(), tree.own().is_none()), (expected, expected));
        }
    }

    #[test]
    fn a_program_in_a_container_is_no_part_of_the_start_of_what_starts_containers() {
        let outside = process(1, 2, 3);
        let inside = Started { is_in_image: true, ..process(4, 5, 1) };
        for (begins, executed, expected) in [
            (&outside, &outside, true),
            (&outside, &inside, false),
            (&inside, &inside, true),
            (&inside, &outside, true),
        ] {
            let tree = Tree::new(id("a"), None);
            tree.came(Key::of_name("a"), begins.clone());
            assert_eq!(tree.has(executed), expected);
            tree.end();
            assert!(!tree.has(executed));
        }
    }
}
