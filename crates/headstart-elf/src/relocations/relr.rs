//! The packed form of relative relocations (`DT_RELR`, gABI draft of 2018): an even word is the
//! address of a word to relocate; an odd one has a bit for each of the 63 words behind the last
//! one that was told of.

/// Bytes of a word.
const WORD: u64 = 8;
/// Words that a bitmap tells of.
const BITS: u64 = 63;

/// Packs addresses, which are even, ascending, and 8 or more apart.
pub fn encode(addresses: &[u64]) -> Vec<u64> {
    let mut out = Vec::new();
    let mut left = addresses.iter().copied().peekable();
    while let Some(address) = left.next() {
        out.push(address);
        let Some(mut base) = address.checked_add(WORD) else { continue };
        loop {
            let mut bits = 0;
            while let Some(next) = left.peek() {
                let Some(distance) = next.checked_sub(base) else { break };
                if distance >= BITS * WORD || !distance.is_multiple_of(WORD) {
                    break;
                }
                bits |= 1 << (distance / WORD);
                left.next();
            }
            if bits == 0 {
                break;
            }
            out.push(bits << 1 | 1);
            let Some(next) = base.checked_add(BITS * WORD) else { break };
            base = next;
        }
    }
    out
}

/// The addresses that words tell of, as a loader finds them: 63 for each word at most. A bitmap
/// before any address counts from 0; sums wrap.
pub fn decode(words: impl IntoIterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut base = 0u64;
    words.into_iter().flat_map(move |word| {
        let (from, bits) = if word & 1 == 0 { (word, 1) } else { (base, word >> 1) };
        base = if word & 1 == 0 { word.wrapping_add(WORD) } else { base.wrapping_add(BITS * WORD) };
        set_bits(bits).map(move |bit| from.wrapping_add(bit * WORD))
    })
}

/// The numbers of the bits that are set, ascending.
fn set_bits(mut bits: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros();
        bits &= bits.checked_sub(1)?;
        Some(bit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    #[test]
    fn addresses_become_one_address_and_bitmaps() {
        for (addresses, words) in [
            (vec![], vec![]),
            (vec![0x1000], vec![0x1000]),
            (vec![0x1000, 0x1008], vec![0x1000, 0b11]),
            (vec![0x1000, 0x1010], vec![0x1000, 0b101]),
            // The last that a bitmap reaches, and the first of the next.
            (vec![0x1000, 0x1000 + 63 * 8], vec![0x1000, 1 << 63 | 1]),
            (vec![0x1000, 0x1008, 0x1000 + 64 * 8], vec![0x1000, 0b11, 0b11]),
            (vec![0x1000, 0x1000 + 64 * 8], vec![0x1000, 0x1200]),
            // Not a multiple of 8 away.
            (vec![0x1000, 0x100c], vec![0x1000, 0x100c]),
            (vec![u64::MAX - 7, u64::MAX - 1], vec![u64::MAX - 7, u64::MAX - 1]),
        ] {
            assert_eq!(encode(&addresses), words, "{addresses:x?}");
        }
    }

    #[test]
    fn a_bitmap_without_an_address_counts_from_zero() {
        assert_eq!(decode([0b101, 0x2000]).collect::<Vec<_>>(), [8, 0x2000]);
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            words in btree_set(0u64..4000, 0..600), shift in 0u64..4, far in any::<u32>()
        ) {
            let base = u64::from(far) * 8 + shift * 2;
            let addresses: Vec<u64> = words.into_iter().map(|word| base + word * 8).collect();
            let packed = encode(&addresses);
            prop_assert!(packed.len() <= addresses.len());
            prop_assert_eq!(decode(packed).collect::<Vec<_>>(), addresses);
        }

        #[test]
        fn any_words_are_unpacked(words in prop::collection::vec(any::<u64>(), 0..40)) {
            let most = words.len() * 63;
            prop_assert!(decode(words).count() <= most);
        }
    }
}
