//! Sums of a recording: in total, by place, by process and by thread. Formats nothing.

use crate::recording::{Cause, End, Fault, Mapping, Object, Recording};
use crate::sections::Sections;
use headstart::host::id::InodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Faults of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// How long they took, in ns.
    pub time_ns: u64,
}

/// Faults with something in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Row {
    /// Without I/O.
    pub minor: Sum,
    /// With I/O.
    pub major: Sum,
    /// Without an end.
    pub unended: u64,
    /// Of which the end was lost.
    pub end_lost: u64,
    /// Of minor and major ones, those that copied a page of a private mapping (copy-on-write).
    pub copied: u64,
    /// Those that replaced the zero page.
    pub zero_page: u64,
    /// Those after which a huge page is mapped, as far as that was recorded.
    pub huge: u64,
}

impl Row {
    fn add(&mut self, fault: &Fault) {
        let sum = match fault.end {
            End::Minor => &mut self.minor,
            End::Major => &mut self.major,
            End::None => {
                self.unended += 1;
                return;
            }
            End::Lost => {
                self.end_lost += 1;
                return;
            }
        };
        sum.count += 1;
        sum.time_ns = sum.time_ns.saturating_add(fault.latency);
        self.copied += u64::from(fault.cause == Cause::Copy);
        self.zero_page += u64::from(fault.cause == Cause::ZeroPage);
        self.huge += u64::from(fault.is_huge);
    }

    /// The time of all.
    pub fn time_ns(&self) -> u64 {
        self.minor.time_ns.saturating_add(self.major.time_ns)
    }
}

/// The part of a file that a mapping is, by what may be done with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Segment {
    /// May be executed.
    Text,
    /// May be read only.
    Rodata,
    /// May be written, and others do not see that.
    Data,
    /// May be written, and others see that.
    Shared,
}

impl Segment {
    /// That of a mapping of a file.
    pub fn of(mapping: &Mapping) -> Self {
        if mapping.is_executable() {
            Self::Text
        } else if !mapping.is_writable() {
            Self::Rodata
        } else if mapping.is_shared {
            Self::Shared
        } else {
            Self::Data
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Rodata => "rodata",
            Self::Data => "data",
            Self::Shared => "shared",
        }
    }
}

/// Where a fault was.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Place {
    /// In a file.
    File {
        /// Its name, in [`Recording::names`].
        name: u32,
        /// Which mapping.
        segment: Segment,
        /// Its section; empty where there is none.
        section: String,
    },
    /// In memory that is no file.
    Memory(Object),
    /// In what the kernel names: in [`Recording::names`].
    Special(u32),
    /// Where nothing is known to be mapped: before the mapping was reported, or by mremap(2).
    Unknown,
}

/// The sections of files, by their names in [`Recording::names`] and what the kernel says they are.
pub type SectionsOf = HashMap<(u32, InodeId), Sections>;

/// Where a fault was. The second is the offset in the file.
pub fn place(recording: &Recording, sections: &SectionsOf, fault: &Fault) -> (Place, Option<u64>) {
    let Some(mapping) = recording.mapping(fault.mapping) else { return (Place::Unknown, None) };
    let of_file = |mapping: &Mapping, section: Option<&str>| Place::File {
        name: mapping.name,
        segment: Segment::of(mapping),
        section: section.unwrap_or_default().to_owned(),
    };
    match mapping.object {
        Object::File => {
            let offset = mapping.offset_of(fault.address);
            let section = sections.get(&mapping.key()).and_then(|sections| {
                // Where nothing of the file is written, its bytes behind the data are other sections.
                let zeros = || sections.zeros_at(offset).filter(|_| mapping.is_data());
                sections.at(offset).or_else(zeros)
            });
            (of_file(mapping, section), Some(offset))
        }
        Object::Special => (Place::Special(mapping.name), None),
        object => {
            let bss = recording.mapping(fault.behind).and_then(|file| {
                let sections = sections.get(&file.key())?;
                Some(of_file(file, Some(sections.zeros_at(file.offset_of(fault.address))?)))
            });
            (bss.unwrap_or(Place::Memory(object)), None)
        }
    }
}

/// How latencies are distributed, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Spread {
    /// Half are shorter.
    pub median_ns: u64,
    /// 99 % are shorter.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Spread {
    fn of(mut latencies: Vec<u64>) -> Self {
        latencies.sort_unstable();
        let at = |share: usize| latencies.get(latencies.len() * share / 100).copied();
        let max_ns = latencies.last().copied().unwrap_or(0);
        let share = |percent| at(percent).unwrap_or(max_ns);
        Self { median_ns: share(50), p99_ns: share(99), max_ns }
    }
}

/// All sums.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tables {
    /// All faults.
    pub total: Row,
    /// Latencies of minor faults.
    pub minor: Spread,
    /// Latencies of major faults.
    pub major: Spread,
    /// By place, those that took longest first.
    pub places: Vec<(Place, Row)>,
    /// By process, in [`Recording::processes`], likewise.
    pub processes: Vec<(u32, Row)>,
    /// By thread, in [`Recording::threads`], likewise.
    pub threads: Vec<(u32, Row)>,
}

impl Tables {
    /// Those of a recording.
    pub fn of(recording: &Recording, sections: &SectionsOf) -> Self {
        let (mut places, mut processes, mut threads) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut total = Row::default();
        for fault in &recording.faults {
            let place = place(recording, sections, fault).0;
            let process = recording.owner(fault).map_or(0, |(thread, _)| thread.process);
            for row in [
                &mut total,
                places.entry(place).or_default(),
                processes.entry(process).or_default(),
                threads.entry(fault.thread).or_default(),
            ] {
                row.add(fault);
            }
        }
        let latencies = |end| {
            let of_kind = recording.faults.iter().filter(|fault| fault.end == end);
            Spread::of(of_kind.map(|fault| fault.latency).collect())
        };
        let (minor, major) = (latencies(End::Minor), latencies(End::Major));
        Self {
            total,
            minor,
            major,
            places: longest_first(places),
            processes: longest_first(processes),
            threads: longest_first(threads),
        }
    }
}

/// Those of the longest time first.
fn longest_first<K>(rows: BTreeMap<K, Row>) -> Vec<(K, Row)> {
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.time_ns()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Process, Thread};
    use headstart::host::id::Dev;

    fn fault(address: u64, mapping: Option<u32>, latency: u64, end: End) -> Fault {
        Fault {
            time: 1,
            latency,
            end,
            cause: Cause::Copy,
            is_huge: latency == 7,
            thread: 0,
            ip: 0,
            address,
            mapping,
            behind: (mapping == Some(1)).then_some(0),
        }
    }

    const FILE: InodeId = InodeId { dev: Dev::new(8, 1), ino: 7 };

    fn recording() -> Recording {
        let file = Mapping {
            object: Object::File,
            name: 0,
            start: 0x7000,
            offset: 0x1000,
            protection: 3,
            is_shared: false,
            file: FILE,
        };
        let memory = Mapping { object: Object::Anonymous, name: 1, start: 0x8000, ..file };
        Recording {
            faults: vec![
                fault(0x7010, Some(0), 5, End::Minor),
                fault(0x8010, Some(1), 7, End::Minor),
                fault(0x9000, Some(1), 100, End::Major),
                fault(0x5, None, 0, End::None),
                fault(0x5, None, 0, End::Lost),
            ],
            mappings: vec![file, memory],
            names: vec![b"/a".to_vec(), b"//anon".to_vec()],
            processes: vec![Process { pid: 1, name: 0 }],
            threads: vec![Thread { tid: 1, process: 0, name: 0 }],
            ..Recording::default()
        }
    }

    #[test]
    fn faults_are_summed_by_section_and_memory_behind_a_file_is_its_bss() {
        let section = |name: &str, kind, offset, size| headstart_elf::image::sections::Section {
            name: name.into(),
            kind,
            flags: 3,
            address: 0,
            offset,
            size,
            link: 0,
        };
        let headers = [section(".data", 1, 0x1000, 0x800), section(".bss", 8, 0x1800, 0x1000)];
        let sections = SectionsOf::from([((0, FILE), Sections::new(&headers))]);
        let tables = Tables::of(&recording(), &sections);
        let places: Vec<_> = tables.places.iter().map(|(place, _)| place.clone()).collect();
        let file = |section: &str| Place::File {
            name: 0,
            segment: Segment::Data,
            section: section.to_owned(),
        };
        let expected =
            [Place::Memory(Object::Anonymous), file(".bss"), file(".data"), Place::Unknown];
        assert_eq!(places, expected);
        assert_eq!(tables.total.minor, Sum { count: 2, time_ns: 12 });
        assert_eq!(tables.total.major, Sum { count: 1, time_ns: 100 });
        let total = tables.total;
        assert_eq!((total.unended, total.end_lost, total.copied, total.huge), (1, 1, 3, 1));
        assert_eq!((tables.processes.len(), tables.threads[0].1), (1, total));
        assert_eq!(tables.minor, Spread { median_ns: 7, p99_ns: 7, max_ns: 7 });
    }

    #[test]
    fn only_what_is_written_for_itself_has_zeros_behind_the_data_and_of_that_very_file() {
        let header = headstart_elf::image::sections::Section {
            name: ".bss".into(),
            kind: 8,
            flags: 3,
            address: 0,
            offset: 0x1000,
            size: 0x800,
            link: 0,
        };
        let sections = SectionsOf::from([((0, FILE), Sections::new(&[header]))]);
        let replaced = InodeId { ino: 8, ..FILE };
        for (protection, is_shared, file, expected) in [
            (3, false, FILE, ".bss"),
            (1, false, FILE, ""),
            (3, true, FILE, ""),
            (3, false, replaced, ""),
        ] {
            let mut recording = recording();
            let mapping = Mapping { protection, is_shared, file, ..recording.mappings[0] };
            recording.mappings[0] = mapping;
            let (found, offset) = place(&recording, &sections, &recording.faults[0]);
            let segment = Segment::of(&mapping);
            let section = expected.to_owned();
            assert_eq!((found, offset), (Place::File { name: 0, segment, section }, Some(0x1010)));
        }
    }

    #[test]
    fn without_sections_the_file_alone_is_known() {
        let tables = Tables::of(&recording(), &SectionsOf::new());
        let place = |wanted: &Place| tables.places.iter().any(|(place, _)| place == wanted);
        let of_file = Place::File { name: 0, segment: Segment::Data, section: String::new() };
        assert!(place(&of_file) && place(&Place::Memory(Object::Anonymous)));
    }

    #[test]
    fn a_segment_follows_from_the_permissions() {
        let mapping = recording().mappings[0];
        for (protection, is_shared, segment) in [
            (1, false, Segment::Rodata),
            (3, false, Segment::Data),
            (3, true, Segment::Shared),
            (5, false, Segment::Text),
            (7, true, Segment::Text),
        ] {
            assert_eq!(Segment::of(&Mapping { protection, is_shared, ..mapping }), segment);
        }
    }
}
