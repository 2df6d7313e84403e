//! `headstart layout list`: the order of files for the builder of an image.

use super::which::{packs_of, wanted_of};
use crate::exit::ExitStatus;
use crate::output::{self, counted};
use crate::results::{self, ResultKind};
use headstart_layout::image::{self, Format};
use std::io::Write;
use std::path::PathBuf;

/// The arguments of `headstart layout list`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The packs are learned from starts of what will be in the image, in its tree (--root) or in an image that \
was built before. Files are listed in the order of a layout: of their first touch, several packs by weight.

  squashfs-sort  mksquashfs TREE IMAGE -sort FILE
  paths          tar -C TREE -cf - --no-recursion -T FILE, and what takes such an archive: \
mkfs.erofs --tar=f --sort=none -E^inline_data; cpio -o < FILE

Exit status: 0 done; 3 no file is below the root of the image; 1 it failed.")]
pub struct ListArgs {
    /// Packs, or the names of programs
    #[arg(value_name = "PACK", required = true)]
    packs: Vec<PathBuf>,

    /// How the list is written
    #[arg(long, value_enum)]
    format: FormatArg,

    /// Write it to FILE
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Where the root of the image was when the packs were learned
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Replace FILE even if it is another file
    #[arg(long)]
    force: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum FormatArg {
    /// A path and a priority a line, for mksquashfs
    SquashfsSort,
    /// A path a line, for tar and cpio
    Paths,
}

/// Runs the verb.
pub fn run(args: &ListArgs) -> anyhow::Result<ExitStatus> {
    let format = match args.format {
        FormatArg::SquashfsSort => Format::SquashfsSort,
        FormatArg::Paths => Format::Paths,
    };
    let list = image::list(&wanted_of(&packs_of(&args.packs)?, None, 0, None), &args.root, format);
    for (count, why) in [
        (list.outside, format!("not below {}", output::shown(&args.root))),
        (list.newlines, "with a line end in their names".into()),
    ] {
        if count > 0 {
            output::message(format_args!("{} skipped: {why}", counted(count, "file")));
        }
    }
    if list.files == 0 {
        output::message("no file to list; --root is the directory that becomes the image's root");
        return Ok(ExitStatus::Negative);
    }
    results::write_by(&args.output, ResultKind::ImageList(format), args.force, |mut file| {
        file.write_all(&list.text)
    })?;
    output::message(format_args!("{} listed", counted(list.files, "file")));
    Ok(ExitStatus::Done)
}
