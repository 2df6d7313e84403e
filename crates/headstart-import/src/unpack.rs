//! Decompresses parts of files, never to more than a limit.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::Read;

/// What begins a zstd frame (RFC 8878).
const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();
/// An empty last block, and the checksum that a frame may end with: it is not verified.
const END_OF_FRAME: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// How a part is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// zlib (RFC 1950).
    Zlib,
    /// A zstd frame, with or without its first four bytes, as trace-cmd writes it.
    Zstd,
}

/// The content of a compressed part, if it is sound and of `limit` bytes at most.
pub fn unpack(part: &[u8], compression: Compression, limit: usize) -> Option<Vec<u8>> {
    match compression {
        Compression::None => (part.len() <= limit).then(|| part.to_vec()),
        Compression::Zlib => {
            miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(part, limit).ok()
        }
        Compression::Zstd => {
            let magic = if part.starts_with(&ZSTD_MAGIC) { &[][..] } else { &ZSTD_MAGIC };
            zstd(magic.chain(part), limit)
        }
    }
}

/// The content of a zstd frame that was written piece by piece and has no end, as that of the
/// compressed records of perf.
pub(crate) fn unpack_stream(pieces: impl Read, limit: usize) -> Option<Vec<u8>> {
    zstd(pieces.chain(&END_OF_FRAME[..]), limit)
}

fn zstd(mut source: impl Read, limit: usize) -> Option<Vec<u8>> {
    let mut decoder = FrameDecoder::new();
    decoder.init(&mut source).ok()?;
    let mut out = Vec::new();
    // Block by block, since nothing else bounds what is unpacked.
    while !decoder.is_finished() {
        decoder.decode_blocks(&mut source, BlockDecodingStrategy::UptoBlocks(1)).ok()?;
        decoder.collect_to_writer(&mut out).ok()?;
        if out.len() > limit {
            return None;
        }
    }
    decoder.collect_to_writer(&mut out).ok()?;
    (out.len() <= limit).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(data: &[u8], compression: Compression) -> Vec<u8> {
        match compression {
            Compression::None => data.to_vec(),
            Compression::Zlib => miniz_oxide::deflate::compress_to_vec_zlib(data, 6),
            Compression::Zstd => {
                use ruzstd::encoding::{CompressionLevel, compress_to_vec};
                compress_to_vec(data, CompressionLevel::Fastest)
            }
        }
    }

    const ALL: [Compression; 3] = [Compression::None, Compression::Zlib, Compression::Zstd];

    #[test]
    fn a_part_that_is_larger_than_the_limit_is_refused() {
        let data = vec![7; 300_000];
        for compression in ALL {
            let part = packed(&data, compression);
            assert_eq!(unpack(&part, compression, data.len()).as_ref(), Some(&data));
            assert_eq!(unpack(&part, compression, data.len() - 1), None, "{compression:?}");
        }
    }

    #[test]
    fn a_frame_without_its_magic_or_without_its_end_is_read() {
        let data = b"a start reads its files, its files, its files".repeat(9);
        let frame = packed(&data, Compression::Zstd);
        assert_eq!(unpack(&frame[4..], Compression::Zstd, 9999).as_ref(), Some(&data));
        // A raw block that is not the last one.
        let open = [&ZSTD_MAGIC[..], &[0x00, 0x58], &[5 << 3, 0, 0], b"hello"].concat();
        assert_eq!(unpack(&open, Compression::Zstd, 9999), None);
        assert_eq!(unpack_stream(&open[..], 9999).as_deref(), Some(&b"hello"[..]));
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_back(data in prop::collection::vec(any::<u8>(), 0..2000)) {
            for compression in ALL {
                let part = packed(&data, compression);
                prop_assert_eq!(unpack(&part, compression, data.len()), Some(data.clone()));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
            for compression in ALL {
                let found = unpack(&data, compression, 1000);
                prop_assert!(found.is_none_or(|found| found.len() <= 1000));
            }
        }
    }
}
