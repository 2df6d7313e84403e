//! `/proc/PID/maps` and `/proc/PID/smaps`: which pages of files a process has mapped. Pure.

use super::residency::page_size;
use crate::host::id::{Dev, InodeId};
use crate::host::range::PageRange;
use std::collections::HashMap;

/// A line of `/proc/PID/maps`: one mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Area {
    /// First address.
    pub(super) start: u64,
    /// The mapped part of the file, in pages.
    pub(super) pages: PageRange,
    /// The file.
    pub(super) file: InodeId,
}

impl Area {
    /// Whether any of the wanted pages are in it.
    pub(super) fn overlaps(&self, wanted: &HashMap<InodeId, Vec<PageRange>>) -> bool {
        wanted
            .get(&self.file)
            .is_some_and(|ranges| ranges.iter().any(|range| !range.within(self.pages).is_empty()))
    }
}

/// The lines of such a text.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// One mapping: `start-end perms offset major:minor inode path`, all but the
/// inode in hexadecimal (proc_pid_maps(5)).
pub(super) fn parse_area(line: &[u8]) -> Option<Area> {
    // The path can hold any bytes; what comes before it cannot.
    let mut fields = line.splitn(6, |&byte| byte == b' ').map(|f| std::str::from_utf8(f).ok());
    let mut field = || fields.next().flatten();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let _permissions = field()?;
    let first = hex(field()?)? / page_size();
    let (major, minor) = field()?.split_once(':')?;
    let dev = Dev::new(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let ino = field()?.parse().ok()?;
    let end = first.checked_add(end.checked_sub(start)?.div_ceil(page_size()))?;
    Some(Area { start, pages: PageRange { first, end }, file: InodeId { dev, ino } })
}

/// From `/proc/PID/smaps`: for each wanted file of which pages are mapped, how
/// many and whether any are locked. Private copies of pages are not counted:
/// they are the process's own memory.
pub fn parse_smaps(
    text: &[u8],
    wanted: &HashMap<InodeId, Vec<PageRange>>,
) -> HashMap<InodeId, (u64, bool)> {
    let mut files: HashMap<InodeId, (u64, bool)> = HashMap::new();
    let (mut file, mut resident) = (None, 0);
    for line in lines(text) {
        if let Some(area) = parse_area(line) {
            file = area.overlaps(wanted).then_some(area.file);
            continue;
        }
        let (Some(file), Ok(line)) = (file, std::str::from_utf8(line)) else { continue };
        let Some((key, value)) = line.split_once(':') else { continue };
        let bytes = || {
            let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
            kib.checked_mul(1024)
        };
        match key {
            "Rss" => resident = bytes().unwrap_or(0),
            "Anonymous" => {
                let pages = resident.saturating_sub(bytes().unwrap_or(0)) / page_size();
                files.entry(file).or_default().0 += pages;
            }
            // After the two above in every kernel that has it (3.8).
            "VmFlags" if value.split(' ').any(|flag| flag == "lo") => {
                files.entry(file).or_default().1 = true;
            }
            _ => {}
        }
    }
    files.retain(|_, (pages, _)| *pages > 0);
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMAPS: &str = "\
55d0a8a00000-55d0a8a04000 r--p 00000000 fe:10001 1234                    /bin/a 1-2 name
Size:                 16 kB
Rss:                  12 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd 
55d0a8a04000-55d0a8a06000 rw-p 00004000 fe:10001 1234                    /bin/a 1-2 name
Rss:                   8 kB
Anonymous:             4 kB
VmFlags: rd wr mr mw me ac lo sd 
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                 100 kB
Anonymous:           100 kB
";

    fn file() -> InodeId {
        InodeId { dev: Dev::new(0xfe, 0x10001), ino: 1234 }
    }

    #[test]
    fn mapped_pages_are_added_up_without_private_copies() {
        let wanted = HashMap::from([(file(), vec![PageRange::of(0, u64::MAX)])]);
        let expected = HashMap::from([(file(), (3 + 1, true))]);
        assert_eq!(parse_smaps(SMAPS.as_bytes(), &wanted), expected);
    }

    #[test]
    fn a_mapping_of_other_parts_of_the_file_is_not_blamed() {
        let wanted = HashMap::from([(file(), vec![(0..1).into(), (2..4).into()])]);
        assert_eq!(parse_smaps(SMAPS.as_bytes(), &wanted)[&file()], (3, false));
        let wanted = HashMap::from([(file(), vec![PageRange::of(6, 3)])]);
        assert_eq!(parse_smaps(SMAPS.as_bytes(), &wanted), HashMap::new());
    }

    #[test]
    fn a_mapping_of_which_no_page_is_present_holds_nothing() {
        let text = SMAPS.replace("12 kB", "0 kB").replace("8 kB", "4 kB");
        let wanted = HashMap::from([(file(), vec![PageRange::of(0, u64::MAX)])]);
        assert_eq!(parse_smaps(text.as_bytes(), &wanted), HashMap::new());
    }

    #[test]
    fn lines_that_are_no_mapping_are_none() {
        for line in ["", "Rss: 4 kB", "VmFlags: rd", "1-2 r--p 0 fe:1", "2-1 r--p 0 fe:1 5 x"] {
            assert_eq!(parse_area(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-f:VmFlagsRss\\- \n]{0,200}") {
            parse_smaps(text.as_bytes(), &HashMap::from([(file(), vec![PageRange::of(0, 9)])]));
        }
    }
}
