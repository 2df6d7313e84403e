//! What replays of packs read, step by step, and where that lies before and after a layout. Pure;
//! [`super::replays`] finds it.

use super::extents::{end, parts, within};
use super::plan::{Piece, Plan};
use headstart::host::range::ByteRange;
use headstart::replay::gaps::divided;
use headstart::replay::places::joined;
use headstart::replay::requests::{Submitted, requests};
use headstart::replay::strategy::ReadStrategy;
use headstart_sys::fiemap::Extent;
use std::collections::BTreeMap;
use std::iter;

/// The replay of one pack, as far as it reads from one file system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// How it reads.
    pub strategy: ReadStrategy,
    /// Steps of files, in the order of the plan.
    pub steps: Vec<ReadStep>,
    /// Steps of metadata, which stays where it is, in the order of the plan.
    pub metadata: Vec<MetadataStep>,
    /// How long the start takes with its files in memory, in µs, if that is known.
    pub computing_us: Option<u64>,
}

/// Metadata that is requested at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataStep {
    /// How many steps of files come before it.
    pub files_before: usize,
    /// Where it lies on the device.
    pub bytes: ByteRange,
}

/// What is requested of a file at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadStep {
    /// Index of its file among those that are moved, if it is one of them.
    pub file: Option<usize>,
    /// What of the file.
    pub bytes: ByteRange,
    /// Gaps in that, which are not read where they lie elsewhere.
    pub gaps: Vec<ByteRange>,
    /// Where it lies.
    pub extents: Vec<Extent>,
    /// When the last learned start first touched something of it, in µs.
    pub touched_us: u32,
}

impl ReadStep {
    /// Where that lies which is read, each part with its pieces.
    pub fn read(&self) -> Vec<Vec<ByteRange>> {
        let place = |extent: &Extent| ByteRange::of(extent.physical, extent.length);
        let places = |extents: &[Extent]| extents.iter().map(place).collect();
        if self.gaps.is_empty() {
            return vec![places(&self.extents)];
        }
        let extents = joined(self.extents.clone());
        let read = divided(self.bytes, self.gaps.iter().copied(), &extents);
        read.into_iter().map(|part| places(&parts(&self.extents, part))).collect()
    }

    /// How many bytes of the device hold it.
    fn stored(&self) -> u64 {
        self.extents.iter().map(|extent| extent.length).sum()
    }
}

impl Replayed {
    /// Its requests of at most `largest` bytes, in the order of the plan, with the indices of their steps, of which
    /// those of metadata have none.
    pub fn requests(&self, largest: u64) -> Vec<Submitted> {
        let numbered = self.steps.iter().enumerate();
        let read = |(number, step): (usize, &ReadStep)| {
            step.read().into_iter().map(move |part| (part, number))
        };
        let (parts, step_of): (Vec<_>, Vec<_>) = numbered.flat_map(read).unzip();
        let one_by_one = ReadStrategy { batched: false, rows: None, ..self.strategy };
        let blocks: Vec<_> = self.metadata.iter().map(|step| vec![step.bytes]).collect();
        let block = |Submitted { steps, run }: Submitted| {
            let step = steps.first().and_then(|&block| self.metadata.get(block));
            (step.map_or(0, |step| step.files_before), Submitted { steps: Vec::new(), run })
        };
        let blocks = requests(&one_by_one, &blocks, largest).into_iter();
        let mut blocks = blocks.map(block).peekable();
        let mut out = Vec::new();
        for Submitted { mut steps, run } in requests(&self.strategy, &parts, largest) {
            steps.iter_mut().for_each(|part| *part = step_of[*part]);
            let first = steps.iter().min().copied().unwrap_or(0);
            let due = iter::from_fn(|| blocks.next_if(|(before, _)| *before <= first));
            out.extend(due.map(|(_, block)| block));
            out.push(Submitted { steps, run });
        }
        out.extend(blocks.map(|(_, block)| block));
        out
    }

    /// The same when each piece of a plan lies where `new` says, by its index.
    #[must_use]
    pub fn moved(&self, pieces: &Pieces<'_>, new: &[Vec<Extent>]) -> Self {
        let step = |step: &ReadStep| {
            let Some(file) = step.file else { return step.clone() };
            let extents = pieces.moved(file, &step.extents, new);
            let mut moved = ReadStep { extents, ..step.clone() };
            // Of what is compressed it is not known what lies beside what.
            if moved.stored() != step.stored() {
                moved.gaps.clear();
            }
            moved
        };
        Self { steps: self.steps.iter().map(step).collect(), ..self.clone() }
    }
}

/// The pieces of a plan by their files and places in them.
#[derive(Clone, Debug)]
pub struct Pieces<'a>(BTreeMap<(usize, u64), (usize, &'a Piece)>);

impl<'a> Pieces<'a> {
    /// Those of a plan.
    pub fn of(plan: &'a Plan) -> Self {
        let piece = |(number, piece): (usize, &'a Piece)| {
            ((piece.file, piece.bytes.offset), (number, piece))
        };
        Self(plan.pieces.iter().enumerate().map(piece).collect())
    }

    /// Where parts of a file lie then.
    fn moved(&self, file: usize, extents: &[Extent], new: &[Vec<Extent>]) -> Vec<Extent> {
        let mut out = Vec::new();
        for extent in extents {
            let mut at = extent.logical;
            while at < end(extent) {
                let before = self.0.range(..=(file, at)).next_back().map(|(_, piece)| *piece);
                let holder = before.filter(|(_, p)| p.file == file && at < p.bytes.end);
                let next = self.0.range((file, at)..).next().filter(|(key, _)| key.0 == file);
                let until = match holder {
                    Some((_, piece)) => piece.bytes.end,
                    None => next.map_or(u64::MAX, |(key, _)| key.1),
                };
                let bytes = ByteRange { offset: at, end: until.min(end(extent)) };
                let stays = || within(&[*extent], bytes).unwrap_or_default();
                out.extend(
                    match holder.and_then(|(number, piece)| Some((piece, new.get(number)?))) {
                        Some((piece, new)) => part_of(piece.bytes, new, bytes),
                        None => stays(),
                    },
                );
                at = bytes.end;
            }
        }
        out
    }
}

/// Where a part of a piece lies if that lies here. Of one that takes another number of bytes there, since it is
/// compressed, a part has its share.
fn part_of(piece: ByteRange, new: &[Extent], part: ByteRange) -> Vec<Extent> {
    let Some(first) = new.first() else { return Vec::new() };
    let all = new.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.length));
    if all == piece.length()
        && let Some(found) = within(new, part)
    {
        return found;
    }
    let share = |bytes: u64| {
        let share = u128::from(bytes) * u128::from(all) / u128::from(piece.length().max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    };
    let (from, to) = (share(part.offset - piece.offset), share(part.end - piece.offset));
    let physical = first.physical.saturating_add(from);
    vec![Extent { logical: part.offset, physical, length: to.saturating_sub(from) }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    /// Pages of a file from `first` on that lie at `place`.
    fn extent(first: u64, count: u64, place: u64) -> Extent {
        Extent { logical: first * PAGE, physical: place * PAGE, length: count * PAGE }
    }

    fn piece(file: usize, first: u64, count: u64) -> Piece {
        let bytes = ByteRange::of(first * PAGE, count * PAGE);
        Piece { file, bytes, old: vec![extent(first, count, 900 + first)], donor: 0 }
    }

    #[test]
    fn metadata_is_requested_where_the_plan_has_it_and_parts_of_a_step_have_its_index() {
        let step =
            |extents: &[Extent]| ReadStep { extents: extents.to_vec(), ..ReadStep::default() };
        let block = |files_before| MetadataStep { files_before, bytes: ByteRange::of(0, PAGE) };
        let gap = ReadStep {
            bytes: ByteRange::of(0, 3 * PAGE),
            gaps: vec![ByteRange::of(PAGE, PAGE)],
            extents: vec![extent(0, 1, 10), extent(1, 1, 50), extent(2, 1, 90)],
            ..ReadStep::default()
        };
        let replayed = Replayed {
            steps: vec![step(&[extent(0, 1, 5)]), step(&[]), gap],
            metadata: [0, 0, 1, 9].map(block).to_vec(),
            ..Replayed::default()
        };
        let found = replayed.requests(1 << 20).into_iter();
        let metadata = Vec::new;
        let expected = [metadata(), metadata(), vec![0], metadata(), vec![2], vec![2], metadata()];
        assert_eq!(found.map(|one| one.steps).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_moved_lies_at_its_new_place_and_the_rest_stays() {
        let plan = Plan {
            pieces: vec![piece(0, 10, 4), piece(0, 20, 4), piece(1, 0, 9)],
            donor_bytes: 0,
            ..Plan::default()
        };
        let new = [
            vec![extent(10, 4, 50)],
            vec![extent(20, 1, 54), extent(21, 3, 70)],
            vec![extent(0, 3, 60)],
        ];
        for (name, file, read, expected) in [
            ("all of a piece", Some(0), extent(10, 4, 910), vec![extent(10, 4, 50)]),
            ("a part of it", Some(0), extent(11, 2, 911), vec![extent(11, 2, 51)]),
            (
                "with what is around it",
                Some(0),
                extent(8, 8, 908),
                vec![extent(8, 2, 908), extent(10, 4, 50), extent(14, 2, 914)],
            ),
            (
                "in two pieces",
                Some(0),
                extent(20, 4, 920),
                vec![extent(20, 1, 54), extent(21, 3, 70)],
            ),
            ("another part of the file", Some(0), extent(30, 2, 930), vec![extent(30, 2, 930)]),
            ("a file that is not moved", None, extent(10, 4, 910), vec![extent(10, 4, 910)]),
            ("compressed to a third", Some(1), extent(3, 3, 3), vec![extent(3, 1, 61)]),
            ("the beginning of that", Some(1), extent(0, 3, 0), vec![extent(0, 1, 60)]),
        ] {
            let bytes = ByteRange::of(read.logical, read.length);
            let step = ReadStep { file, bytes, extents: vec![read], ..ReadStep::default() };
            let replayed = Replayed { steps: vec![step], ..Replayed::default() };
            let moved = replayed.moved(&Pieces::of(&plan), &new);
            assert_eq!(moved.steps[0].extents, expected, "{name}");
        }
    }

    #[test]
    fn a_gap_is_read_where_the_layout_holds_it_too() {
        // Pages 10 to 13 and 16 to 19, with what lies between.
        let step = ReadStep {
            file: Some(0),
            bytes: ByteRange::of(10 * PAGE, 10 * PAGE),
            gaps: vec![ByteRange::of(14 * PAGE, 2 * PAGE)],
            extents: vec![extent(10, 10, 910)],
            ..ReadStep::default()
        };
        let replayed = Replayed { steps: vec![step], ..Replayed::default() };
        let all = |list: &[(u64, u64, u64)]| -> Vec<Extent> {
            list.iter().map(|&(first, count, place)| extent(first, count, place)).collect()
        };
        let device = |first: u64, count: u64| ByteRange::of(first * PAGE, count * PAGE);
        for (name, pieces, new, expected) in [
            ("before", vec![], vec![], vec![vec![device(910, 10)]]),
            (
                "with the gap",
                vec![piece(0, 10, 10)],
                vec![all(&[(10, 10, 50)])],
                vec![vec![device(50, 10)]],
            ),
            (
                "without it",
                vec![piece(0, 10, 4), piece(0, 16, 4)],
                vec![all(&[(10, 4, 50)]), all(&[(16, 4, 54)])],
                vec![vec![device(50, 4)], vec![device(54, 4)]],
            ),
            (
                "compressed",
                vec![piece(0, 10, 4), piece(0, 16, 4)],
                vec![all(&[(10, 4, 50)]), all(&[(16, 2, 54)])],
                vec![vec![device(50, 4), device(914, 2), device(54, 2)]],
            ),
        ] {
            let plan = Plan { pieces, donor_bytes: 0, ..Plan::default() };
            let moved = replayed.moved(&Pieces::of(&plan), &new);
            assert_eq!(moved.steps[0].read(), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn each_page_that_is_read_is_read_once_wherever_it_lies(
            pieces in prop::collection::btree_map(0u64..50, (1u64..5, 0u64..1000), 0..10),
            first in 0u64..60, count in 1u64..60,
        ) {
            let mut at = 0;
            let mut plan = Plan::default();
            let mut new = Vec::new();
            for (gap, (count, place)) in pieces {
                at += gap;
                plan.pieces.push(piece(0, at, count));
                new.push(vec![extent(at, count, place)]);
                at += count;
            }
            let found = Pieces::of(&plan).moved(0, &[extent(first, count, 5000)], &new);
            let pages = found.iter().flat_map(|e| {
                (e.logical / PAGE)..(end(e) / PAGE)
            });
            prop_assert_eq!(pages.collect::<Vec<_>>(), (first..first + count).collect::<Vec<_>>());
        }
    }
}
