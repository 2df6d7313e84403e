//! Items of the trees of a btrfs: parsing of what a search returns, and the search itself. What items mean is for
//! those who look for them.
//!
//! Layouts from `include/uapi/linux/btrfs_tree.h`.

use headstart_sys::btrfs::{SearchRange, tree_search};
use std::io;
use std::os::fd::AsFd;

/// Object, type and offset; items are in the order of these.
pub type Key = (u64, u32, u64);

/// The items of a search result of so many, each with its key. One that does not fit into the buffer ends the list.
pub fn items(count: u32, buffer: &[u8]) -> impl Iterator<Item = (Key, &[u8])> {
    let mut rest = buffer;
    (0..count).map_while(move |_| {
        // struct btrfs_ioctl_search_header: transid, objectid, offset, type, len.
        let (header, body) = rest.split_at_checked(32)?;
        let (object, offset) = (native_u64(&header[8..]), native_u64(&header[16..]));
        let (kind, length) = (native_u32(&header[24..]), native_u32(&header[28..]));
        let (item, after) = body.split_at_checked(length as usize)?;
        rest = after;
        Some(((object, kind, offset), item))
    })
}

/// Calls `found` with each item of a range of a tree.
///
/// # Errors
/// `EPERM`: needs `CAP_SYS_ADMIN`. `ENOTTY`: not btrfs. `ENOENT`: there is no such tree.
pub fn search(
    fs: impl AsFd,
    mut range: SearchRange,
    mut found: impl FnMut(Key, &[u8]),
) -> io::Result<()> {
    loop {
        let (count, buffer) = tree_search(&fs, &range)?;
        let mut last = None;
        for (key, item) in items(count, &buffer) {
            found(key, item);
            last = Some(key);
        }
        match last {
            // The key after the last one seen.
            Some((object, kind, offset)) if (object, kind, offset) >= range.from => {
                range.from = match offset.checked_add(1) {
                    Some(offset) => (object, kind, offset),
                    None => (object, kind + 1, 0),
                };
            }
            _ => return Ok(()),
        }
    }
}

fn native_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn native_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An item as the kernel writes it.
    fn item((object, kind, offset): Key, body: &[u8]) -> Vec<u8> {
        let mut out = 9u64.to_ne_bytes().to_vec();
        out.extend(object.to_ne_bytes());
        out.extend(offset.to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend((body.len() as u32).to_ne_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn a_cut_item_ends_the_list() {
        let mut buffer = item((256, 132, 0), &[7; 439]);
        buffer.extend(item((256, 144, 5), b"a\xff"));
        let keys = |buffer: &[u8], count| items(count, buffer).map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(keys(&buffer, 3), [(256, 132, 0), (256, 144, 5)]);
        assert_eq!(keys(&buffer, 1), [(256, 132, 0)]);
        buffer.pop();
        assert_eq!(keys(&buffer, 3), [(256, 132, 0)]);
    }

    proptest! {
        #[test]
        fn every_item_comes_back(
            list in proptest::collection::vec(((any::<u64>(), any::<u32>(), any::<u64>()), proptest::collection::vec(any::<u8>(), 0..99)), 0..6),
        ) {
            let buffer: Vec<u8> = list.iter().flat_map(|(key, body)| item(*key, body)).collect();
            let back: Vec<_> = items(list.len() as u32, &buffer).map(|(key, body)| (key, body.to_vec())).collect();
            prop_assert_eq!(back, list);
        }

        #[test]
        fn no_buffer_makes_the_parser_panic(count: u32, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(items(count, &bytes).count() <= bytes.len() / 32);
        }
    }
}
