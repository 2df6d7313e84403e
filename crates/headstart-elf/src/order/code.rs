//! Where the functions of a file begin: at which bytes of the file a breakpoint tells their
//! first call.

use super::document::{Function, is_name};
use crate::image::{Image, Segment, symbols};
use crate::report::initializers;
use headstart_sys::ptrace::BREAKPOINT;
use std::collections::HashMap;

/// The functions of a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Code {
    /// In hexadecimal digits; empty without one.
    pub build_id: String,
    /// Where the code begins, without the load bias.
    pub text_address: u64,
    /// By offset.
    pub points: Vec<Point>,
    /// The static initializers in their order, by the indices of points.
    pub initializers: Vec<u32>,
    /// Functions whose names no linker takes.
    pub unnameable: u64,
}

/// The beginning of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    /// In the file, in bytes.
    pub offset: u64,
    /// The byte that is there.
    pub original: u8,
    /// The function.
    pub function: Function,
}

impl Code {
    /// The functions of a file by its own symbols, and by those of its separate debug file.
    pub fn of(image: &Image<'_>, debug: Option<&[u8]>) -> Self {
        let mut named = symbols::defined_in(image.data);
        named.extend(debug.map(symbols::defined_in).unwrap_or_default());
        named.retain(|symbol| symbol.is_function);
        // Of several symbols the first is the function's name: a global one, and the shortest.
        named.sort_by_key(|one| (one.address, !one.is_global, one.name.len(), one.name));
        named.dedup_by_key(|one| (one.address, one.name));
        let mut code = Self {
            build_id: symbols::build_id(image).map(symbols::hexadecimal).unwrap_or_default(),
            text_address: text_address(image),
            ..Self::default()
        };
        for same in named.chunk_by(|a, b| a.address == b.address) {
            code.add(image, same);
        }
        code.points.sort_by_key(|point| point.offset);
        code.points.dedup_by_key(|point| point.offset);
        let places = code.points.iter().map(|point| point.function.address).zip(0..);
        let places: HashMap<u64, u32> = places.collect();
        let all = initializers::addresses(image);
        code.initializers = all.iter().filter_map(|one| places.get(one).copied()).collect();
        code
    }

    /// Adds the function of these symbols, which have one address.
    fn add(&mut self, image: &Image<'_>, same: &[symbols::Symbol<'_>]) {
        let Some(address) = same.first().map(|symbol| symbol.address) else { return };
        let Some(offset) = code_offset(image, address) else { return };
        let Some(original) = usize::try_from(offset).ok().and_then(|at| image.data.get(at)) else {
            return;
        };
        // A breakpoint of the program's own, or the padding between functions.
        if *original == BREAKPOINT {
            return;
        }
        let names: Vec<String> = same.iter().filter_map(|one| name(one.name)).collect();
        let mut names = names.into_iter();
        let Some(name) = names.next() else {
            self.unnameable += 1;
            return;
        };
        let size = same.iter().map(|symbol| symbol.size).max().unwrap_or(0);
        let size = size.min(u64::MAX - address);
        let mut aliases: Vec<String> = names.filter(|alias| *alias != name).collect();
        aliases.dedup();
        let function = Function { name, aliases, address, size };
        self.points.push(Point { offset, original: *original, function });
    }

    /// The point at this offset of the file.
    pub fn point_at(&self, offset: u64) -> Option<usize> {
        self.points.binary_search_by_key(&offset, |point| point.offset).ok()
    }

    /// The points in a part of the file.
    pub fn points_in(&self, begin: u64, end: u64) -> &[Point] {
        let at = |offset| self.points.partition_point(|point| point.offset < offset);
        self.points.get(at(begin)..at(end)).unwrap_or(&[])
    }
}

/// The offset of an address in an executable segment.
fn code_offset(image: &Image<'_>, address: u64) -> Option<u64> {
    let holds = |segment: &&Segment| {
        segment.is_executable() && segment.address <= address && address < segment.file_end()
    };
    let segment = image.loads().find(holds)?;
    segment.offset.checked_add(address - segment.address)
}

fn text_address(image: &Image<'_>) -> u64 {
    let text = image.section(".text").map(|section| section.address);
    let segment = || image.loads().find(|one| one.is_executable()).map(|one| one.address);
    text.or_else(segment).unwrap_or(0)
}

/// A symbol without its version, if linkers take it.
fn name(symbol: &[u8]) -> Option<String> {
    let bare = symbol.split(|byte| *byte == b'@').next()?;
    let name = std::str::from_utf8(bare).ok()?;
    is_name(name).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn the_functions_of_this_program_are_found_at_their_bytes() {
        let bytes = own();
        let image = Image::parse(&bytes).unwrap();
        let code = Code::of(&image, None);
        let main = code.points.iter().find(|point| point.function.name == "main").unwrap();
        let function = &main.function;
        assert_eq!(image.at(function.address, 1).unwrap(), [main.original]);
        assert_eq!(code.point_at(main.offset).map(|at| &code.points[at]), Some(main));
        assert_eq!(code.points_in(main.offset, main.offset + 1), std::slice::from_ref(main));
        assert!(code.point_at(main.offset + 1).is_none_or(|at| code.points[at] != *main));
        assert!(code.points.is_sorted_by(|a, b| a.offset < b.offset));
        assert!(!code.initializers.is_empty());
        // The file's own symbols once more, as those of a debug file: nothing changes.
        assert_eq!(Code::of(&image, Some(&bytes)), code);
    }

    #[test]
    fn versions_are_no_part_of_a_name() {
        assert_eq!(name(b"memcpy@@GLIBC_2.14").as_deref(), Some("memcpy"));
        assert_eq!(name(b"@x"), None);
        assert_eq!(name(b"main.(*T).f"), None);
        assert_eq!(name(b"\xff"), None);
    }
}
