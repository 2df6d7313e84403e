//! Which processes have a file mapped, and so keep its pages in the page cache.
//!
//! Files are told apart as `/proc/PID/maps` does it, by the super block's device
//! number and the inode: on btrfs and overlayfs that is not what stat(2) gives.

use crate::host::contents;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use headstart_sys::mapping::Mapping;

use super::residency::page_size;
use crate::host::id::{Dev, InodeId};

/// A process that has pages of a file in its page tables.
#[derive(Clone, PartialEq, Eq, serde::Serialize, Debug)]
pub struct Holder {
    /// Its process number, as this process's `/proc` has it.
    pub pid: u32,
    /// The name of its main thread, from `/proc/PID/comm`.
    pub command: String,
    /// How many of the file's pages it has in its page tables. Each can keep a
    /// whole folio, so more pages than that may stay.
    pub pages: u64,
    /// Whether it locked them in memory: mlock(2), mlockall(2).
    pub locked: bool,
}

/// What a look through all processes found.
#[derive(Clone, Default, Debug)]
pub struct Holders {
    /// By file, in the order of process numbers.
    pub by_file: HashMap<InodeId, Vec<Holder>>,
    /// Processes whose mappings this process may not see.
    pub unreadable: u64,
}

/// The file's identity as `/proc/PID/maps` shows it for all its mappings, found
/// by mapping it for a moment and looking there.
///
/// # Errors
///
/// Those of mmap(2) and of reading `/proc/self/maps`.
pub fn identity(file: impl AsFd) -> io::Result<InodeId> {
    let mapping = Mapping::new(file, 0, rustix::param::page_size())?;
    let address = mapping.address() as u64;
    let maps = contents::bytes("/proc/self/maps")?;
    let found = lines(&maps).filter_map(parse_area).find(|area| area.start == address);
    found.map(|area| area.file).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "no line for the mapping in /proc/self/maps")
    })
}

/// The processes that have any of the `wanted` pages of these files mapped.
///
/// # Errors
///
/// When `/proc` cannot be listed; a process that ends meanwhile is no error.
pub fn holders(wanted: &HashMap<InodeId, Vec<Range<u64>>>) -> io::Result<Holders> {
    let mut found = Holders::default();
    let mut pids: Vec<u32> = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    pids.sort_unstable();
    for pid in pids {
        let file = |name: &str| contents::bytes(format!("/proc/{pid}/{name}"));
        let maps = match file("maps") {
            Ok(maps) => maps,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                found.unreadable += 1;
                continue;
            }
            Err(_ended) => continue,
        };
        if !lines(&maps).filter_map(parse_area).any(|area| area.overlaps(wanted)) {
            continue;
        }
        // Costs the kernel a walk through the page tables: only where needed.
        let Ok(smaps) = file("smaps") else { continue };
        let command = file("comm").unwrap_or_default();
        let command = String::from_utf8_lossy(command.trim_ascii_end());
        for (inode, (pages, locked)) in parse_smaps(&smaps, wanted) {
            let holder = Holder { pid, command: command.clone().into_owned(), pages, locked };
            found.by_file.entry(inode).or_default().push(holder);
        }
    }
    Ok(found)
}

/// A line of `/proc/PID/maps`: one mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Area {
    /// First address.
    start: u64,
    /// The mapped part of the file, in pages.
    pages: Range<u64>,
    file: InodeId,
}

impl Area {
    fn overlaps(&self, wanted: &HashMap<InodeId, Vec<Range<u64>>>) -> bool {
        wanted.get(&self.file).is_some_and(|ranges| {
            ranges.iter().any(|r| r.start < self.pages.end && self.pages.start < r.end)
        })
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// One mapping: `start-end perms offset major:minor inode path`, all but the
/// inode in hexadecimal (proc_pid_maps(5)).
fn parse_area(line: &[u8]) -> Option<Area> {
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
    let last = first.checked_add(end.checked_sub(start)?.div_ceil(page_size()))?;
    Some(Area { start, pages: first..last, file: InodeId { dev, ino } })
}

/// From `/proc/PID/smaps`: for each wanted file of which pages are mapped, how
/// many and whether any are locked. Private copies of pages are not counted:
/// they are the process's own memory.
fn parse_smaps(
    text: &[u8],
    wanted: &HashMap<InodeId, Vec<Range<u64>>>,
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
#[allow(clippy::single_range_in_vec_init)] // Lists of ranges, some of one.
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
        let wanted = HashMap::from([(file(), vec![0..u64::MAX])]);
        let expected = HashMap::from([(file(), (3 + 1, true))]);
        assert_eq!(parse_smaps(SMAPS.as_bytes(), &wanted), expected);
    }

    #[test]
    fn a_mapping_of_other_parts_of_the_file_is_not_blamed() {
        let wanted = HashMap::from([(file(), vec![0..1, 2..4])]);
        assert_eq!(parse_smaps(SMAPS.as_bytes(), &wanted)[&file()], (3, false));
        let wanted = HashMap::from([(file(), vec![6..9])]);
        assert_eq!(parse_smaps(SMAPS.as_bytes(), &wanted), HashMap::new());
    }

    #[test]
    fn a_mapping_of_which_no_page_is_present_holds_nothing() {
        let text = SMAPS.replace("12 kB", "0 kB").replace("8 kB", "4 kB");
        let wanted = HashMap::from([(file(), vec![0..u64::MAX])]);
        assert_eq!(parse_smaps(text.as_bytes(), &wanted), HashMap::new());
    }

    #[test]
    fn lines_that_are_no_mapping_are_none() {
        for line in ["", "Rss: 4 kB", "VmFlags: rd", "1-2 r--p 0 fe:1", "2-1 r--p 0 fe:1 5 x"] {
            assert_eq!(parse_area(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn this_process_is_found_holding_the_page_it_touched() {
        use std::os::unix::fs::MetadataExt;
        let exe = std::fs::File::open("/proc/self/exe").unwrap();
        let id = identity(&exe).unwrap();
        assert_eq!(id.ino, exe.metadata().unwrap().ino());
        let found = holders(&HashMap::from([(id, vec![0..u64::MAX])])).unwrap();
        let me = std::process::id();
        let holder = found.by_file[&id].iter().find(|holder| holder.pid == me).unwrap();
        assert!(holder.pages > 0 && !holder.locked, "{holder:?}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-f:VmFlagsRss\\- \n]{0,200}") {
            parse_smaps(text.as_bytes(), &HashMap::from([(file(), vec![0..9])]));
        }
    }
}
