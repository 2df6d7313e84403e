//! The journal of a layout: all swaps with the old and new places of their blocks, written before the
//! first one is made, and not changed. Pure.
//!
//! The first line is the version, the second the CRC-64 of the third, which is JSON. A reader checks
//! all of it: ranges overlap nowhere, and names lead nowhere else.
//!
//! Swaps are made in two rounds. In the first, other files give up the blocks between the donor's; in the second, what
//! is laid out gets the donor's blocks, those included. `undo` takes the second back first.

use super::direction::Direction;
use super::plan::{Piece, exchanged};
use crc::{CRC_64_XZ, Crc, Table};
use headstart::host::identity::Identity;
use headstart::host::json_path::JsonPath;
use headstart::host::range::ByteRange;
use headstart_sys::fiemap::Extent;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

/// The first line. Only version 3 moves something aside; version 1 names no packs.
const MAGIC: &[u8] = b"headstart-layout 3\n";
const EARLIER: [&[u8]; 2] = [b"headstart-layout 2\n", b"headstart-layout 1\n"];
/// Of the journal, and of what files hold.
pub(crate) const CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);
/// Digits of a CRC-64.
const DIGITS: usize = 16;

/// A layout of one file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Journal {
    /// UUID of the file system, if it has one.
    pub uuid: Option<[u8; 16]>,
    /// When it was made, in seconds of Unix time.
    pub made_at: u64,
    /// Bytes of a block.
    pub block: u64,
    /// The donor.
    pub donor: Donor,
    /// The files.
    pub files: Vec<LaidFile>,
    /// Ranges of other files, which are moved aside before.
    pub aside: Vec<Swap>,
    /// The ranges that are laid out, in touch order, on xfs in that of their places in the donor.
    pub swaps: Vec<Swap>,
    /// The packs it was made for, which know where the extents of these files lie: absolute paths.
    pub packs: Vec<PathBuf>,
}

/// The file that was allocated for the new places, and gets the old ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Donor {
    /// Its inode number.
    pub ino: u64,
    /// Where it lay before the first swap.
    pub extents: Vec<Extent>,
}

/// A file that is laid out, or moved aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaidFile {
    /// Its path below the root of the file system.
    pub path: PathBuf,
    /// What it was.
    pub identity: Identity,
}

/// A range of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Swap {
    /// The range, its old place, and its place in the donor.
    pub piece: Piece,
    /// Where it lies when the swap was made.
    pub new: Vec<Extent>,
    /// CRC-64 of its bytes, as far as the file goes.
    pub crc: u64,
}

/// What a round of swaps does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// It moves other files aside.
    Aside,
    /// It moves what is laid out.
    LaidOut,
}

/// Why a journal can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JournalError {
    /// Another version wrote it.
    #[error("another version of headstart wrote it; use that version, or headstart layout release")]
    Version,
    /// It is damaged.
    #[error("it is damaged ({0}); all files are whole, and headstart layout release removes it")]
    Damaged(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Form {
    uuid: Option<[u8; 16]>,
    made_at: u64,
    block: u64,
    donor_ino: u64,
    /// Physical place and length.
    donor: Vec<(u64, u64)>,
    files: Vec<FileForm>,
    #[serde(default)]
    aside: Vec<SwapForm>,
    swaps: Vec<SwapForm>,
    #[serde(default)]
    packs: Vec<JsonPath>,
}

#[derive(Serialize, Deserialize)]
struct FileForm {
    #[serde(flatten)]
    path: JsonPath,
    ino: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

#[derive(Serialize, Deserialize)]
struct SwapForm {
    file: usize,
    offset: u64,
    length: u64,
    donor: u64,
    crc: u64,
    /// Physical place and length.
    old: Vec<(u64, u64)>,
}

impl Journal {
    /// All swaps, in the order in which they are made.
    pub fn all(&self) -> impl Iterator<Item = &Swap> {
        self.aside.iter().chain(&self.swaps)
    }

    /// The swaps of both rounds in the order of a direction. Blocks of the first get other content in the second, so
    /// the first has to be on the disk by then: after a crash a file could lie in blocks that were written for
    /// another one.
    pub(crate) fn rounds(&self, direction: Direction) -> [(Round, &[Swap]); 2] {
        let (aside, laid_out) =
            ((Round::Aside, &self.aside[..]), (Round::LaidOut, &self.swaps[..]));
        match direction {
            Direction::Apply => [aside, laid_out],
            Direction::Undo => [laid_out, aside],
        }
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        self.all().map(|swap| swap.piece.bytes.length()).sum()
    }

    /// How many files are laid out.
    pub fn laid_out_files(&self) -> usize {
        self.swaps.iter().map(|swap| swap.piece.file).collect::<HashSet<_>>().len()
    }

    /// Bytes of ranges that are moved aside.
    pub fn aside_bytes(&self) -> u64 {
        self.aside.iter().map(|swap| swap.piece.bytes.length()).sum()
    }

    /// Bytes that the donor takes.
    pub fn donor_bytes(&self) -> u64 {
        self.donor.extents.iter().map(|extent| extent.length).sum()
    }

    /// The file form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let pairs = |list: &[Extent]| list.iter().map(|e| (e.physical, e.length)).collect();
        let file = |file: &LaidFile| FileForm {
            path: file.path.as_path().into(),
            ino: file.identity.ino,
            size: file.identity.size,
            mtime_ns: file.identity.mtime_ns,
            ctime_ns: file.identity.ctime_ns,
        };
        let swap = |swap: &Swap| SwapForm {
            file: swap.piece.file,
            offset: swap.piece.bytes.offset,
            length: swap.piece.bytes.length(),
            donor: swap.piece.donor,
            crc: swap.crc,
            old: pairs(&swap.piece.old),
        };
        let form = Form {
            uuid: self.uuid,
            made_at: self.made_at,
            block: self.block,
            donor_ino: self.donor.ino,
            donor: pairs(&self.donor.extents),
            files: self.files.iter().map(file).collect(),
            aside: self.aside.iter().map(swap).collect(),
            swaps: self.swaps.iter().map(swap).collect(),
            packs: self.packs.iter().map(|path| path.as_path().into()).collect(),
        };
        // Numbers and lists are always JSON.
        let body = serde_json::to_vec(&form).unwrap_or_default();
        // What moves nothing aside can be undone by earlier versions of headstart, too.
        sealed(if self.aside.is_empty() { EARLIER[0] } else { MAGIC }, &body)
    }

    /// A journal with this body: version and checksum come before it.
    pub fn sealed(body: &[u8]) -> Vec<u8> {
        sealed(MAGIC, body)
    }

    /// From its file form.
    ///
    /// # Errors
    /// Another version wrote it, or it is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, JournalError> {
        use JournalError::Damaged;
        let mut versions = EARLIER.iter().chain([&MAGIC]);
        let rest = versions.find_map(|magic| bytes.strip_prefix(*magic));
        let rest = rest.ok_or(match bytes.starts_with(b"headstart-layout ") {
            true => JournalError::Version,
            false => Damaged("its begin"),
        })?;
        let (sum, rest) = rest.split_at_checked(DIGITS).ok_or(Damaged("its length"))?;
        let body = rest.strip_prefix(b"\n").and_then(|rest| rest.strip_suffix(b"\n"));
        let body = body.ok_or(Damaged("its length"))?;
        if sum != format!("{:016x}", CRC.checksum(body)).as_bytes() {
            return Err(Damaged("its checksum"));
        }
        let form: Form = serde_json::from_slice(body).map_err(|_| Damaged("its form"))?;
        if !bytes.starts_with(MAGIC) && !form.aside.is_empty() {
            return Err(Damaged("its version"));
        }
        form.checked().map_err(Damaged)
    }
}

fn sealed(magic: &[u8], body: &[u8]) -> Vec<u8> {
    [magic, format!("{:016x}\n", CRC.checksum(body)).as_bytes(), body, b"\n"].concat()
}

impl Form {
    /// The journal, if all of it can be true.
    fn checked(self) -> Result<Journal, &'static str> {
        if !self.block.is_power_of_two() {
            return Err("the size of a block");
        }
        let whole = |bytes: u64| bytes.is_multiple_of(self.block);
        let donor = extents(0, &self.donor).filter(|list| list.iter().all(|e| whole(e.length)));
        let donor = donor.ok_or("the donor")?;
        let donor = Donor { ino: self.donor_ino, extents: donor };
        let mut files = Vec::with_capacity(self.files.len());
        let mut seen = HashSet::new();
        for FileForm { path, ino, size, mtime_ns, ctime_ns } in self.files {
            let path = path.to_path();
            if !is_inside(&path) || ino == donor.ino || !seen.insert(ino) {
                return Err("a file");
            }
            files.push(LaidFile { path, identity: Identity { ino, size, mtime_ns, ctime_ns } });
        }
        let aside = swaps(self.aside, &files, self.block, &donor.extents)?;
        let pieces: Vec<&Piece> = aside.iter().map(|swap| &swap.piece).collect();
        let then = exchanged(&donor.extents, &pieces).ok_or("a new place")?;
        let swaps = swaps(self.swaps, &files, self.block, &then)?;
        let all = || aside.iter().chain(&swaps);
        let mut lengths = all().map(|swap| swap.piece.bytes.length());
        if lengths.try_fold(0, u64::checked_add).is_none() {
            return Err("a range");
        }
        if overlap(all().map(|swap| (swap.piece.file, swap.piece.bytes)).collect()) {
            return Err("ranges overlap");
        }
        let packs: Vec<PathBuf> = self.packs.iter().map(JsonPath::to_path).collect();
        if !packs.iter().all(|path| path.strip_prefix("/").is_ok_and(is_inside)) {
            return Err("a pack");
        }
        let Self { uuid, made_at, block, .. } = self;
        Ok(Journal { uuid, made_at, block, donor, files, aside, swaps, packs })
    }
}

/// The swaps of a round, if they can be true with this donor.
fn swaps(
    forms: Vec<SwapForm>,
    files: &[LaidFile],
    block: u64,
    donor: &[Extent],
) -> Result<Vec<Swap>, &'static str> {
    let whole = |bytes: u64| bytes.is_multiple_of(block);
    let mut out = Vec::with_capacity(forms.len());
    for SwapForm { file, offset, length, donor: at, crc, old } in forms {
        let size = files.get(file).ok_or("a file of a range")?.identity.size;
        let end = offset.checked_add(length).ok_or("a range")?;
        let is_in_file = size.checked_next_multiple_of(block).is_some_and(|all| end <= all);
        if length == 0 || !is_in_file || ![offset, length, at].iter().all(|n| whole(*n)) {
            return Err("a range");
        }
        let old = extents(offset, &old).ok_or("an old place")?;
        let covers = old.iter().try_fold(0u64, |sum, e| sum.checked_add(e.length));
        if covers != Some(length) {
            return Err("an old place");
        }
        at.checked_add(length).ok_or("a new place")?;
        let piece = Piece { file, bytes: ByteRange { offset, end }, old, donor: at };
        let new = piece.new_place(donor).ok_or("a new place")?;
        out.push(Swap { piece, new, crc });
    }
    let in_donor = |swap: &Swap| (0, ByteRange::of(swap.piece.donor, swap.piece.bytes.length()));
    if overlap(out.iter().map(in_donor).collect()) {
        return Err("ranges overlap");
    }
    Ok(out)
}

/// Extents that lie one behind the other in a file, from an offset on; `None` if one is empty or
/// too large.
fn extents(offset: u64, pairs: &[(u64, u64)]) -> Option<Vec<Extent>> {
    let (mut at, mut out) = (offset, Vec::with_capacity(pairs.len()));
    for &(physical, length) in pairs {
        physical.checked_add(length).filter(|_| length > 0)?;
        out.push(Extent { logical: at, physical, length });
        at = at.checked_add(length)?;
    }
    Some(out)
}

/// Whether any two ranges of one file overlap.
fn overlap(mut ranges: Vec<(usize, ByteRange)>) -> bool {
    ranges.sort_unstable();
    ranges.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[1].1.offset < pair[0].1.end)
}

/// Whether a path leads below the directory that it begins in, as far as its words tell.
fn is_inside(path: &Path) -> bool {
    let is_name = |part: Component| matches!(part, Component::Normal(_));
    !path.as_os_str().is_empty() && path.components().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// A journal with ranges of so many blocks, some of one file. Half of them get the blocks of files that are
    /// moved aside.
    fn journal(blocks: &[u64], block: u64, names: &[Vec<u8>]) -> Journal {
        use std::os::unix::ffi::OsStringExt;
        let all: u64 = blocks.iter().sum::<u64>() * block;
        let donor = vec![Extent { logical: 0, physical: 1 << 30, length: all.max(block) }];
        let file = |(n, name): (usize, &Vec<u8>)| LaidFile {
            path: std::ffi::OsString::from_vec(name.clone()).into(),
            identity: Identity { ino: 100 + n as u64, size: 1 << 40, mtime_ns: -5, ctime_ns: 7 },
        };
        let files: Vec<_> = names.iter().enumerate().map(file).collect();
        let pieces = |begin: u64| {
            let mut at = 0;
            let piece = |(n, count): (usize, &u64)| {
                let length = count * block;
                let bytes = ByteRange::of(begin + n as u64 * (1 << 30), length);
                let physical = begin + n as u64 * 999;
                let old = vec![Extent { logical: bytes.offset, physical, length }];
                at += length;
                Piece { file: n % names.len(), bytes, old, donor: at - length }
            };
            blocks.iter().enumerate().map(piece).collect::<Vec<_>>()
        };
        let swaps = |pieces: &[&Piece], donor: &[Extent]| {
            let swap = |piece: &&Piece| {
                let new = piece.new_place(donor).unwrap();
                Swap { piece: (*piece).clone(), new, crc: piece.donor }
            };
            pieces.iter().map(swap).collect::<Vec<_>>()
        };
        let (aside, moved) = (pieces(1 << 39), pieces(0));
        let aside: Vec<&Piece> = aside.iter().step_by(2).collect();
        let then = exchanged(&donor, &aside).unwrap();
        let swaps = (swaps(&aside, &donor), swaps(&moved.iter().collect::<Vec<_>>(), &then));
        let (aside, swaps) = swaps;
        let donor = Donor { ino: 12, extents: donor };
        let packs = names.iter().map(|name| Path::new("/").join(OsStr::from_bytes(name)));
        let packs = packs.collect();
        Journal { uuid: Some([7; 16]), made_at: 5, block, donor, files, aside, swaps, packs }
    }

    fn small() -> Journal {
        journal(&[3, 1], 4096, &[b"usr/lib/a".to_vec(), b"b\xff".to_vec()])
    }

    #[test]
    fn what_is_moved_aside_goes_first_and_comes_back_last() {
        let journal = small();
        let rounds =
            |direction| journal.rounds(direction).map(|(round, swaps)| (round, swaps.len()));
        assert_eq!(rounds(Direction::Apply), [(Round::Aside, 1), (Round::LaidOut, 2)]);
        assert_eq!(rounds(Direction::Undo), [(Round::LaidOut, 2), (Round::Aside, 1)]);
        let all: Vec<&Swap> = journal.all().collect();
        assert_eq!(all, [&journal.aside[0], &journal.swaps[0], &journal.swaps[1]]);
        assert_eq!((journal.bytes(), journal.aside_bytes()), (7 * 4096, 3 * 4096));
    }

    #[test]
    fn another_version_and_damage_are_refused_each_with_its_reason() {
        let good = small().to_bytes();
        let bad = |text: &str| Journal::from_bytes(text.as_bytes()).unwrap_err();
        assert_eq!(bad("headstart-layout 4\nx"), JournalError::Version);
        for text in ["", "x", "headstart-layout 3\n", "headstart-layout 3\n0123456789abcdef\n{}\n"]
        {
            assert!(matches!(bad(text), JournalError::Damaged(_)), "{text}");
        }
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            assert!(Journal::from_bytes(&bytes).is_err(), "byte {at}");
            assert!(Journal::from_bytes(&good[..at]).is_err(), "only {at} bytes");
        }
    }

    #[test]
    fn journals_of_earlier_versions_are_read() {
        // As headstart wrote them: the first version names no packs, and none of them moves anything aside.
        let body = r#"{"uuid":null,"made_at":5,"block":4096,"donor_ino":12,"donor":[[1073741824,16384]],"files":[{"path":"usr/lib/a","ino":100,"size":20000,"mtime_ns":-5,"ctime_ns":7}],"swaps":[{"file":0,"offset":4096,"length":12288,"donor":0,"crc":1,"old":[[8192,4096],[65536,8192]]}]}"#;
        let second = body.replace("]]}]}", "]]}],\"packs\":[{\"path\":\"/a.pack\"}]}");
        for (version, body, packs) in [(1, body, 0), (2, &second[..], 1)] {
            let sum = CRC.checksum(body.as_bytes());
            let text = format!("headstart-layout {version}\n{sum:016x}\n{body}\n");
            let found = Journal::from_bytes(text.as_bytes()).unwrap();
            assert_eq!((found.files.len(), found.swaps.len(), found.packs.len()), (1, 1, packs));
            assert_eq!(Journal::from_bytes(&found.to_bytes()), Ok(found));
        }
    }

    #[test]
    fn what_moves_nothing_aside_can_be_read_by_earlier_versions() {
        assert!(small().to_bytes().starts_with(MAGIC));
        let mut journal = small();
        // Its ranges have the donor as it is.
        let donor = journal.donor.extents.clone();
        journal.aside.clear();
        for swap in &mut journal.swaps {
            swap.new = swap.piece.new_place(&donor).unwrap();
        }
        let bytes = journal.to_bytes();
        assert!(bytes.starts_with(EARLIER[0]));
        assert_eq!(Journal::from_bytes(&bytes), Ok(journal));
    }

    #[test]
    fn ranges_that_are_longer_than_any_disk_are_refused() {
        let half = 1u64 << 63;
        let text = |aside: u64, donor: u64| {
            let swap = |file, length, old| {
                format!(
                    "{{\"file\":{file},\"offset\":0,\"length\":{length},\"donor\":{donor},\"crc\":1,\"old\":[[{old},{length}]]}}"
                )
            };
            let file = |ino| {
                format!(
                    "{{\"path\":\"a{ino}\",\"ino\":{ino},\"size\":{half},\"mtime_ns\":0,\"ctime_ns\":0}}"
                )
            };
            let (first, second) = (swap(0, aside, 0), swap(1, half, 0));
            let files = [file(5), file(6)].join(",");
            format!(
                "{{\"uuid\":null,\"made_at\":5,\"block\":1,\"donor_ino\":12,\"donor\":[[0,{half}],[0,{}]],\"files\":[{files}],\"aside\":[{first}],\"swaps\":[{second}]}}",
                half - 1
            )
        };
        let read = |text: String| Journal::from_bytes(&Journal::sealed(text.as_bytes()));
        assert_eq!(read(text(half, 0)), Err(JournalError::Damaged("a range")));
        assert_eq!(read(text(half, half + 1)), Err(JournalError::Damaged("a new place")));
        assert!(read(text(half - 1, 0)).is_ok());
    }

    #[test]
    fn a_journal_that_cannot_be_true_is_refused_though_its_checksum_is_right() {
        type Change = fn(&mut Journal);
        for (why, change) in [
            ("the size of a block", (|j| j.block = 4095) as Change),
            ("a file", |j| j.files[0].path = "../etc/shadow".into()),
            ("a file", |j| j.files[0].path = "/etc/shadow".into()),
            ("a file", |j| j.files[1].path = PathBuf::new()),
            ("a file", |j| j.files[1].identity.ino = 100),
            ("a file", |j| j.files[1].identity.ino = 12),
            ("a file of a range", |j| j.swaps[0].piece.file = 9),
            ("a range", |j| j.files[0].identity.size = 4096),
            ("a range", |j| j.swaps[0].piece.donor += 1),
            ("a range", |j| j.swaps[0].piece.bytes = ByteRange { offset: 1, end: 12_288 }),
            ("an old place", |j| j.swaps[0].piece.old[0].length = 4096),
            ("an old place", |j| j.swaps[0].piece.old.clear()),
            ("an old place", |j| j.swaps[0].piece.old[0].physical = u64::MAX),
            ("a new place", |j| j.swaps[1].piece.donor = 1 << 40),
            ("the donor", |j| j.donor.extents[0].length = 5),
            ("a pack", |j| j.packs[0] = "usr/lib/a.pack".into()),
            ("a pack", |j| j.packs[0] = "/usr/../a.pack".into()),
            ("a pack", |j| j.packs[0] = "/".into()),
            ("a new place", |j| j.aside[0].piece.donor = 1 << 40),
            ("ranges overlap", |j| j.swaps[1].piece.donor = 8192),
            ("ranges overlap", |j| {
                let twice = j.aside[0].clone();
                j.aside.push(twice);
            }),
            ("ranges overlap", |j| {
                j.aside[0].piece.bytes = ByteRange::of(0, 12_288);
                j.aside[0].piece.old[0].logical = 0;
            }),
            ("ranges overlap", |j| {
                j.swaps[1].piece.file = 0;
                j.swaps[1].piece.bytes = ByteRange { offset: 8192, end: 12_288 };
                j.swaps[1].piece.old[0].logical = 8192;
            }),
        ] {
            let mut journal = small();
            change(&mut journal);
            let found = Journal::from_bytes(&journal.to_bytes());
            assert_eq!(found, Err(JournalError::Damaged(why)));
        }
    }

    proptest! {
        #[test]
        fn a_journal_can_be_had_back(
            blocks in prop::collection::vec(1u64..1000, 0..20),
            shift in 10u32..17,
            names in prop::collection::vec(prop::collection::vec(1u8.., 1..20), 1..5),
        ) {
            let names: Vec<Vec<u8>> = names.into_iter().map(|mut name| {
                name.iter_mut().filter(|b| matches!(**b, b'/' | b'.')).for_each(|b| *b = b'_');
                name
            }).collect();
            let journal = journal(&blocks, 1 << shift, &names);
            prop_assert_eq!(Journal::from_bytes(&journal.to_bytes()), Ok(journal));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Journal::from_bytes(&bytes);
            let _ = Journal::from_bytes(&Journal::sealed(&bytes));
        }
    }
}
