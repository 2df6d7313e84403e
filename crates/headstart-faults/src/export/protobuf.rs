//! The encoding of Protocol Buffers (<https://protobuf.dev/programming-guides/encoding>), as far as
//! [`super::perfetto`] needs it.

/// The wire types.
const VARINT: u64 = 0;
const LENGTH: u64 = 2;

/// A message as its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    /// A message with what this adds.
    pub fn of(fill: impl FnOnce(&mut Self)) -> Self {
        let mut message = Self::default();
        fill(&mut message);
        message
    }

    /// Adds a number. Negative ones of 32 bits are sign-extended, as the encoding has them.
    pub fn number(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    /// Adds bytes or text.
    pub fn bytes(&mut self, field: u32, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.key(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Adds a message.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        self.bytes(field, Self::of(fill).0);
    }

    fn key(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Decodes for tests, by the specification and not by what encodes.
#[cfg(test)]
pub mod decoded {
    /// A field of a message.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Value {
        Number(u64),
        Bytes(Vec<u8>),
    }

    /// The fields of a message, or `None` if it is none.
    pub fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value)>> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes)?;
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)?),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (head, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    Value::Bytes(head.to_vec())
                }
                _ => return None,
            };
            found.push((key >> 3, value));
        }
        Some(found)
    }

    fn varint(bytes: &mut &[u8]) -> Option<u64> {
        let end = bytes.iter().position(|byte| byte & 0x80 == 0)?;
        let (head, rest) = bytes.split_at(end + 1);
        *bytes = rest;
        let group = |(at, byte): (usize, &u8)| u64::from(byte & 0x7f) << (7 * at);
        (head.len() <= 10).then(|| head.iter().enumerate().map(group).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::decoded::{Value, fields};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_and_text_are_as_in_the_specification() {
        let message = Message::of(|message| {
            message.number(1, 150);
            message.bytes(2, "testing");
            message.message(3, |inner| inner.number(1, 150));
        });
        let expected = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(message.0, expected);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            numbers in proptest::collection::vec((1u32..1 << 29, any::<u64>()), 0..9),
            text in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let message = Message::of(|message| {
                numbers.iter().for_each(|(field, value)| message.number(*field, *value));
                message.bytes(7, &text);
            });
            let number = |(field, value): &(u32, u64)| (u64::from(*field), Value::Number(*value));
            let mut expected: Vec<_> = numbers.iter().map(number).collect();
            expected.push((7, Value::Bytes(text)));
            prop_assert_eq!(fields(&message.0), Some(expected));
        }
    }
}
