//! Mounts as `/proc/PID/mountinfo` lists them (proc_pid_mountinfo(5)). Parsing only.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::host::id::Dev;
use crate::host::names::unescape;

/// One mount: one line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's id, which statx(2) gives as `stx_mnt_id`.
    pub id: u32,
    /// The id of the mount it is mounted on.
    pub parent: u32,
    /// The super block's device: `s_dev`, also for btrfs.
    pub dev: Dev,
    /// What of the file system is mounted: a path in it, `/` for all of it;
    /// empty when it is not known ([`super::MountTable::read`]).
    pub root: PathBuf,
    /// Where, as seen from the root directory of the process that was asked.
    pub mount_point: PathBuf,
    /// The file system's type, like `ext4` or `fuse.sshfs`.
    pub fstype: OsString,
    /// What was given as the device.
    pub source: OsString,
    /// Options of the mount.
    pub options: OsString,
    /// Options of the super block.
    pub super_options: OsString,
}

/// Parses mountinfo.
///
/// # Errors
/// The number (from 1) of the first malformed line.
///
/// ```
/// let mounts = headstart::host::mounts::parse(b"36 1 8:2 / /home rw - ext4 /dev/sda2 rw\n");
/// let mounts = mounts.expect("a line of /proc/self/mountinfo");
/// assert_eq!(mounts[0].mount_point.to_str(), Some("/home"));
/// assert_eq!(headstart::host::mounts::parse(b"nonsense\n"), Err(1));
/// ```
pub fn parse(mountinfo: &[u8]) -> Result<Vec<Mount>, usize> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    lines
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| parse_line(line).ok_or(index + 1))
        .collect()
}

/// Fields are separated by exactly one space, for the source may be empty.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let dev: Dev = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let root = text(fields.next()?).into();
    let mount_point = text(fields.next()?).into();
    let options = text(fields.next()?);
    // Any number of optional fields, also none, up to a lone hyphen.
    fields.by_ref().find(|field| *field == b"-")?;
    let fstype = text(fields.next()?);
    let source = text(fields.next()?);
    let super_options = text(fields.next()?);
    Some(Mount { id, parent, dev, root, mount_point, fstype, source, options, super_options })
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> OsString {
    OsString::from_vec(unescape(field))
}

impl Mount {
    /// True for a mount whose mount point was removed under it.
    pub(super) fn is_detached(&self) -> bool {
        self.mount_point.as_os_str().as_bytes().ends_with(b"//deleted")
    }

    /// True when it was mounted from a device: not in memory, and not on a server.
    pub fn is_of_device(&self) -> bool {
        self.source.as_bytes().starts_with(b"/dev/")
    }

    /// True when all of the file system is mounted, not a part of it.
    pub fn is_whole(&self) -> bool {
        self.root.as_os_str() == OsStr::new("/")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    pub(crate) fn mount(id: u32, parent: u32, minor: u32, root: &str, at: &str) -> Mount {
        Mount {
            id,
            parent,
            dev: Dev::new(8, minor),
            root: root.into(),
            mount_point: at.into(),
            fstype: "ext4".into(),
            source: "/dev/sda".into(),
            options: "rw".into(),
            super_options: "rw".into(),
        }
    }

    #[test]
    fn optional_fields_may_be_many_or_none_and_the_source_may_be_empty() {
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
            7 1 0:1048575 / /a\\040b\\012\\011\\134\\043\xff rw - btrfs  rw,subvol=/";
        let mounts = parse(text).unwrap();
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].id, mounts[0].parent, mounts[0].dev), (36, 35, Dev::new(98, 0)));
        assert_eq!(mounts[0].root, Path::new("/mnt1"));
        assert_eq!((&mounts[0].fstype, &mounts[0].source), (&"ext3".into(), &"/dev/root".into()));
        assert_eq!(mounts[1].mount_point.as_os_str().as_bytes(), b"/a b\n\t\\#\xff");
        assert_eq!((mounts[1].source.len(), mounts[1].dev.minor()), (0, 1_048_575));
        assert_eq!(mounts[1].super_options, "rw,subvol=/");
    }

    #[test]
    fn a_line_that_is_none_is_named_by_its_number() {
        for bad in ["x", "1 2 3 / /", "1 2 8:1 / / rw ext4 /dev/sda rw", "1 2 8:1 / / rw - ext4"] {
            let text = format!("1 2 8:1 / / rw - ext4 /dev/sda rw\n{bad}\n");
            assert_eq!(parse(text.as_bytes()), Err(2), "{bad}");
        }
    }

    #[test]
    fn a_backslash_without_three_octal_digits_stays() {
        for (escaped, plain) in [
            (&b"\\"[..], &b"\\"[..]),
            (b"a\\04", b"a\\04"),
            (b"\\400", b"\\400"),
            (b"\\134040", b"\\040"),
            (b"\\377", b"\xff"),
        ] {
            assert_eq!(unescape(escaped), plain);
        }
    }

    /// As the kernel's `mangle()` does it (`fs/proc_namespace.c`).
    fn escape(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for &byte in text {
            if b" \t\n\\#".contains(&byte) {
                out.extend(format!("\\{byte:03o}").bytes());
            } else {
                out.push(byte);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
            prop_assert!(unescape(&bytes).len() <= bytes.len());
        }

        #[test]
        fn no_line_of_plausible_tokens_makes_the_parser_panic(
            line in "([0-9]{1,11}|[0-9]:[0-9]|/|-|\\\\0|\\\\040| |\n){0,40}",
        ) {
            let _ = parse(line.as_bytes());
        }

        #[test]
        fn every_name_survives_the_kernels_escapes(
            names in proptest::collection::vec(proptest::collection::vec(1u8.., 0..40), 4),
            id: u32, optional in proptest::collection::vec("[a-z]+:[0-9]+", 0..3),
        ) {
            let mut line = format!("{id} 1 8:2 ").into_bytes();
            for name in &names[..2] {
                line.extend(escape(name));
                line.push(b' ');
            }
            line.extend(b"rw ");
            line.extend(optional.iter().flat_map(|field| format!("{field} ").into_bytes()));
            line.extend(b"- ext4 ");
            line.extend(escape(&names[2]));
            line.push(b' ');
            line.extend(escape(&names[3]));
            let mounts = parse(&line).unwrap();
            prop_assert_eq!(mounts[0].id, id);
            prop_assert_eq!(mounts[0].root.as_os_str().as_bytes(), &names[0][..]);
            prop_assert_eq!(mounts[0].mount_point.as_os_str().as_bytes(), &names[1][..]);
            prop_assert_eq!(mounts[0].source.as_bytes(), &names[2][..]);
            prop_assert_eq!(mounts[0].super_options.as_bytes(), &names[3][..]);
        }
    }
}
