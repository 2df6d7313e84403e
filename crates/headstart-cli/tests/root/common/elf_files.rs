//! Libraries that `headstart elf repack` can pack.

use headstart_testing::must;
use std::fs;
use std::path::{Path, PathBuf};

/// A library with this many relative relocations: `DIR/NAME`.
pub fn library(dir: &Path, name: &str, relocations: usize) -> PathBuf {
    let (source, path) = (dir.join(format!("{name}.c")), dir.join(name));
    let table = format!(
        "__asm__(\".data\\n.p2align 3\\n.globl t\\nt: .rept {relocations}\\n.quad v\\n.endr\\n\
         .local v\\n.comm v,8\\n\");"
    );
    fs::write(&source, table).unwrap();
    let [from, to] = [&source, &path].map(|path| path.to_str().unwrap());
    must("cc", &["-shared", "-fPIC", &format!("-Wl,-soname,{name}"), "-o", to, from]);
    fs::remove_file(&source).unwrap();
    path
}
