//! Where a layout goes: the donor is allocated, and the layout takes its best places. What is moved to make room is in
//! `make_room`.

use super::plan::Planned;
use crate::output::{self, counted, size};
use headstart::cache::residency::page_size;
use headstart_layout::LayoutError;
use headstart_layout::gain::Gain;
use headstart_layout::journal::Donor;
use headstart_layout::kind::Kind;
use headstart_layout::plan::Plan;
use headstart_layout::room::closest;
use headstart_layout::volume::{Store, Volume};
use std::collections::HashSet;

/// xfs takes the largest free parts first, wherever they lie. So it allocates one part in so many more than a layout needs,
/// which gets those that lie closest together.
const XFS_SLACK_PART: u64 = 2;

/// A layout with its place.
pub struct Placed {
    /// What was allocated.
    pub donor: Donor,
    /// The ranges in their places, and what is moved aside before.
    pub plan: Plan,
    /// What is gained there.
    pub gain: Gain,
}

impl Placed {
    /// In the best places of a donor.
    pub fn allocate(
        store: &Store,
        volume: &Volume,
        planned: &Planned,
    ) -> Result<Self, LayoutError> {
        let bytes = match volume.kind {
            Kind::Xfs => {
                // What an earlier donor has is room for this one.
                store.clear()?;
                planned.donor_with_slack(XFS_SLACK_PART, volume.room()?)
            }
            Kind::Ext4 | Kind::Btrfs => planned.donor_bytes,
        };
        let allocated = |bytes| store.allocate(bytes, volume, &planned.plan);
        let donor = match allocated(bytes) {
            // The file system may have less room than it says.
            Err(_) if bytes > planned.donor_bytes => allocated(planned.donor_bytes)?,
            donor => donor?,
        };
        let need = planned.plan.donor_bytes;
        let places = match volume.kind {
            Kind::Ext4 => [planned.plan.places(&donor.extents), None],
            Kind::Xfs => [planned.plan.places(&donor.extents), closest(&donor.extents, need)],
            // Copies lie where they are made.
            Kind::Btrfs => [None, None],
        };
        let in_order = |places: Option<_>| planned.plan.in_order_of(places?, page_size());
        let with_gain = |plan: Plan| (planned.gain_with(&plan, &donor.extents), plan);
        let cost = |(gain, _): &(Gain, Plan)| (gain.after.replay_us, gain.after.requests);
        let found = places.into_iter().filter_map(in_order).map(with_gain).min_by_key(cost);
        let (gain, plan) = found.unwrap_or_else(|| with_gain(planned.plan.clone()));
        if bytes > planned.donor_bytes {
            store.trim(&donor, &plan)?;
        }
        Ok(Self { donor, plan, gain })
    }

    /// What its user should know of the place, in words. `relocated`: bytes that were moved to make room, if that was
    /// tried.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn remarks(
        &self,
        volume: &Volume,
        planned: &Planned,
        relocated: Option<u64>,
    ) -> Result<Option<String>, LayoutError> {
        let place = output::shown(&volume.mount_point);
        if !self.plan.aside.is_empty() {
            let files: HashSet<_> = self.plan.aside.iter().map(|piece| piece.file).collect();
            let (bytes, files) = (size(self.plan.aside_bytes()), files.len() as u64);
            let files = counted(files, "other file");
            return Ok(Some(format!("{place}: moves {bytes} of {files} aside first")));
        }
        let Some(advice) = self.advice(volume, planned, relocated)? else { return Ok(None) };
        let pieces = self.plan.places_in(&self.donor.extents, page_size());
        let pieces = counted(pieces as u64, "piece");
        let seconds = |gain: &Gain| gain.after.replay_us.map(|us| us as f64 / 1e6);
        let times = seconds(&self.gain).zip(seconds(&planned.gain));
        let times = times.map_or_else(String::new, |(here, ideal)| {
            format!(" (a replay takes {here:.2} s with it, and {ideal:.2} s in one piece)")
        });
        Ok(Some(format!("{place}: the layout lies in {pieces}{times}; {advice}")))
    }

    /// What helps where one piece would be faster than those of the donor, if anything may; `relocated` as in
    /// [`Self::remarks`].
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn advice(
        &self,
        volume: &Volume,
        planned: &Planned,
        relocated: Option<u64>,
    ) -> Result<Option<&'static str>, LayoutError> {
        let may_help = planned.gain.betters(&self.gain) && volume.makes_room()?;
        Ok(may_help.then_some(match relocated {
            Some(0) => "moving other files aside does not make it faster",
            Some(_) => "what else lies between them can't be moved",
            None => "with --make-room other files are moved aside first",
        }))
    }
}
