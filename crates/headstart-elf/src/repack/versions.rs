//! The version needs (`DT_VERNEED`): glibc loads a file with `DT_RELR` that needs libc.so only if
//! it needs the version `GLIBC_ABI_DT_RELR` of it, so that an older glibc refuses it (glibc,
//! elf/dl-version.c).

use super::refuse::Refusal;
use crate::image::{Image, dynamic};

/// The name of that version.
pub(super) const NAME: &[u8] = b"GLIBC_ABI_DT_RELR";
/// How the names of the C libraries begin that check for it.
const LIBC: &[u8] = b"libc.so.";
/// More needs than any file has: the limit of the index of a version.
const MOST: usize = 0x7fff;

/// What is needed of a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Need {
    /// `vn_version`
    pub version: u16,
    /// Where its name is in the string table.
    pub file: u32,
    /// The versions.
    pub versions: Vec<Version>,
}

/// A version that is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Version {
    /// Hash of the name.
    pub hash: u32,
    /// `vna_flags`
    pub flags: u16,
    /// The index that symbols have it by.
    pub index: u16,
    /// Where its name is in the string table.
    pub name: u32,
}

/// The hash of the gABI.
pub(super) fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, byte| {
        let next = (hash << 4).wrapping_add((*byte).into());
        (next ^ (next & 0xf000_0000) >> 24) & 0x0fff_ffff
    })
}

fn half(image: &Image, address: u64) -> Option<u16> {
    Some(u16::from_le_bytes(image.at(address, 2)?.try_into().ok()?))
}

fn word(image: &Image, address: u64) -> Option<u32> {
    Some(u32::from_le_bytes(image.at(address, 4)?.try_into().ok()?))
}

/// What a file needs; empty if it has no such table, nothing if that is damaged.
pub(super) fn needs(image: &Image) -> Option<Vec<Need>> {
    let mut out = Vec::new();
    let (Some(mut at), Some(count)) = (image.tag(dynamic::VERNEED), image.tag(dynamic::VERNEEDNUM))
    else {
        return Some(out);
    };
    let mut left = MOST;
    for n in 0..count {
        left = left.checked_sub(1)?;
        let mut need =
            Need { version: half(image, at)?, file: word(image, at + 4)?, versions: Vec::new() };
        let mut aux = at.checked_add(word(image, at + 8)?.into())?;
        for _ in 0..half(image, at + 2)? {
            left = left.checked_sub(1)?;
            need.versions.push(Version {
                hash: word(image, aux)?,
                flags: half(image, aux + 4)?,
                index: half(image, aux + 6)?,
                name: word(image, aux + 8)?,
            });
            aux = aux.checked_add(word(image, aux + 12)?.into())?;
        }
        out.push(need);
        let next = word(image, at + 12)?;
        if next == 0 && n + 1 < count {
            return None;
        }
        at = at.checked_add(next.into())?;
    }
    Some(out)
}

/// The file form.
pub(super) fn to_bytes(needs: &[Need]) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, need) in needs.iter().enumerate() {
        let count = need.versions.len();
        let next = if n + 1 == needs.len() { 0 } else { 16 + 16 * count as u32 };
        out.extend(need.version.to_le_bytes());
        out.extend((count as u16).to_le_bytes());
        for word in [need.file, 16, next] {
            out.extend(word.to_le_bytes());
        }
        for (m, version) in need.versions.iter().enumerate() {
            out.extend(version.hash.to_le_bytes());
            out.extend(version.flags.to_le_bytes());
            out.extend(version.index.to_le_bytes());
            out.extend(version.name.to_le_bytes());
            out.extend((if m + 1 == count { 0u32 } else { 16 }).to_le_bytes());
        }
    }
    out
}

/// The highest index of a version that a file defines.
fn last_defined(image: &Image) -> Option<u16> {
    let (Some(mut at), Some(count)) = (image.tag(dynamic::VERDEF), image.tag(dynamic::VERDEFNUM))
    else {
        return Some(1);
    };
    let mut last = 1;
    for _ in 0..count.min(MOST as u64) {
        last = last.max(half(image, at + 4)? & 0x7fff);
        at = at.checked_add(word(image, at + 16)?.into())?;
    }
    Some(last)
}

/// The needs with [`NAME`] added, whose string is at `name` in the string table; nothing where
/// none has to be.
pub(super) fn with_relr(image: &Image, name: u64) -> Result<Option<Vec<Need>>, Refusal> {
    let damaged = || Refusal::Unusual("its table of needed versions is damaged");
    let needs_libc = image.needed().iter().any(|name| name.starts_with(LIBC));
    if !needs_libc || image.tag(dynamic::VERNEED).is_none() {
        return Ok(None);
    }
    let mut needs = needs(image).ok_or_else(damaged)?;
    let of_needs = needs.iter().flat_map(|need| &need.versions).map(|one| one.index & 0x7fff);
    let last = of_needs.max().unwrap_or(1).max(last_defined(image).ok_or_else(damaged)?);
    let is_libc = |need: &&mut Need| {
        image.dynamic_string(need.file.into()).is_some_and(|name| name.starts_with(LIBC))
    };
    let libc = needs.iter_mut().find(is_libc).ok_or(Refusal::NoVersionOfLibc)?;
    if libc.versions.iter().any(|one| image.dynamic_string(one.name.into()) == Some(NAME)) {
        return Ok(None);
    }
    if usize::from(last) + 1 >= MOST {
        return Err(Refusal::Unusual("it has no index left for another version"));
    }
    let name = u32::try_from(name).map_err(|_| damaged())?;
    libc.versions.push(Version { hash: hash(NAME), flags: 0, index: last + 1, name });
    Ok(Some(needs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_gabi() {
        // As in the vernaux entries that linkers write.
        assert_eq!(hash(NAME), 0x00fd_0e42);
        assert_eq!(hash(b"GLIBC_2.2.5"), 0x0969_1a75);
    }
}
