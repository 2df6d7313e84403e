//! What `/proc/PID/maps` lists (proc_pid_maps(5)); parsing only.

use crate::host::id::{Dev, InodeId};
use std::str;

/// What a process has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// The inode of a file, zeros for memory. For overlayfs, the overlay's device.
    pub id: InodeId,
    /// The name as the kernel printed it: newlines are `\012` but backslashes
    /// are themselves, and a deleted file ends in ` (deleted)`. What is no file is empty, or in
    /// brackets.
    pub path: &'a [u8],
    /// Where it begins in the memory of the process.
    pub address: u64,
    /// How many bytes are mapped.
    pub bytes: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// As printed, `r-xp`: read, write, execute, shared or private.
    pub permissions: [u8; 4],
}

impl Mapped<'_> {
    /// Whether it has this permission: `r`, `w`, `x`, `s` or `p`.
    pub fn may(&self, permission: u8) -> bool {
        self.permissions.contains(&permission)
    }
}

/// The mappings in the text of `/proc/PID/maps`, in its order. Malformed lines are skipped.
pub fn mapped(maps: &[u8]) -> impl Iterator<Item = Mapped<'_>> {
    maps.split(|byte| *byte == b'\n').filter_map(parse_line)
}

/// Those of files.
pub fn mapped_files(maps: &[u8]) -> impl Iterator<Item = Mapped<'_>> {
    mapped(maps).filter(|mapped| mapped.path.starts_with(b"/"))
}

/// `start-end perms offset major:minor inode` and, behind padding, the path.
fn parse_line(line: &[u8]) -> Option<Mapped<'_>> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let (start, end) = str::from_utf8(fields.next()?).ok()?.split_once('-')?;
    let address = u64::from_str_radix(start, 16).ok()?;
    let bytes = u64::from_str_radix(end, 16).ok()?.checked_sub(address)?;
    let permissions = *fields.next()?.first_chunk()?;
    let offset = u64::from_str_radix(str::from_utf8(fields.next()?).ok()?, 16).ok()?;
    let (major, minor) = str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let hex = |digits| u32::from_str_radix(digits, 16).ok();
    let ino = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    let dev = Dev::new(hex(major)?, hex(minor)?);
    Some(Mapped { id: InodeId { dev, ino }, path, address, bytes, offset, permissions })
}

/// The name with each `\012` as the newline that it may stand for, or `None`
/// when there is none.
pub fn with_newlines(path: &[u8]) -> Option<Vec<u8>> {
    const NEWLINE: &[u8] = b"\\012";
    path.windows(NEWLINE.len()).any(|part| part == NEWLINE).then(|| {
        let mut out = Vec::with_capacity(path.len());
        let mut rest = path;
        while let Some((&byte, after)) = rest.split_first() {
            if let Some(after) = rest.strip_prefix(NEWLINE) {
                out.push(b'\n');
                rest = after;
            } else {
                out.push(byte);
                rest = after;
            }
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_lines_with_a_file_count_and_its_name_is_kept_as_it_is() {
        let text = b"7f5fe37fb000-7f5fe3814000 r--s 00000000 00:2c 17      /tmp/a b  c (deleted)\n\
            7f5fe37fb000-7f5fe3814000 rw-p 00000000 00:00 0 \n\
            7f5fe37fb000-7f5fe3814000 rw-p 00000000 00:00 0    [heap]\n\
            nonsense\n\
            9-8 r--p 0 00:2c 17 /backwards\n\
            0-1 r--s 0 103:fffff 18446744073709551615 /\xff\\012";
        let files: Vec<_> = mapped_files(text).collect();
        assert_eq!(files.len(), 2);
        assert_eq!(files[0].id, InodeId { dev: Dev::new(0, 0x2c), ino: 17 });
        assert_eq!(files[0].path, b"/tmp/a b  c (deleted)");
        assert_eq!((files[0].address, files[0].bytes), (0x7f5f_e37f_b000, 0x19000));
        assert_eq!(files[1].id, InodeId { dev: Dev::new(0x103, 0xfffff), ino: u64::MAX });
        assert_eq!((files[0].offset, files[0].may(b'x'), files[1].may(b's')), (0, false, true));
        let code = b"400000-500000 r-xp 00001000 08:02 7       /x";
        let code = mapped_files(code).next().unwrap();
        assert_eq!((code.offset, code.may(b'x'), code.may(b'w')), (0x1000, true, false));
        assert_eq!(with_newlines(files[1].path).unwrap(), b"/\xff\n");
        assert_eq!(with_newlines(files[0].path), None);
        let memory: Vec<_> = mapped(text).filter(|mapped| mapped.id.ino == 0).collect();
        let shown: Vec<_> = memory.iter().map(|mapped| (mapped.path, mapped.may(b'w'))).collect();
        assert_eq!(shown, [(&b""[..], true), (b"[heap]", true)]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for file in mapped_files(&bytes) {
                let _ = with_newlines(file.path);
            }
            prop_assert!(mapped(&bytes).count() <= bytes.len());
        }

        #[test]
        fn no_line_of_plausible_tokens_makes_the_parser_panic(line in "([0-9a-f]{1,18}|-|:| |/|\\\\012|\n){0,40}") {
            prop_assert!(mapped_files(line.as_bytes()).count() <= line.len());
        }

        #[test]
        fn every_name_comes_back(name in proptest::collection::vec(any::<u8>(), 0..60), ino: u64) {
            let mut line = format!("400000-500000 r-xp 00001000 08:02 {ino}       /x").into_bytes();
            let escaped = name.iter().flat_map(|byte| match byte {
                b'\n' => b"\\012".to_vec(),
                other => vec![*other],
            });
            line.extend(escaped);
            let file = mapped_files(&line).next().unwrap();
            prop_assert_eq!(file.id.ino, ino);
            let path = with_newlines(file.path).unwrap_or(file.path.to_vec());
            if !name.windows(4).any(|part| part == b"\\012") {
                prop_assert_eq!(&path[2..], &name[..]);
            }
        }
    }
}
