//! Which format a file has, by its content.

use crate::{android, lists, perf_data, strace, trace_dat, ureadahead};

/// A format that can be imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A log of `strace -f`.
    Strace,
    /// A file of trace-cmd(1).
    TraceDat,
    /// A file of perf(1).
    PerfData,
    /// A log of fatrace(1).
    Fatrace,
    /// A list of files or their parts.
    List,
    /// A pack of ureadahead.
    Ureadahead,
    /// Records of Android's prefetch.
    AndroidPrefetch,
    /// A compiled trace of Android's iorapd.
    Iorap,
}

impl Format {
    /// All, with their names on the command line.
    pub const ALL: [(&'static str, Self); 8] = [
        ("strace", Self::Strace),
        ("trace-cmd", Self::TraceDat),
        ("perf", Self::PerfData),
        ("fatrace", Self::Fatrace),
        ("list", Self::List),
        ("ureadahead", Self::Ureadahead),
        ("android-prefetch", Self::AndroidPrefetch),
        ("iorap", Self::Iorap),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

/// Lines of a text that tell what it is.
const LINES: usize = 50;
/// No line that tells it is longer.
const LONGEST: usize = 64 << 10;

/// The format of a file; `None` if it is none of them.
pub fn detect(bytes: &[u8]) -> Option<Format> {
    if trace_dat::is_trace(bytes) {
        return Some(Format::TraceDat);
    }
    if perf_data::is_perf(bytes) {
        return Some(Format::PerfData);
    }
    if ureadahead::is_pack(bytes) {
        return Some(Format::Ureadahead);
    }
    if android::is_records(bytes) {
        return Some(Format::AndroidPrefetch);
    }
    if android::is_iorap(bytes) {
        return Some(Format::Iorap);
    }
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines: Vec<&[u8]> = lines.take(LINES).take_while(|line| line.len() < LONGEST).collect();
    let half_are = |is: fn(&[u8]) -> bool| {
        let right = lines.iter().filter(|line| is(line)).count();
        right > 0 && 2 * right >= lines.len()
    };
    if half_are(lists::is_fatrace_line) {
        Some(Format::Fatrace)
    } else if half_are(strace::is_line) {
        Some(Format::Strace)
    } else if half_are(is_list_line) && !lines.iter().any(|line| is_binary(line)) {
        Some(Format::List)
    } else {
        None
    }
}

/// A remark, a path, or a name and its parts.
fn is_list_line(line: &[u8]) -> bool {
    let has_parts = headstart::cache::list::parse(line).is_ok();
    line.starts_with(b"#") || line.starts_with(b"/") || has_parts
}

fn is_binary(line: &[u8]) -> bool {
    line.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_known_by_most_of_their_lines() {
        for (text, format) in [
            (
                "12 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n12 +++ exited with 0 +++\n",
                Some(Format::Strace),
            ),
            ("a warning\nread(3, \"\", 1) = 0\n", Some(Format::Strace)),
            ("cat(7): RO /etc/passwd\nx\n", Some(Format::Fatrace)),
            ("/bin/sh 0:4096\n/etc/passwd\n", Some(Format::List)),
            ("Gallery3D.apk 0:131072,172032:393216\n", Some(Format::List)),
            ("# files\n/bin/sh\n", Some(Format::List)),
            ("/bin/sh\0/bin/ls\n", None),
            ("Dear reader,\nthis is a letter.\n", None),
            ("", None),
        ] {
            assert_eq!(detect(text.as_bytes()), format, "{text:?}");
        }
    }
}
