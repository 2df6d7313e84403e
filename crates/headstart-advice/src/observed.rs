//! What the rules need of a recording: first touches of file pages by part of a file, and how
//! densely anonymous memory is used. Copies of pages that were mapped are in the tables alone.

use headstart_faults::recording::{Cause, End, Fault, Mapping, Object, Recording};
use headstart_faults::tables::{Segment, Sum};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of a page in a recording: all rules count in these.
pub const PAGE: u64 = 4096;

/// A fault on a page that was not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The process, in the recording's list.
    pub process: u32,
    /// The page of the file.
    pub page: u64,
    /// How long it took, in ns.
    pub latency: u64,
    /// Whether it waited for I/O.
    pub is_major: bool,
}

/// A part of a file, with its touches in the order of their time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The file.
    pub path: PathBuf,
    /// Which part.
    pub segment: Segment,
    /// Its touches.
    pub touches: Vec<Touch>,
}

/// A touch, and the one before it in the same part and process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Pages from the one before to this one.
    pub pages: i64,
    /// The touch.
    pub touch: Touch,
}

/// A fault that takes so long, in ns, has waited: also a minor one, if its page was in flight.
const WAIT: u64 = 80_000;

impl Touch {
    /// Whether it waited, for I/O of its own or of another.
    pub fn is_wait(&self) -> bool {
        self.is_major || self.latency >= WAIT
    }
}

impl Part {
    /// Major faults, each with its distance from the major one before it. The first has none.
    pub fn major_steps(&self) -> Vec<Step> {
        self.steps(|touch| touch.is_major)
    }

    /// Likewise of all faults that waited.
    pub fn waited_steps(&self) -> Vec<Step> {
        self.steps(Touch::is_wait)
    }

    fn steps(&self, is_meant: impl Fn(&Touch) -> bool) -> Vec<Step> {
        let mut last = HashMap::new();
        let meant = self.touches.iter().filter(|touch| is_meant(touch));
        let step = |touch: &Touch| {
            let before: u64 = last.insert(touch.process, touch.page)?;
            Some(Step { pages: touch.page.wrapping_sub(before).cast_signed(), touch: *touch })
        };
        meant.filter_map(step).collect()
    }

    /// How many bytes of it are read at least, if each touch maps so many bytes around it.
    pub fn bytes(&self, around: u64) -> u64 {
        let mut windows: Vec<_> = self.touches.iter().map(|t| t.page * PAGE / around).collect();
        windows.sort_unstable();
        windows.dedup();
        windows.len() as u64 * around
    }
}

/// Whether a step goes to the pages right below, which readahead of a fault does not cover.
pub fn is_backward(step: &Step) -> bool {
    (-16..0).contains(&step.pages)
}

/// Whether it goes on where readahead of so many pages has ended.
pub fn is_sequential(step: &Step, readahead: u64) -> bool {
    step.pages > 0 && step.pages.cast_unsigned() <= readahead.saturating_mul(2)
}

/// The sum of touches.
pub fn sum<'a>(touches: impl IntoIterator<Item = &'a Touch>) -> Sum {
    let mut sum = Sum::default();
    for touch in touches {
        sum.count += 1;
        sum.time_ns = sum.time_ns.saturating_add(touch.latency);
    }
    sum
}

/// First touches of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// Parts of files.
    pub parts: Vec<Part>,
    /// Faults in anonymous memory that mapped small pages: for each process and each part of its
    /// address space as large as a huge page.
    pub anonymous: Vec<Sum>,
}

impl Observed {
    /// Of a recording; `huge` is the size of a huge page in bytes.
    pub fn of(recording: &Recording, huge: u64) -> Self {
        let mut parts: BTreeMap<(u32, Segment), Vec<Touch>> = BTreeMap::new();
        let mut anonymous: HashMap<(u32, u64), Sum> = HashMap::new();
        for fault in recording.faults.iter().filter(|fault| is_first_touch(fault)) {
            let Some(mapping) = recording.mapping(fault.mapping) else { continue };
            let process = recording.owner(fault).map_or(0, |(thread, _)| thread.process);
            match mapping.object {
                Object::File => {
                    let key = (mapping.name, Segment::of(mapping));
                    parts.entry(key).or_default().push(touch(fault, mapping, process));
                }
                Object::Anonymous | Object::Heap if !fault.is_huge && !mapping.is_shared => {
                    let region = fault.address / huge.max(PAGE);
                    let sum = anonymous.entry((process, region)).or_default();
                    sum.count += 1;
                    sum.time_ns = sum.time_ns.saturating_add(fault.latency);
                }
                _ => {}
            }
        }
        let part = |((name, segment), touches)| Part {
            path: OsStr::from_bytes(recording.name(name)).into(),
            segment,
            touches,
        };
        Self {
            parts: parts.into_iter().map(part).collect(),
            anonymous: anonymous.into_values().collect(),
        }
    }
}

fn touch(fault: &Fault, mapping: &Mapping, process: u32) -> Touch {
    Touch {
        process,
        page: mapping.offset_of(fault.address) / PAGE,
        latency: fault.latency,
        is_major: fault.end == End::Major,
    }
}

fn is_first_touch(fault: &Fault) -> bool {
    fault.end.is_known() && matches!(fault.cause, Cause::NotMapped | Cause::Unknown)
}
