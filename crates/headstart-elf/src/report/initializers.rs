//! What runs before main: `DT_PREINIT_ARRAY`, `DT_INIT` and `DT_INIT_ARRAY`, in this order. An
//! entry of an array is what a relocation puts there.

use crate::image::symbols::{self, Symbol};
use crate::image::{Image, dynamic};
use crate::relocations::{Tables, entries, kinds, word_at};
use serde::Serialize;
use std::collections::HashMap;

/// More functions than any file has.
const MOST: u64 = 1 << 20;

/// A function that runs before main.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Initializer {
    /// Without the load bias; 0 where it is a function of another file.
    pub address: u64,
    /// Its name, or that of the function it lies in, where symbols tell.
    pub name: Option<String>,
    /// Bytes, where symbols tell.
    pub size: Option<u64>,
}

/// All of a file, in the order in which they run.
pub fn list(image: &Image) -> Vec<Initializer> {
    let addresses = addresses(image);
    if addresses.is_empty() {
        return Vec::new();
    }
    let functions = symbols::functions(image);
    addresses.into_iter().map(|address| named(&functions, address)).collect()
}

/// Where they begin, without the load bias, in the same order.
pub fn addresses(image: &Image) -> Vec<u64> {
    let mut addresses = array(image, dynamic::PREINIT_ARRAY, dynamic::PREINIT_ARRAYSZ);
    addresses.extend(image.tag(dynamic::INIT));
    addresses.extend(array(image, dynamic::INIT_ARRAY, dynamic::INIT_ARRAYSZ));
    addresses
}

/// Names those that have no name yet by the symbols of the debug file.
pub fn name(all: &mut [Initializer], debug: &[u8]) {
    let mut functions = symbols::defined_in(debug);
    functions.retain(|symbol| symbol.is_function);
    for one in all.iter_mut().filter(|one| one.name.is_none()) {
        *one = named(&functions, one.address);
    }
}

fn named(functions: &[Symbol], address: u64) -> Initializer {
    let after = functions.partition_point(|function| function.address <= address);
    let before = functions.get(..after).unwrap_or(&[]);
    let holds = |function: &&Symbol| {
        function.address == address || address - function.address < function.size
    };
    let found = before.iter().rev().take(8).find(holds);
    Initializer {
        address,
        name: found.map(|function| String::from_utf8_lossy(function.name).into_owned()),
        size: found.map(|function| function.size).filter(|size| *size > 0),
    }
}

/// The addresses in an array after relocation.
fn array(image: &Image, start: u64, size: u64) -> Vec<u64> {
    let (Some(start), Some(size)) = (image.tag(start), image.tag(size)) else { return Vec::new() };
    let count = (size / 8).min(MOST);
    let Some(bytes) = image.at(start, count * 8) else { return Vec::new() };
    let relative = kinds::relative(image.machine).map(u64::from);
    let rela = Tables::of(image).unwrap_or_default().rela;
    let is_here = |place: u64| (start..start + count * 8).contains(&place);
    let put: HashMap<u64, u64> = entries(rela)
        .filter(|entry| is_here(entry.place))
        // Functions of other files have no address here.
        .map(|entry| (entry.place, if Some(entry.info) == relative { entry.addend } else { 0 }))
        .collect();
    let value = |n: u64| {
        let there = word_at(bytes, n as usize * 8).unwrap_or(0);
        put.get(&(start + n * 8)).copied().unwrap_or(there)
    };
    // Some arrays begin or end with 0 or -1.
    (0..count).map(value).filter(|address| !matches!(*address, 0 | u64::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_within_a_function_has_its_name() {
        let function = |name, address, size| Symbol {
            name,
            address,
            size,
            is_function: true,
            is_global: true,
        };
        let functions = [function(b"a", 16, 8), function(b"b", 24, 0), function(b"c", 64, 8)];
        for (address, name) in [
            (16, Some("a")),
            (20, Some("a")),
            (24, Some("b")),
            (25, None),
            (8, None),
            (71, Some("c")),
        ] {
            assert_eq!(named(&functions, address).name.as_deref(), name, "{address}");
        }
    }

    #[test]
    fn a_debug_file_names_what_has_no_name() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let image = Image::parse(&bytes).unwrap();
        let all = list(&image);
        assert!(all.iter().any(|one| one.name.is_some()), "{all:?}");
        let stripped = |one: &Initializer| Initializer { name: None, size: None, ..one.clone() };
        let mut again: Vec<_> = all.iter().map(stripped).collect();
        name(&mut again, &bytes);
        assert_eq!(again, all);
    }
}
