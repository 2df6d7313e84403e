//! Why a file is not repacked, and what to do about it.

use crate::image::ImageError;

/// Why a file stays as it is.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Nothing that could be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Another processor.
    #[error("it is for a processor that is not supported; relink with -z pack-relative-relocs")]
    Machine,
    /// `ET_EXEC`.
    #[error("it is linked for a fixed address and has no relative relocations")]
    FixedAddress,
    /// Objects, core dumps.
    #[error("it is neither a program nor a shared library")]
    NoProgram,
    /// No dynamic section.
    #[error("it is linked statically, and no loader relocates it")]
    Static,
    /// A static PIE relocates itself, with code of its own.
    #[error("it is a static PIE, which relocates itself; relink with -z pack-relative-relocs")]
    StaticPie,
    /// The loader itself.
    #[error("it is a loader, which relocates itself")]
    Loader,
    /// `DT_RELR` is there.
    #[error("its relocations are packed already")]
    AlreadyPacked,
    /// `DT_RELA` is not there.
    #[error("it has no relocations with addends (DT_RELA)")]
    NoRela,
    /// `DT_RELA` contains `DT_JMPREL`.
    #[error("its PLT relocations are a part of DT_RELA; relink with -z pack-relative-relocs")]
    SharedTables,
    /// Fewer bytes than are wanted.
    #[error("packing would save {saved} bytes only")]
    NoGain {
        /// Bytes of RELA that would be free.
        saved: u64,
    },
    /// No room for three entries.
    #[error("its dynamic section has no room for {0} more; relink with -z pack-relative-relocs")]
    NoRoom(u64),
    /// The new tables do not fit into the old one.
    #[error("the new tables take {0} bytes more than the old one has")]
    DoesNotFit(u64),
    /// Symbol versions of libc without an entry for it.
    #[error("it needs libc and no version of it, so that glibc would refuse DT_RELR")]
    NoVersionOfLibc,
    /// Something that is not understood.
    #[error("{0}")]
    Unusual(&'static str),
    /// Bytes that no header describes.
    #[error("it has {0} bytes behind the ELF file, such as an archive that it unpacks")]
    Trailer(u64),
    /// A checksum inside.
    #[error("it holds a checksum of itself (section {0}), which would be wrong")]
    Checksum(String),
    /// The proof failed.
    #[error("the result could not be proved to be the same program: {0}; please report this")]
    Unproven(String),
}
