//! Packs of ureadahead, version 2: structures of C as they lie in memory on a 64-bit machine
//! (`src/pack.h` of its sources). Ranges have an order within their files and no times.
//!
//! Layout: `ura`, version, flags, three zeros; device (8 bytes), time (8); number of groups (8) and
//! the groups (4 each); number of paths (8) and of each the group (4), four unused bytes, inode (8)
//! and 256 bytes of path; number of ranges (8) and of each the path's index, offset, length and
//! place on the disk (8 each).

use crate::accesses::{Accesses, Name};
use crate::error::ImportError;
use crate::fields::Fields;
use headstart::host::range::ByteRange;
use headstart::host::usage::How;

const PATH_BYTES: u64 = 256;
const PATH_RECORD: u64 = 16 + PATH_BYTES;
const RANGE_RECORD: u64 = 32;
const GROUP: u64 = 4;
/// What is said of it.
const COARSE: &str = "a ureadahead pack has no times: its order is taken as that of the accesses";

/// Whether a file is such a pack, of whatever version.
pub(crate) fn is_pack(bytes: &[u8]) -> bool {
    bytes.starts_with(b"ura") && bytes.get(5..8) == Some(&[0; 3])
}

/// The accesses that a pack stands for.
///
/// # Errors
/// It is of another version or kind of machine, or damaged.
pub fn import(bytes: &[u8], page_size: u64) -> Result<Accesses, ImportError> {
    let version = bytes.get(3).copied().unwrap_or(0);
    if version != 2 {
        let text = format!("The ureadahead pack has version {version}; only 2 can be imported");
        return Err(ImportError::Unsupported(text));
    }
    let damaged = |part| ImportError::Damaged { format: "ureadahead", part };
    let mut fields = Fields(bytes);
    let groups = fields.take(8 + 8 + 8).and_then(|_| counted(&mut fields, GROUP));
    groups.ok_or(damaged("the groups"))?;
    let paths = counted(&mut fields, PATH_RECORD).ok_or(damaged("the paths"))?;
    let ranges = counted(&mut fields, RANGE_RECORD).ok_or(damaged("the ranges"))?;
    let mut accesses = Accesses::new(page_size, bytes.len());
    accesses.lacks.coarse = Some(COARSE);
    for range in ranges.chunks_exact(RANGE_RECORD as usize) {
        let mut range = Fields(range);
        let (Some(path), Some(offset), Some(length)) = (range.u64(), range.u64(), range.u64())
        else {
            continue;
        };
        let path = usize::try_from(path).ok();
        let Some(path) = path.and_then(|at| paths.chunks_exact(PATH_RECORD as usize).nth(at))
        else {
            accesses.lacks.not_understood += 1;
            continue;
        };
        let name = path[16..].split(|byte| *byte == 0).next().unwrap_or_default();
        let at = accesses.next_step();
        accesses.add_bytes(
            Name::Path(name.to_vec()),
            ByteRange::of(offset, length),
            at,
            How::READ,
        )?;
    }
    Ok(accesses)
}

/// Records of so many bytes, behind their number.
fn counted<'a>(fields: &mut Fields<'a>, record: u64) -> Option<&'a [u8]> {
    let count = fields.u64()?;
    fields.take(count.checked_mul(record)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(paths: &[&str], ranges: &[[u64; 3]]) -> Vec<u8> {
        let mut out = b"ura\x02\0\0\0\0".to_vec();
        out.extend([0; 16]);
        out.extend(1u64.to_ne_bytes());
        out.extend([0; 4]);
        out.extend((paths.len() as u64).to_ne_bytes());
        for path in paths {
            let mut record = vec![0; PATH_RECORD as usize];
            record[16..16 + path.len()].copy_from_slice(path.as_bytes());
            out.extend(record);
        }
        out.extend((ranges.len() as u64).to_ne_bytes());
        for [path, offset, length] in ranges {
            let words = [*path, *offset, *length, u64::MAX];
            out.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }
        out
    }

    #[test]
    fn ranges_come_in_their_order_and_one_without_a_path_is_counted() {
        let ranges = [[1, 8192, 4096], [0, 0, 65536], [1, 0, 4096], [9, 0, 4096]];
        let bytes = pack(&["/a", "/b"], &ranges);
        assert!(is_pack(&bytes));
        let accesses = import(&bytes, 4096).unwrap();
        let files = accesses.files();
        let of = |number: usize| -> Vec<_> {
            files[number].1.iter().map(|s| (s.pages.first, s.pages.count(), s.at)).collect()
        };
        assert_eq!(files[0].0, &Name::Path(b"/b".to_vec()));
        assert_eq!((of(0), of(1)), (vec![(0, 1, 2000), (2, 1, 0)], vec![(0, 16, 1000)]));
        assert_eq!(accesses.lacks.not_understood, 1);
    }

    #[test]
    fn other_versions_and_cut_packs_are_refused_with_what_is_missing() {
        let bytes = pack(&["/a"], &[[0, 0, 4096]]);
        for (bytes, words) in [
            (b"ura\x01\0\0\0\0".to_vec(), "version 1"),
            (bytes[..40].to_vec(), "the paths"),
            (bytes[..bytes.len() - 1].to_vec(), "the ranges"),
            (bytes[..20].to_vec(), "the groups"),
        ] {
            let error = import(&bytes, 4096).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(tail in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = import(&[b"ura\x02\0\0\0\0", &tail[..]].concat(), 4096);
        }
    }
}
