//! Reads CBOR (RFC 8949) as `prefetch` writes it: lengths are definite, keys are texts or numbers.
//! Values are read where they lie; nothing is copied.

/// How deep values may be nested.
const DEEPEST: u32 = 16;

/// A value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    /// Not negative.
    Number(u64),
    /// UTF-8, unless the file is damaged.
    Text(&'a [u8]),
    /// Another one.
    Other,
}

/// Kinds of values.
const NUMBER: u8 = 0;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// Kind and number of the head of a value, and what is behind it.
fn head(bytes: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (length, mut number) = match first & 31 {
        small @ 0..24 => (0, u64::from(small)),
        more @ 24..28 => (1 << (more - 24), 0),
        _ => return None,
    };
    let (digits, rest) = rest.split_at_checked(length)?;
    for digit in digits {
        number = number << 8 | u64::from(*digit);
    }
    Some((first >> 5, number, rest))
}

/// A value, and what is behind it.
fn value(bytes: &[u8], depth: u32) -> Option<(Value<'_>, &[u8])> {
    let (kind, number, rest) = head(bytes)?;
    match kind {
        NUMBER => Some((Value::Number(number), rest)),
        BYTES | TEXT => {
            let (text, rest) = rest.split_at_checked(usize::try_from(number).ok()?)?;
            Some((if kind == TEXT { Value::Text(text) } else { Value::Other }, rest))
        }
        ARRAY | MAP | TAG => {
            let depth = depth.checked_add(1).filter(|depth| *depth <= DEEPEST)?;
            let values = match kind {
                ARRAY => number,
                MAP => number.checked_mul(2)?,
                _ => 1,
            };
            let mut rest = rest;
            for _ in 0..values {
                rest = value(rest, depth)?.1;
            }
            Some((Value::Other, rest))
        }
        // A negative number, or a simple value.
        _ => Some((Value::Other, rest)),
    }
}

/// The keys of a map, each with the bytes from its value on.
pub(super) fn entries(map: &[u8]) -> Option<impl Iterator<Item = (Value<'_>, &[u8])>> {
    let (MAP, mut left, mut rest) = head(map)? else { return None };
    Some(std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let (key, at) = value(rest, 0)?;
        rest = value(at, 0)?.1;
        Some((key, at))
    }))
}

/// The bytes from the value of a member of a map on.
pub(super) fn member<'a>(map: &'a [u8], name: &str) -> Option<&'a [u8]> {
    entries(map)?.find(|(key, _)| *key == Value::Text(name.as_bytes())).map(|(_, value)| value)
}

/// A member that is a number.
pub(super) fn number(map: &[u8], name: &str) -> Option<u64> {
    match value(member(map, name)?, 0)?.0 {
        Value::Number(number) => Some(number),
        _ => None,
    }
}

/// The bytes from each item of an array on.
pub(super) fn maps(array: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let (ARRAY, mut left, mut rest) = head(array)? else { return None };
    Some(std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let at = rest;
        rest = value(at, 0)?.1;
        Some(at)
    }))
}

/// The items of an array.
pub(super) fn items(array: &[u8]) -> Option<impl Iterator<Item = Value<'_>>> {
    Some(maps(array)?.filter_map(|item| Some(value(item, 0)?.0)))
}
