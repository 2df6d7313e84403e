//! `headstart layout`: moves what starts read into one place of the disk, and back.

mod apply;
mod list;
mod make_room;
mod placed;
mod plan;
mod renewal;
mod status;
mod which;
mod work;

use crate::exit::ExitStatus;

/// What to do with the layout of disks.
#[derive(clap::Subcommand, Debug)]
pub enum LayoutVerb {
    /// Tell what a layout would gain, and move nothing; exit status 3 when that is nothing
    Plan(plan::PlanArgs),
    /// Move what these packs read into one place, in touch order
    Apply(apply::ApplyArgs),
    /// Go on with a layout that was stopped
    Resume(apply::ContinueArgs),
    /// Tell where the files of layouts are
    Status(status::StatusArgs),
    /// Read the files of layouts from the disk, and compare them with what they held
    Verify(status::VerifyArgs),
    /// Move files back to the very blocks where they were
    Undo(apply::ContinueArgs),
    /// Keep a layout for good, and free the blocks where its files were
    Release(status::ReleaseArgs),
    /// Write the order of files for the builder of an image (squashfs, EROFS)
    List(list::ListArgs),
}

/// Does it.
pub fn run(verb: LayoutVerb) -> anyhow::Result<ExitStatus> {
    match verb {
        LayoutVerb::Plan(args) => plan::run(&args),
        LayoutVerb::Apply(args) => apply::run(&args),
        LayoutVerb::Resume(args) => apply::resume(&args),
        LayoutVerb::Status(args) => status::status(&args),
        LayoutVerb::Verify(args) => status::verify(&args),
        LayoutVerb::Undo(args) => apply::undo(&args),
        LayoutVerb::Release(args) => status::release(&args),
        LayoutVerb::List(args) => list::run(&args),
    }
}
