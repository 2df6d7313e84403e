//! The names of the packs of boots: `PHASE@KEY.pack`, where the key tells the file system
//! that all of the pack is of. Pure.
//!
//! What is not of this form is no pack of a boot and is ignored.

use super::phases::is_name;
use crate::host::fsid::FsUuid;
use crate::pack::key::fnv1a;
use crate::pack::{FileSystem, format_uuid};

/// No name of a phase has it.
const SEPARATOR: char = '@';
const ENDING: &str = ".pack";
/// The length to which a type is cut in a key: FUSE types may be long.
const MOST_OF_KIND: usize = 64;

/// The key of a file system: its UUID, or its type and a hash of type and source where it
/// has none. Those that are the same have the same key.
pub fn key(fs: &FileSystem) -> String {
    let Some(uuid) = fs.uuid else {
        let plain = |c: char| if is_plain(c) { c } else { '_' };
        let kind: String = fs.kind.chars().take(MOST_OF_KIND).map(plain).collect();
        // No type holds a NUL.
        let all = [fs.kind.as_bytes(), b"\0", &fs.source].concat();
        return format!("{kind}-{:016x}", fnv1a(&all));
    };
    format_uuid(&uuid)
}

/// The file name of the pack of a phase and a file system.
pub fn file_name(phase: &str, fs: &FileSystem) -> String {
    format!("{phase}{SEPARATOR}{}{ENDING}", key(fs))
}

/// The phase and the key in a file name.
pub fn parse(file_name: &str) -> Option<(&str, &str)> {
    let (phase, key) = file_name.strip_suffix(ENDING)?.split_once(SEPARATOR)?;
    (is_name(phase) && is_key(key)).then_some((phase, key))
}

fn is_key(key: &str) -> bool {
    let is_uuid = || FsUuid::parse(key).is_some_and(|uuid| uuid.to_string() == key);
    let is_hash = || {
        let (kind, digits) = key.rsplit_once('-')?;
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let is_hash = digits.len() == 16 && digits.chars().all(is_digit);
        Some(is_hash && kind.len() <= MOST_OF_KIND && kind.chars().all(is_plain))
    };
    is_uuid() || is_hash().unwrap_or(false)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fs(uuid: Option<u8>, kind: &str, source: &[u8]) -> FileSystem {
        FileSystem { uuid: uuid.map(|tag| [tag; 16]), kind: kind.into(), source: source.into() }
    }

    #[test]
    fn a_file_system_is_known_by_its_uuid_or_else_by_its_type_and_source() {
        let uuid = "abababab-abab-abab-abab-abababababab";
        for (fs, expected) in [
            (fs(Some(0xab), "ext4", b"/dev/sda1"), uuid),
            (fs(Some(0xab), "ext3", b"/dev/sdb1"), uuid),
            (fs(None, "squashfs", b"/dev/loop3"), "squashfs-ff476353f317242d"),
            (fs(None, "squashfs", b"/dev/loop4"), "squashfs-ff475c53f3171848"),
            (fs(None, "fuse.a/../b c", b"x"), "fuse.a_.._b_c-8b645d7d9e87fa2e"),
            (fs(None, "", b""), "-af63bd4c8601b7df"),
        ] {
            assert_eq!(key(&fs), expected, "{fs:?}");
            let name = file_name("system", &fs);
            assert_eq!(parse(&name), Some(("system", expected)));
        }
    }

    #[test]
    fn what_is_not_named_like_a_pack_of_a_boot_is_none() {
        let uuid = "0123abcd-4567-89ef-0123-456789abcdef";
        assert_eq!(parse(&format!("my_web-2@{uuid}.pack")), Some(("my_web-2", uuid)));
        for name in [
            "system.pack",
            "history",
            ".system@0123abcd-4567-89ef-0123-456789abcdef.pack.1-2.headstart-tmp",
            "system@0123abcd-4567-89ef-0123-456789abcdef",
            "system@0123ABCD-4567-89ef-0123-456789abcdef.pack",
            "system@0123abcd456789ef0123456789abcdef.pack",
            "@0123abcd-4567-89ef-0123-456789abcdef.pack",
            ".system@0123abcd-4567-89ef-0123-456789abcdef.pack",
            "system@web@0123abcd-4567-89ef-0123-456789abcdef.pack",
            "system@.pack",
            "system@ext4.pack",
            "system@squashfs-8d9ab331.pack",
            "system@squashfs-8D9AB331F0BD5F07.pack",
            "system@a b-8d9ab331f0bd5f07.pack",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_read_back_and_safe_as_that_of_a_file(
            uuid: Option<[u8; 16]>, kind in any::<String>(), source in any::<Vec<u8>>()
        ) {
            let fs = FileSystem { uuid, kind, source };
            let name = file_name("mounts", &fs);
            prop_assert!(name.len() < 255 && !name.contains('/'), "{}", name);
            let key = key(&fs);
            prop_assert_eq!(parse(&name), Some(("mounts", key.as_str())));
        }

        #[test]
        fn any_name_is_one_of_a_pack_or_not(
            name in "[a-z@.]{0,6}@(sq-)?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{12})?\\.pack"
        ) {
            if let Some((phase, key)) = parse(&name) {
                prop_assert_eq!(format!("{phase}@{key}.pack"), name);
            }
        }
    }
}
