//! LEB128 numbers and the cursor of the decoder. Pure.

use super::codec::PackError;

/// Appends `value`, seven bits a byte, low bits first.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number, small magnitudes short (zigzag).
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends bytes behind their number.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above wrote; every error means a broken file.
#[derive(Debug)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn number(&mut self) -> Result<u64, PackError> {
        // Most numbers are one byte.
        if let [byte @ 0..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok(u64::from(*byte));
        }
        let mut value = 0u64;
        for (i, byte) in self.0.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if i == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * i);
            if byte & 0x80 == 0 {
                self.0 = &self.0[i + 1..];
                return Ok(value);
            }
        }
        Err(PackError::Corrupt("number"))
    }

    pub fn signed(&mut self) -> Result<i64, PackError> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, PackError> {
        T::try_from(self.number()?).map_err(|_| PackError::Corrupt("number"))
    }

    pub fn byte(&mut self) -> Result<u8, PackError> {
        let (&byte, rest) = self.0.split_first().ok_or(PackError::Corrupt("length"))?;
        self.0 = rest;
        Ok(byte)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], PackError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(PackError::Corrupt("length"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], PackError> {
        let length: usize = self.narrow()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(PackError::Corrupt("length"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub fn text(&mut self) -> Result<String, PackError> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// A count of things that take at least `least` bytes each: more than the
    /// rest can hold is refused before anything is allocated for them.
    pub fn count(&mut self, least: usize) -> Result<usize, PackError> {
        let count: usize = self.narrow()?;
        if count > self.0.len() / least { Err(PackError::Corrupt("count")) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlong_and_cut_numbers_are_refused() {
        for bytes in [
            &b""[..],
            b"\x80",
            &[0xff; 11],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert!(Cursor(bytes).number().is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, signed: i64) {
            let mut out = Vec::new();
            put(&mut out, value);
            put_signed(&mut out, signed);
            let mut cursor = Cursor(&out);
            prop_assert_eq!(cursor.number().unwrap(), value);
            prop_assert_eq!(cursor.signed().unwrap(), signed);
            prop_assert!(cursor.0.is_empty());
        }
    }
}
