//! Reads protocol buffers: numbered fields with numbers or bytes.

/// A field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field<'a> {
    pub number: u64,
    /// Of a field that is a number.
    pub value: Option<u64>,
    /// Of a text or a message.
    pub bytes: Option<&'a [u8]>,
}

/// The fields of a message, up to what can't be read.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let (key, after) = varint(rest)?;
        let number = key >> 3;
        let (value, bytes, after) = match key & 7 {
            0 => {
                let (value, after) = varint(after)?;
                (Some(value), None, after)
            }
            1 => (None, None, after.get(8..)?),
            2 => {
                let (length, after) = varint(after)?;
                let (bytes, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
                (None, Some(bytes), after)
            }
            5 => (None, None, after.get(4..)?),
            _ => return None,
        };
        rest = after;
        Some(Field { number, value, bytes })
    })
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 127).checked_shl(7 * at as u32)?;
        if byte & 128 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}
