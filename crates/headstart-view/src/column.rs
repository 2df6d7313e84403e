//! Columns in documents: as bytes in base64, which a million rows need so that a page stays small.
//!
//! Of three forms, a column has the shortest: `bits` (each value has the same number of bits, the
//! lowest first), `varint` (LEB128) or `delta` (differences to the value before, with their signs in
//! the lowest bits, as LEB128).

use crate::picture::{Column, Text, Unit};
use serde::Deserialize;
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// A form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    Bits,
    Varint,
    Delta,
}

/// The most bits of a value for which a reader needs no more than 32 at once.
const MOST_BITS: u32 = 24;
/// And those for which a difference with its sign is exact in JavaScript.
const MOST_SIGNED: u32 = 52;

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (form, bits) = form_of(&self.values);
        let mut out = serializer.serialize_struct("Column", 7)?;
        out.serialize_field::<Text>("title", &self.title)?;
        out.serialize_field::<Unit>("unit", &self.unit)?;
        out.serialize_field("scale", &self.scale)?;
        out.serialize_field("labels", &self.labels)?;
        out.serialize_field("form", &form)?;
        out.serialize_field("bits", &bits)?;
        out.serialize_field("data", &base64(&bytes(&self.values, form, bits)))?;
        out.end()
    }
}

/// The shortest form, and the bits of the largest value.
fn form_of(values: &[u64]) -> (Form, u32) {
    let bits = 64 - values.iter().copied().max().unwrap_or(0).leading_zeros();
    let bits = bits.max(1);
    let sum = |lengths: &mut dyn Iterator<Item = usize>| lengths.sum::<usize>();
    let varint = sum(&mut values.iter().map(|value| varint_length(*value)));
    let delta = sum(&mut deltas(values).map(varint_length));
    let packed = (values.len() * bits as usize).div_ceil(8);
    if bits <= MOST_BITS && packed <= varint.min(delta) {
        (Form::Bits, bits)
    } else if varint <= delta || bits > MOST_SIGNED {
        (Form::Varint, bits)
    } else {
        (Form::Delta, bits)
    }
}

fn deltas(values: &[u64]) -> impl Iterator<Item = u64> {
    let mut last = 0i64;
    values.iter().map(move |value| {
        let delta = (*value as i64).wrapping_sub(last);
        last = *value as i64;
        ((delta << 1) ^ (delta >> 63)) as u64
    })
}

fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn bytes(values: &[u64], form: Form, bits: u32) -> Vec<u8> {
    let mut out = Vec::new();
    match form {
        Form::Bits => {
            let (mut waiting, mut count) = (0u64, 0u32);
            for value in values {
                waiting |= value << count;
                count += bits;
                while count >= 8 {
                    out.push(waiting as u8);
                    waiting >>= 8;
                    count -= 8;
                }
            }
            if count > 0 {
                out.push(waiting as u8);
            }
        }
        Form::Varint => values.iter().for_each(|value| varint(&mut out, *value)),
        Form::Delta => deltas(values).for_each(|delta| varint(&mut out, delta)),
    }
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A column in a document.
#[derive(Deserialize)]
pub(crate) struct Written {
    title: Text,
    unit: Unit,
    scale: u64,
    labels: Vec<Text>,
    form: Form,
    bits: u32,
    data: String,
}

impl Written {
    /// The column with so many values.
    pub(crate) fn values(self, rows: usize) -> Result<Column, &'static str> {
        let Self { title, unit, scale, labels, form, bits, data } = self;
        let bytes = from_base64(&data).ok_or("a column is not base64")?;
        let values = read(&bytes, form, bits, rows).ok_or("a column is too short")?;
        Ok(Column { title, unit, scale, labels, values })
    }
}

/// The values of a column; none if the bytes are not as many as they need.
fn read(mut bytes: &[u8], form: Form, bits: u32, rows: usize) -> Option<Vec<u64>> {
    // Each value has a bit at least, so that no number of rows takes more memory than its bytes allow.
    if rows.div_ceil(8) > bytes.len() {
        return None;
    }
    if form == Form::Bits {
        let needed = (1..=MOST_BITS).contains(&bits).then(|| rows.checked_mul(bits as usize))??;
        return (needed.div_ceil(8) <= bytes.len()).then(|| unpacked(bytes, bits, rows));
    }
    let mut last = 0i64;
    let mut value = || {
        let coded = read_varint(&mut bytes)?;
        if form == Form::Varint {
            return Some(coded);
        }
        last = last.wrapping_add((coded >> 1) as i64 ^ -((coded & 1) as i64));
        Some(last as u64)
    };
    (0..rows).map(|_| value()).collect()
}

fn unpacked(bytes: &[u8], bits: u32, rows: usize) -> Vec<u64> {
    let (mut waiting, mut count, mut next) = (0u64, 0u32, bytes.iter());
    let value = |_| {
        while count < bits {
            waiting |= u64::from(next.next().copied().unwrap_or(0)) << count;
            count += 8;
        }
        let value = waiting & ((1 << bits) - 1);
        waiting >>= bits;
        count -= bits;
        value
    };
    (0..rows).map(value).collect()
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let all = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// The bytes of [`base64`].
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut values = [None; 256];
    (0u8..).zip(DIGITS).for_each(|(value, digit)| values[usize::from(*digit)] = Some(value));
    let digits = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let mut all = 0u32;
        for (at, digit) in four.iter().enumerate() {
            all |= u32::from(values[usize::from(*digit)]?) << (18 - 6 * at);
        }
        out.extend_from_slice(&all.to_be_bytes()[1..four.len()]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::MOST;
    use proptest::prelude::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn a_column_has_its_shortest_form() {
        for (values, form) in [
            (vec![0, 1, 3, 2, 0, 1, 1], Form::Bits),
            (vec![1 << 40, (1 << 40) + 1, (1 << 40) + 2], Form::Delta),
            (vec![1 << 30, 1, 1, 1 << 30, 1, 1], Form::Varint),
            (vec![1 << 51, (1 << 51) + 1], Form::Delta),
            (vec![1 << 52, (1 << 52) + 1, (1 << 52) + 2], Form::Varint),
            (vec![], Form::Bits),
        ] {
            assert_eq!(form_of(&values).0, form, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn each_form_has_all_of_the_values(values in prop::collection::vec(0..=MOST, 0..40)) {
            for (form, values) in [
                (Form::Varint, values.clone()),
                (Form::Delta, values.clone()),
                (Form::Bits, values.iter().map(|value| value & 0xff_ffff).collect()),
            ] {
                let bits = form_of(&values).1;
                let bytes = bytes(&values, form, bits);
                let found = read(&bytes, form, bits, values.len());
                // A reader needs no more, and has enough with no less.
                let short = &bytes[..bytes.len().saturating_sub(1)];
                prop_assert!(values.is_empty() || read(short, form, bits, values.len()).is_none());
                prop_assert_eq!(found, Some(values));
                prop_assert_eq!(from_base64(&base64(&bytes)), Some(bytes));
            }
        }
    }
}
