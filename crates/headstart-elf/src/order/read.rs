//! Reads programs, libraries and their separate debug files.

use super::code::Code;
use crate::files::debug;
use crate::files::read::read;
use crate::image::{Image, ImageError, Machine, symbols};
use std::io;
use std::path::{Path, PathBuf};

/// Why the functions of a file are not known.
#[derive(thiserror::Error, Debug)]
pub enum FileError {
    /// It can't be read.
    #[error("it can't be read: {0}")]
    Read(#[from] io::Error),
    /// It is no program of this machine.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Breakpoints have another form there.
    #[error("it is for another processor than x86-64")]
    Machine,
    /// It was stripped.
    #[error(
        "it has no symbols of functions{}; link it without -s, or install its debug symbols",
        .0.as_ref().map(|path| format!(", and there is no {}", path.display())).unwrap_or_default()
    )]
    NoSymbols(Option<PathBuf>),
}

/// The functions of a file, which can be read at `readable` and whose name is `path`: debug files
/// are beside that.
///
/// # Errors
/// Those of [`FileError`].
pub fn code(readable: &Path, path: &Path) -> Result<Code, FileError> {
    let bytes = read(readable)?.bytes;
    let image = Image::parse(&bytes)?;
    if image.machine != Machine::X86_64 {
        return Err(FileError::Machine);
    }
    let dir = Path::new(debug::DEBUG_FILES);
    let debug = debug::find(&image, path, dir);
    let code = Code::of(&image, debug.as_ref().map(|debug| debug.bytes.as_slice()));
    if code.points.is_empty() {
        let wanted = symbols::build_id(&image).and_then(|id| debug::by_build_id(dir, id));
        return Err(FileError::NoSymbols(wanted.filter(|_| debug.is_none())));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_functions_says_how_to_get_them() {
        let of = |path: &Path| code(path, path);
        assert!(of(&std::env::current_exe().unwrap()).unwrap().points.len() > 100);
        assert!(matches!(of(Path::new("/nowhere")), Err(FileError::Read(_))));
        assert!(matches!(of(Path::new("/etc/passwd")), Err(FileError::Image(_))));
        let text = FileError::NoSymbols(Some("/debug/ab/cd.debug".into())).to_string();
        assert!(text.contains("there is no /debug/ab/cd.debug"), "{text}");
    }
}
