//! The mounts of this process, as far as the doctor needs them.

use std::io;

use crate::id::Dev;

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The super block's device.
    pub dev: Dev,
    /// Where it is mounted.
    pub mount_point: String,
    /// The file system's type.
    pub kind: String,
    /// What was given as the device.
    pub source: String,
}

/// All mounts.
pub fn mounts() -> io::Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<_> = before.split(' ').collect();
    let mut after = after.split(' ');
    let (major, minor) = before.get(2)?.split_once(':')?;
    Some(Mount {
        dev: Dev::new(major.parse().ok()?, minor.parse().ok()?),
        mount_point: unescape(before.get(4)?),
        kind: after.next()?.to_owned(),
        source: unescape(after.next()?),
    })
}

/// The four characters that mountinfo escapes.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_and_without_optional_fields() {
        let expected = Mount {
            dev: Dev::new(254, 70_000),
            mount_point: "/a b".into(),
            kind: "ext4".into(),
            source: "/dev/vda".into(),
        };
        for optional in ["", " shared:1 master:2"] {
            let line = format!("27 1 254:70000 / /a\\040b rw{optional} - ext4 /dev/vda rw");
            assert_eq!(parse(&line), Some(expected.clone()));
        }
        for broken in ["", "27 1 254:0 / /", "27 1 x / / rw - ext4 /dev/vda rw", "1 - ext4"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }
}
