//! Which processes have a file mapped, and so keep its pages in the page cache.
//!
//! Files are identified as in `/proc/PID/maps`, by the device number of the super block and the
//! inode. On btrfs and overlayfs that differs from stat(2).

use crate::host::contents;
use crate::host::range::PageRange;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use headstart_sys::mapping::Mapping;

use super::smaps::{lines, parse_area, parse_smaps};
use crate::host::id::InodeId;

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

/// The mappings of all processes.
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
pub fn holders(wanted: &HashMap<InodeId, Vec<PageRange>>) -> io::Result<Holders> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_holding_the_page_it_touched() {
        use std::os::unix::fs::MetadataExt;
        let exe = std::fs::File::open("/proc/self/exe").unwrap();
        let id = identity(&exe).unwrap();
        assert_eq!(id.ino, exe.metadata().unwrap().ino());
        let found = holders(&HashMap::from([(id, vec![PageRange::of(0, u64::MAX)])])).unwrap();
        let me = std::process::id();
        let holder = found.by_file[&id].iter().find(|holder| holder.pid == me).unwrap();
        assert!(holder.pages > 0 && !holder.locked, "{holder:?}");
    }
}
