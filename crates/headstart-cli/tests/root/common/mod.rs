//! What the tests that run side by side share: programs, package managers, terminals, files to lay out.

pub mod elf_files;
pub mod invocations;
pub mod laid_out;
pub mod managers;
#[path = "../../privileged/common/packs.rs"]
pub mod packs;
pub mod perforated;
pub mod small_root;
pub mod terminal;
