//! Names of the files in the directory of a layout. Pure.

/// The donor.
pub(crate) const DONOR: &str = "donor";
/// A donor that is tried, before its number.
const TRIAL: &str = "donor.";
/// A copy, before the number of its file in the plan: where btrfs allocates it before the files of the journal have
/// their numbers.
const ALLOCATED: &str = "allocated.";
const NEW: &str = "new.";
const OLD: &str = "old.";

/// Which copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy {
    /// The one in the new place.
    New,
    /// The one in the old place.
    Old,
}

impl Copy {
    /// Its name, for a file of the journal.
    pub(crate) fn name(self, file: usize) -> String {
        let begin = if self == Self::New { NEW } else { OLD };
        format!("{begin}{file}")
    }
}

/// A donor that is tried.
pub(crate) fn trial(number: usize) -> String {
    format!("{TRIAL}{number}")
}

/// Whether that is one.
pub(crate) fn is_trial(name: &str) -> bool {
    name.starts_with(TRIAL)
}

/// The copy of a file of the plan that btrfs allocates.
pub(crate) fn allocated(file: usize) -> String {
    format!("{ALLOCATED}{file}")
}

/// Whether that is a donor, one that is tried, or a copy.
pub(crate) fn has_blocks(name: &str) -> bool {
    name == DONOR
        || is_trial(name)
        || [ALLOCATED, NEW, OLD].iter().any(|begin| name.starts_with(begin))
}
