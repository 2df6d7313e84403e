//! What a start waited for, by cause and by file, from its waits and what was requested when. Pure;
//! records nothing.
//!
//! A page that is late, missing or ready does not say how long the program waited: a fault on a page that
//! is in flight is minor, and waits. This does.

use crate::host::id::InodeId;
use crate::host::json_path::JsonPath;
use crate::host::range::ByteRange;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::PathBuf;

/// Files that are named, those that were waited for longest first.
pub const MAX_FILES: usize = 100;

/// What was waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// Pages of a file, here in bytes if that is known.
    Pages(PathBuf, Option<u64>),
    /// Names, inodes or directories: open(2), stat(2) and the like.
    Names,
    /// A CPU.
    Cpu {
        /// Whether a thread that prefetches ran meanwhile.
        by_replay: bool,
    },
    /// Something else.
    Other,
    /// That is not known.
    Unexplained,
}

/// A wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitSpan {
    /// When it began, in ns of the monotonic clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// For what.
    pub what: WaitFor,
}

/// What was requested of a file, each with its time in ns of the monotonic clock.
pub type RequestsOf = HashMap<PathBuf, Vec<(ByteRange, u64)>>;

/// Where the time of a start went, in µs. All but `files` add up to `wall_us`, up to one µs for each.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Waited {
    /// All of it.
    pub wall_us: u64,
    /// On a CPU.
    pub cpu_us: u64,
    /// For pages that were not requested.
    pub not_requested_us: u64,
    /// For pages that were requested after the program needed them.
    pub too_late_us: u64,
    /// For pages that had been requested and were not there yet.
    pub in_flight_us: u64,
    /// For names, inodes and directories.
    pub names_us: u64,
    /// For a CPU on which threads that prefetch ran.
    pub replay_cpu_us: u64,
    /// For a CPU on which others ran.
    pub other_cpu_us: u64,
    /// For something else: time, threads that were not recorded, pipes, memory.
    pub other_us: u64,
    /// That is not known.
    pub unexplained_us: u64,
    /// The files that were waited for.
    pub files: Vec<WaitedFile>,
    /// Files for which there was no room.
    pub files_skipped: u64,
}

/// What was waited for a file, in µs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WaitedFile {
    /// Its path.
    #[serde(flatten)]
    pub path: JsonPath,
    /// As in [`Waited`].
    pub not_requested_us: u64,
    /// Likewise.
    pub too_late_us: u64,
    /// Likewise.
    pub in_flight_us: u64,
}

impl WaitedFile {
    /// All of it.
    pub fn us(&self) -> u64 {
        let sum = self.not_requested_us.saturating_add(self.too_late_us);
        sum.saturating_add(self.in_flight_us)
    }
}

/// Sums in ns.
#[derive(Clone, Copy, Default)]
struct Pages {
    not_requested: u64,
    too_late: u64,
    in_flight: u64,
}

impl Pages {
    fn all(&self) -> u64 {
        self.not_requested.saturating_add(self.too_late).saturating_add(self.in_flight)
    }

    /// Adds a wait for a page that was requested then, if it was.
    fn add(&mut self, wait: &WaitSpan, requested: Option<u64>) {
        let ns = wait.end.saturating_sub(wait.start);
        let sum = match requested {
            None => &mut self.not_requested,
            Some(at) if at <= wait.start => &mut self.in_flight,
            Some(_) => &mut self.too_late,
        };
        *sum = sum.saturating_add(ns);
    }
}

impl Waited {
    /// That of a start of `wall` ns, of which `cpu` ns were on a CPU.
    pub fn of(wall: u64, cpu: u64, waits: &[WaitSpan], requests: &RequestsOf) -> Self {
        let mut files: HashMap<&PathBuf, (Pages, Earliest)> = HashMap::new();
        let (mut pages, [mut names, mut replay, mut others, mut other, mut unknown]) =
            (Pages::default(), [0u64; 5]);
        for wait in waits {
            let sum = match &wait.what {
                WaitFor::Pages(path, offset) => {
                    let (of_file, earliest) = files.entry(path).or_insert_with(|| {
                        let requests = requests.get(path).map_or(&[][..], Vec::as_slice);
                        (Pages::default(), Earliest::of(requests))
                    });
                    let requested = earliest.at(*offset);
                    pages.add(wait, requested);
                    of_file.add(wait, requested);
                    continue;
                }
                WaitFor::Names => &mut names,
                WaitFor::Cpu { by_replay: true } => &mut replay,
                WaitFor::Cpu { by_replay: false } => &mut others,
                WaitFor::Other => &mut other,
                WaitFor::Unexplained => &mut unknown,
            };
            *sum = sum.saturating_add(wait.end.saturating_sub(wait.start));
        }
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by_key(|(path, (pages, _))| (Reverse(pages.all()), *path));
        let us = |ns: u64| ns / 1000;
        Self {
            wall_us: us(wall),
            cpu_us: us(cpu),
            not_requested_us: us(pages.not_requested),
            too_late_us: us(pages.too_late),
            in_flight_us: us(pages.in_flight),
            names_us: us(names),
            replay_cpu_us: us(replay),
            other_cpu_us: us(others),
            other_us: us(other),
            unexplained_us: us(unknown),
            files_skipped: files.len().saturating_sub(MAX_FILES) as u64,
            files: files
                .into_iter()
                .take(MAX_FILES)
                .map(|(path, (pages, _))| WaitedFile {
                    path: path.as_path().into(),
                    not_requested_us: us(pages.not_requested),
                    too_late_us: us(pages.too_late),
                    in_flight_us: us(pages.in_flight),
                })
                .collect(),
        }
    }

    /// For pages of files.
    pub fn pages_us(&self) -> u64 {
        let sum = self.not_requested_us.saturating_add(self.too_late_us);
        sum.saturating_add(self.in_flight_us)
    }
}

/// When each part of a file was requested first: disjoint parts, by their begin.
#[derive(Default)]
struct Earliest(Vec<(ByteRange, u64)>);

impl Earliest {
    fn of(requests: &[(ByteRange, u64)]) -> Self {
        let mut sorted: Vec<_> =
            requests.iter().filter(|(range, _)| range.offset < range.end).collect();
        sorted.sort_by_key(|(range, _)| range.offset);
        let mut ends: Vec<u64> =
            sorted.iter().flat_map(|(range, _)| [range.offset, range.end]).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut next = sorted.into_iter().peekable();
        // Those that have begun, the earliest request on top.
        let mut begun = BinaryHeap::new();
        let mut parts: Vec<(ByteRange, u64)> = Vec::new();
        for (begin, end) in ends.iter().zip(ends.iter().skip(1)) {
            while let Some((range, at)) = next.next_if(|(range, _)| range.offset <= *begin) {
                begun.push(Reverse((*at, range.end)));
            }
            while begun.peek().is_some_and(|Reverse((_, end))| end <= begin) {
                begun.pop();
            }
            let Some(Reverse((at, _))) = begun.peek() else { continue };
            match parts.last_mut() {
                Some((last, of_last)) if last.end == *begin && of_last == at => last.end = *end,
                _ => parts.push((ByteRange { offset: *begin, end: *end }, *at)),
            }
        }
        Self(parts)
    }

    /// That of a place; without one, that of any.
    fn at(&self, offset: Option<u64>) -> Option<u64> {
        let Some(offset) = offset else { return self.0.iter().map(|(_, at)| *at).min() };
        let behind = self.0.partition_point(|(range, _)| range.offset <= offset);
        let (range, at) = self.0.get(behind.checked_sub(1)?)?;
        (offset < range.end).then_some(*at)
    }
}

/// Requests of one file by several names, such as hard links, as requests of the first of them; and the names
/// by inodes. `inode` says which inode a name leads to, if that can be known.
pub fn by_inode(
    requests: &RequestsOf,
    inode: impl Fn(&PathBuf) -> Option<InodeId>,
) -> (RequestsOf, HashMap<InodeId, PathBuf>) {
    let mut names: Vec<_> = requests.keys().collect();
    names.sort();
    let (mut joined, mut paths) = (RequestsOf::new(), HashMap::new());
    for name in names {
        let first = match inode(name) {
            Some(id) => paths.entry(id).or_insert_with(|| name.clone()),
            None => name,
        };
        joined.entry(first.clone()).or_default().extend_from_slice(&requests[name]);
    }
    (joined, paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wait(start: u64, end: u64, what: WaitFor) -> WaitSpan {
        WaitSpan { start, end, what }
    }

    fn pages(path: &str, offset: u64) -> WaitFor {
        WaitFor::Pages(path.into(), Some(offset))
    }

    #[test]
    fn the_cause_follows_from_when_the_page_was_requested() {
        let range = |offset, length| ByteRange::of(offset, length);
        let requests = RequestsOf::from([(
            "/a".into(),
            vec![
                (range(0, 8192), 50_000),
                (range(4096, 8192), 20_000),
                (range(65536, 4096), 95_000),
            ],
        )]);
        for (path, offset, expected) in [
            ("/a", Some(0), [0, 0, 10]),
            ("/a", Some(8000), [0, 0, 10]),
            ("/a", Some(65536), [0, 10, 0]),
            ("/a", Some(12288), [10, 0, 0]),
            ("/a", None, [0, 0, 10]),
            ("/b", Some(0), [10, 0, 0]),
        ] {
            let what = WaitFor::Pages(path.into(), offset);
            let waited = Waited::of(30_000, 20_000, &[wait(90_000, 100_000, what)], &requests);
            let found = [waited.not_requested_us, waited.too_late_us, waited.in_flight_us];
            assert_eq!(found, expected, "{path} {offset:?}");
            assert_eq!(waited.files[0].us(), 10);
        }
    }

    #[test]
    fn requests_by_two_names_of_a_file_are_requests_of_one() {
        let dev = crate::host::id::Dev::new(8, 1);
        let request = |offset, at| vec![(ByteRange::of(offset, 4096), at)];
        let requests = RequestsOf::from([
            ("/b".into(), request(0, 10)),
            ("/a".into(), request(4096, 20)),
            ("/other".into(), request(0, 30)),
            ("/unknown".into(), request(0, 40)),
        ]);
        let inode = |path: &PathBuf| match path.to_str().unwrap() {
            "/a" | "/b" => Some(InodeId { dev, ino: 7 }),
            "/other" => Some(InodeId { dev, ino: 8 }),
            _ => None,
        };
        let (joined, paths) = by_inode(&requests, inode);
        assert_eq!(paths[&InodeId { dev, ino: 7 }], PathBuf::from("/a"));
        assert_eq!(joined[&PathBuf::from("/a")].len(), 2);
        assert_eq!((joined.len(), paths.len()), (3, 2));
    }

    #[test]
    fn files_that_were_waited_for_longest_come_first_and_others_are_counted() {
        let mut waits: Vec<_> = (0..MAX_FILES as u64 + 3)
            .map(|at| wait(0, 1000 * (at + 1), pages(&format!("/{at:03}"), 0)))
            .collect();
        waits.push(wait(0, 500_000, pages("/000", 0)));
        let waited = Waited::of(1, 0, &waits, &RequestsOf::new());
        assert_eq!((waited.files.len(), waited.files_skipped), (MAX_FILES, 3));
        assert_eq!((waited.files[0].path.shown(), waited.files[0].us()), ("/000".into(), 501));
    }

    proptest! {
        #[test]
        fn a_place_was_requested_when_the_first_of_its_requests_was(
            requests in proptest::collection::vec((0u64..40, 0u64..12, 0u64..9), 0..30), offset in 0u64..60,
        ) {
            let requests: Vec<_> = requests
                .into_iter()
                .map(|(offset, length, at)| (ByteRange::of(offset, length), at))
                .collect();
            let here = requests.iter().filter(|(range, _)| range.offset <= offset && offset < range.end);
            let earliest = Earliest::of(&requests);
            prop_assert_eq!(earliest.at(Some(offset)), here.map(|(_, at)| *at).min());
            prop_assert!(earliest.0.is_sorted_by(|(a, _), (b, _)| a.end <= b.offset));
        }

        #[test]
        fn the_parts_are_the_whole(
            parts in proptest::collection::vec((0u64..1_000_000, 0u8..6), 0..50), cpu in 0u64..99_999,
        ) {
            let mut at = cpu;
            let waits: Vec<_> = parts.into_iter().map(|(ns, what)| {
                let start = at;
                at += ns;
                wait(start, at, match what {
                    0 => pages("/a", 7),
                    1 => WaitFor::Names,
                    2 => WaitFor::Cpu { by_replay: true },
                    3 => WaitFor::Cpu { by_replay: false },
                    4 => WaitFor::Other,
                    _ => WaitFor::Unexplained,
                })
            }).collect();
            let waited = Waited::of(at, cpu, &waits, &RequestsOf::new());
            let sum = waited.cpu_us + waited.pages_us() + waited.names_us + waited.replay_cpu_us
                + waited.other_cpu_us + waited.other_us + waited.unexplained_us;
            prop_assert!(sum <= waited.wall_us && sum + 9 >= waited.wall_us);
        }
    }
}
