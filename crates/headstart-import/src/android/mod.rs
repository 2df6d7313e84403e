//! Packs of Android: records of `prefetch` (since Android 16), which are CBOR (RFC 8949), and
//! compiled traces of `iorapd` (Android 11), which are protocol buffers. Both name files by paths
//! of the device that recorded them.

mod cbor;
mod protobuf;

use crate::accesses::{Accesses, Name};
use crate::error::ImportError;
use cbor::Value;
use headstart::host::range::ByteRange;
use headstart::host::usage::How;
use protobuf::{Field, fields};
use std::collections::HashMap;

/// The bytes with which the header of records tells what they are.
const MAGIC: [u8; 16] = [
    0x10, 0x54, 0x3c, 0xb8, 0x60, 0xdb, 0x49, 0x45, 0xa1, 0xd5, 0xde, 0xa7, 0xd2, 0x3b, 0x05, 0x49,
];
/// What is said of records.
const INSERTED: &str = "Android records additions to the page cache, with what the kernel's readahead \
                        fetched; of folios larger than a page only the first page";

/// Whether a file is one of records.
pub(crate) fn is_records(bytes: &[u8]) -> bool {
    let magic = || {
        let header = cbor::member(bytes, "header")?;
        let mut bytes = Vec::new();
        let numbers = cbor::items(cbor::member(header, "magic")?)?;
        bytes.extend(numbers.take(MAGIC.len() + 1).filter_map(|item| match item {
            Value::Number(number) => u8::try_from(number).ok(),
            _ => None,
        }));
        Some(bytes)
    };
    magic().is_some_and(|magic| magic == MAGIC)
}

/// The accesses of a file of records.
///
/// # Errors
/// It is damaged.
pub fn import_records(bytes: &[u8], page_size: u64) -> Result<Accesses, ImportError> {
    let damaged = |part| ImportError::Damaged { format: "Android prefetch", part };
    let inner = cbor::member(bytes, "inner").ok_or(damaged("the content"))?;
    let files = cbor::member(inner, "inode_map").and_then(|files| cbor::member(files, "map"));
    let files = files.and_then(cbor::entries).ok_or(damaged("the files"))?;
    let mut paths: HashMap<u64, &[u8]> = HashMap::new();
    for (id, file) in files {
        let first = cbor::member(file, "paths").and_then(cbor::items);
        let first = first.and_then(|mut paths| paths.next());
        if let (Value::Number(id), Some(Value::Text(path))) = (id, first) {
            paths.insert(id, path);
        }
    }
    let records = cbor::member(inner, "records").ok_or(damaged("the records"))?;
    let mut accesses = Accesses::new(page_size, bytes.len());
    accesses.has_access_events = false;
    accesses.lacks.coarse = Some(INSERTED);
    let mut found = Vec::new();
    for record in cbor::maps(records).ok_or(damaged("the records"))? {
        let number = |name| cbor::number(record, name);
        let numbers = (number("file_id"), number("offset"), number("length"), number("timestamp"));
        match numbers {
            (Some(id), Some(offset), Some(length), Some(time)) if paths.contains_key(&id) => {
                found.push((time, id, ByteRange::of(offset, length)));
            }
            _ => accesses.lacks.not_understood += 1,
        }
    }
    // They are grouped by file.
    found.sort_by_key(|(time, ..)| *time);
    for (time, id, range) in found {
        let Some(path) = paths.get(&id) else { continue };
        accesses.add_bytes(Name::Path(path.to_vec()), range, time, How::INSERTED)?;
    }
    Ok(accesses)
}

/// Whether a file seems to be a compiled trace: an index of named files first, then a list.
pub(crate) fn is_iorap(bytes: &[u8]) -> bool {
    let mut top = fields(bytes);
    let index = match top.next() {
        Some(Field { number: 1, bytes: Some(index), .. }) => index,
        _ => return false,
    };
    let Some(Field { number: 2, bytes: Some(_), .. }) = top.next() else { return false };
    let entry = fields(index).next().and_then(|entry| entry.bytes);
    let name = entry.and_then(|entry| fields(entry).nth(1)).and_then(|name| name.bytes);
    name.is_some_and(|name| name.starts_with(b"/"))
}

/// The accesses of a compiled trace: `TraceFile { index { entries { id, file_name } }, list { entries {
/// index_id, file_offset, file_length } } }`, each message with its members in this order from 1
/// (`system/iorap/src/serialize/TraceFile.proto` of Android 11).
///
/// # Errors
/// There is none in it.
pub fn import_iorap(bytes: &[u8], page_size: u64) -> Result<Accesses, ImportError> {
    let entries = |wanted| {
        fields(bytes)
            .filter(move |field| field.number == wanted)
            .filter_map(|field| field.bytes)
            .flat_map(fields)
            .filter(|field| field.number == 1)
            .filter_map(|field| field.bytes)
    };
    let mut paths: HashMap<u64, &[u8]> = HashMap::new();
    for entry in entries(1) {
        let (mut id, mut path) = (None, None);
        for field in fields(entry) {
            match field.number {
                1 => id = field.value,
                2 => path = field.bytes,
                _ => {}
            }
        }
        if let (Some(id), Some(path)) = (id, path) {
            paths.insert(id, path);
        }
    }
    let mut accesses = Accesses::new(page_size, bytes.len());
    accesses.has_access_events = false;
    accesses.lacks.coarse = Some(INSERTED);
    for entry in entries(2) {
        let mut numbers = [None; 4];
        for field in fields(entry) {
            if let Some(number) = numbers.get_mut(field.number as usize) {
                *number = field.value;
            }
        }
        let [_, Some(id), Some(offset), Some(length)] = numbers else {
            accesses.lacks.not_understood += 1;
            continue;
        };
        let Some(path) = paths.get(&id) else {
            accesses.lacks.not_understood += 1;
            continue;
        };
        let at = accesses.next_step();
        let range = ByteRange::of(offset, length);
        accesses.add_bytes(Name::Path(path.to_vec()), range, at, How::INSERTED)?;
    }
    if accesses.is_empty() {
        return Err(ImportError::Nothing("it may be no compiled trace of iorapd"));
    }
    Ok(accesses)
}

#[cfg(test)]
mod tests;
