//! Which pages of a file are mapped as code: the executable segments of an ELF file. A thin driver
//! over the `object` crate.

use crate::cache::residency::page_size;
use crate::host::open::open_again;
use crate::host::range::{ByteRange, PageRange};
use object::Endianness;
use object::elf::{FileHeader32, FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes at the beginning of a file that hold its program headers; linkers put
/// them right behind the file header.
const HEAD_BYTES: usize = 4096;

/// Pages of the executable segments; empty when the file is no ELF file or
/// can't be read.
pub fn code_of(path: &Path) -> Vec<PageRange> {
    let mut head = vec![0; HEAD_BYTES];
    // Its owner may have replaced it since it was named.
    let file = open_again(path).map(File::from);
    let read = file.ok().and_then(|file| file.read_at(&mut head, 0).ok()).unwrap_or(0);
    head.truncate(read);
    code_in(&head, page_size())
}

/// The same for the first bytes of a file; `page` is the page size in bytes. Pure.
pub fn code_in(head: &[u8], page: u64) -> Vec<PageRange> {
    segments::<FileHeader64<Endianness>>(head, page)
        .or_else(|| segments::<FileHeader32<Endianness>>(head, page))
        .unwrap_or_default()
}

fn segments<H: FileHeader<Endian = Endianness>>(head: &[u8], page: u64) -> Option<Vec<PageRange>> {
    let header = H::parse(head).ok()?;
    let endian = header.endian().ok()?;
    let is_code =
        |p: &&H::ProgramHeader| p.p_type(endian) == PT_LOAD && p.p_flags(endian).0 & PF_X.0 != 0;
    let pages = |p: &H::ProgramHeader| {
        ByteRange::of(p.p_offset(endian).into(), p.p_filesz(endian).into()).pages(page)
    };
    Some(header.program_headers(endian, head).ok()?.iter().filter(is_code).map(pages).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_that_runs_lies_in_the_code_of_this_program() {
        let me = std::env::current_exe().unwrap();
        let code = code_of(&me);
        assert!(!code.is_empty());
        let pages = me.metadata().unwrap().len().div_ceil(page_size());
        assert!(code.iter().all(|r| !r.is_empty() && r.end <= pages), "{code:?}");
    }

    #[test]
    fn what_is_no_elf_file_has_no_code() {
        assert!(code_of(Path::new("/etc/passwd")).is_empty());
        assert!(code_of(Path::new("/nonexistent")).is_empty());
    }
}
