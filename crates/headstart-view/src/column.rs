//! Columns in documents: as bytes in base64, which a million rows need so that a page stays small.
//!
//! Of three forms, a column has the shortest: `bits` (each value has the same number of bits, the
//! lowest first), `varint` (LEB128) or `delta` (differences to the value before, with their signs in
//! the lowest bits, as LEB128).

use crate::picture::{Column, Text, Unit};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// A form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
        let name = match form {
            Form::Bits => "bits",
            Form::Varint => "varint",
            Form::Delta => "delta",
        };
        out.serialize_field("form", name)?;
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

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::MOST;
    use proptest::prelude::*;

    fn read(bytes: &[u8], form: Form, bits: u32, rows: usize) -> Vec<u64> {
        let mut at = 0;
        let mut varint = || {
            let (mut value, mut shift) = (0u64, 0);
            loop {
                let byte = bytes[at];
                at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        };
        let mut last = 0i64;
        let one = |row: usize| match form {
            Form::Varint => varint(),
            Form::Delta => {
                let coded = varint();
                last = last.wrapping_add((coded >> 1) as i64 ^ -((coded & 1) as i64));
                last as u64
            }
            Form::Bits => (0..bits as usize)
                .map(|bit| row * bits as usize + bit)
                .enumerate()
                .map(|(to, bit)| u64::from(bytes[bit / 8] >> (bit % 8) & 1) << to)
                .sum(),
        };
        (0..rows).map(one).collect()
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
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
                prop_assert_eq!(read(&bytes(&values, form, bits), form, bits, values.len()), values);
            }
        }
    }
}
