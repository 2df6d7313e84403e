//! A call: its name, arguments and result.

/// A call that has returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call<'a> {
    pub name: &'a [u8],
    arguments: Vec<&'a [u8]>,
    /// What it returned; none for an error, or if it did not return.
    pub result: Option<i64>,
    /// The path behind the result, as `-y` writes it.
    pub result_path: Option<Vec<u8>>,
}

/// A file descriptor, with the path behind it as `-y` writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Descriptor {
    /// -100 (`AT_FDCWD`) is the current directory.
    pub number: i64,
    pub path: Option<Vec<u8>>,
    /// Whether it is something else than a file, as `-y` tells: a pipe, a socket.
    pub is_other: bool,
}

/// What openat(2) takes as the current directory.
const AT_FDCWD: i64 = -100;
/// Arguments that are kept: no call has more.
const MOST_ARGUMENTS: usize = 8;

/// The call in a text; `None` if there is none.
pub(super) fn parse(text: &[u8]) -> Option<Call<'_>> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let name = &text[..open];
    let is_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    if name.is_empty() || !name.iter().all(is_name) {
        return None;
    }
    let mut arguments = Vec::new();
    let mut rest = &text[open + 1..];
    let after = loop {
        let end = end_of_argument(rest)?;
        let argument = rest[..end].trim_ascii();
        if arguments.len() < MOST_ARGUMENTS && !(argument.is_empty() && arguments.is_empty()) {
            arguments.push(argument);
        }
        if rest[end] == b')' {
            break &rest[end + 1..];
        }
        rest = &rest[end + 1..];
    };
    let result = after.trim_ascii().strip_prefix(b"=")?.trim_ascii();
    let (value, path) = descriptor(result).map_or((None, None), |found| {
        (Some(found.number).filter(|number| *number >= 0), found.path)
    });
    Some(Call { name, arguments, result: value, result_path: path })
}

/// Where an argument ends: at a comma, or at the bracket that ends all of them.
fn end_of_argument(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0u32, 0);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => at = end_of(text, at, b'"')?,
            // The path of a descriptor, not a comparison or an arrow.
            b'<' if at > 0 && (text[at - 1].is_ascii_digit() || text[at - 1] == b'D') => {
                at = end_of(text, at, b'>')?;
            }
            b'/' if text[at..].starts_with(b"/*") => {
                at += text[at..].windows(2).position(|window| window == b"*/")? + 1;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => return Some(at),
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where a text ends that begins at `from`.
fn end_of(text: &[u8], from: usize, end: u8) -> Option<usize> {
    let mut at = from + 1;
    loop {
        match *text.get(at)? {
            b'\\' => at += 1,
            byte if byte == end => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

/// `3`, `3</path>`, `AT_FDCWD</path>`.
pub(super) fn descriptor(text: &[u8]) -> Option<Descriptor> {
    let text = text.trim_ascii();
    let (number, rest) = match text.strip_prefix(b"AT_FDCWD") {
        Some(rest) => (AT_FDCWD, rest),
        None => {
            let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'-');
            let (number, rest) = text.split_at(end.unwrap_or(text.len()));
            match rest.strip_prefix(b"x") {
                // An address, as mmap(2) returns.
                Some(digits) => {
                    let digits = std::str::from_utf8(digits).ok()?;
                    let digits = digits.split(|c: char| !c.is_ascii_hexdigit()).next()?;
                    (i64::from_str_radix(digits, 16).unwrap_or(i64::MAX), &[][..])
                }
                None => (std::str::from_utf8(number).ok()?.parse().ok()?, rest),
            }
        }
    };
    let path = rest.strip_prefix(b"<").and_then(|rest| {
        let end = end_of(rest, 0, b'>').or_else(|| rest.iter().position(|byte| *byte == b'>'))?;
        // A device, as `-yy` writes it: `</dev/tty<char 5:0>>`. Names have no such bytes unescaped.
        if rest[..end].contains(&b'<') {
            return None;
        }
        let path = unquoted(&rest[..end]);
        // Also `</path>(deleted)`, and of things that are no files `<pipe:[1]>`.
        path.starts_with(b"/").then_some(path)
    });
    let is_other = path.is_none() && rest.starts_with(b"<");
    Some(Descriptor { number, path, is_other })
}

impl Descriptor {
    /// Whether it stands for the current directory.
    pub(super) fn is_current(&self) -> bool {
        self.number == AT_FDCWD
    }
}

impl Call<'_> {
    /// An argument, as it stands there.
    pub(super) fn argument(&self, number: usize) -> &[u8] {
        self.arguments.get(number).copied().unwrap_or_default()
    }

    /// An argument that is a text in quotes; none if it was cut.
    pub(super) fn text(&self, number: usize) -> Option<Vec<u8>> {
        let text = self.argument(number).strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some(unquoted(text))
    }

    /// An argument that is a descriptor.
    pub(super) fn descriptor(&self, number: usize) -> Option<Descriptor> {
        descriptor(self.argument(number))
    }

    /// An argument that is a number, decimal or after `0x`; also in brackets, with what the call made
    /// of it, as `[7] => [9]`.
    pub(super) fn number(&self, number: usize) -> Option<u64> {
        let text = std::str::from_utf8(self.argument(number)).ok()?;
        let text = text.strip_prefix('[').and_then(|text| text.split(']').next()).unwrap_or(text);
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Whether an argument has this flag.
    pub(super) fn has(&self, number: usize, flag: &str) -> bool {
        self.argument(number)
            .split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
            .any(|word| word == flag.as_bytes())
    }
}

/// Undoes the escapes of a text in quotes.
fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&kind, after)) = rest.split_first() else { break };
        let digits = match kind {
            b'x' => after.iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count(),
            b'0'..=b'7' => {
                rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count()
            }
            _ => 0,
        };
        let (digits, base, left) = match kind {
            b'x' => (&after[..digits], 16, &after[digits..]),
            b'0'..=b'7' => (&rest[..digits], 8, &rest[digits..]),
            _ => (&[][..], 10, after),
        };
        rest = left;
        let number = std::str::from_utf8(digits).ok();
        out.push(match (number.and_then(|text| u32::from_str_radix(text, base).ok()), kind) {
            (Some(number), _) => (number & 0xff) as u8,
            (None, b'n') => b'\n',
            (None, b't') => b'\t',
            (None, b'r') => b'\r',
            (None, b'v') => 11,
            (None, b'f') => 12,
            (None, other) => other,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arguments_end_at_commas_outside_of_texts_structures_and_paths() {
        let call = parse(
            b"openat(AT_FDCWD</a, b>, \"x\\\", (y\", O_RDONLY|O_CLOEXEC, {a=1, b=[2, 3]}) = 3</x\\76y>",
        )
        .unwrap();
        assert_eq!(call.name, b"openat");
        let path = Some(b"/a, b".to_vec());
        let at = Descriptor { number: AT_FDCWD, path, is_other: false };
        assert_eq!(call.descriptor(0), Some(at));
        assert_eq!(call.text(1).unwrap(), b"x\", (y");
        assert!(call.has(2, "O_RDONLY") && !call.has(2, "O_RD"));
        assert_eq!(call.argument(3), b"{a=1, b=[2, 3]}");
        assert_eq!((call.result, call.result_path.as_deref()), (Some(3), Some(&b"/x>y"[..])));
    }

    #[test]
    fn results_are_numbers_addresses_or_none() {
        for (text, result) in [
            ("close(3) = 0", Some(0)),
            ("open(\"a\", O_RDONLY) = -1 ENOENT (No such file or directory)", None),
            ("read(0, 0x7ff, 5) = ? ERESTARTSYS (To be restarted)", None),
            ("mmap(NULL, 8, PROT_READ, MAP_PRIVATE, 3, 0x1000) = 0x7f00", Some(0x7f00)),
            ("exit_group(0)     = ?", None),
            ("dup(0</dev/tty<char 5:0>>) = 3</dev/tty<char 5:0>>", Some(3)),
        ] {
            assert_eq!(parse(text.as_bytes()).map(|call| call.result), Some(result), "{text}");
        }
        for text in ["", "close(3", "close(3)", "Close(3) = 0", "a b(1) = 0"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_device_is_no_file_and_a_position_is_that_before_the_call() {
        let call = parse(b"sendfile(1</dev/tty<char 5:0>>, 3</a>, [7] => [9], 2) = 2").unwrap();
        let device = call.descriptor(0).unwrap();
        assert_eq!((device.number, device.path, device.is_other), (1, None, true));
        assert_eq!((call.number(2), call.number(3)), (Some(7), Some(2)));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z(),\"<>\\\\x07 =\\[\\]{}/*-]{0,60}") {
            if let Some(call) = parse(text.as_bytes()) {
                let _ = (call.text(0), call.descriptor(0), call.number(1), call.has(2, "O_RDONLY"));
            }
        }
    }
}
