//! Writes files of trace-cmd by their documented form, for tests.

use crate::unpack::Compression;

pub const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
const COMMON: [(&str, usize); 4] =
    [("common_type", 2), ("common_flags", 1), ("common_preempt_count", 1), ("common_pid", 4)];
pub const FAULT: u64 = 0xffff_ffff_8120_0000;

fn format(id: u16, name: &str, fields: &[(&str, usize)]) -> String {
    let mut text = format!("name: {name}\nID: {id}\nformat:\n");
    let mut at = 0;
    for (field, size) in COMMON.iter().chain(fields) {
        text += &format!("\tfield:unsigned long {field};\toffset:{at};\tsize:{size};\tsigned:0;\n");
        at += size;
    }
    text
}

/// The ftrace formats, and the others.
fn formats() -> ([String; 2], [String; 2]) {
    let entry = format(11, "funcgraph_entry", &[("func", 8), ("depth", 4)]);
    let exit = [("func", 8), ("depth", 4), ("overrun", 4), ("calltime", 8), ("rettime", 8)];
    let insert = [("pfn", 8), ("i_ino", 8), ("index", 8), ("s_dev", 4), ("order", 1)];
    let read = [("i_ino", 8), ("s_dev", 4), ("index", 8), ("last_index", 8)];
    (
        [entry, format(10, "funcgraph_exit", &exit)],
        [
            format(600, "mm_filemap_add_to_page_cache", &insert),
            format(601, "mm_filemap_get_pages", &read),
        ],
    )
}

fn record(id: u16, tid: i32, fields: &[(u64, usize)]) -> Vec<u8> {
    let mut out = [&id.to_ne_bytes()[..], &[0; 2], &tid.to_ne_bytes()].concat();
    for (value, size) in fields {
        out.extend(&value.to_le_bytes()[..*size]);
    }
    out
}

pub fn enters(tid: i32, function: u64) -> Vec<u8> {
    record(11, tid, &[(function, 8), (0, 4)])
}
pub fn leaves(tid: i32, function: u64, from: u64, to: u64) -> Vec<u8> {
    record(10, tid, &[(function, 8), (0, 4), (0, 4), (from, 8), (to, 8)])
}
pub fn insert(tid: i32, ino: u64, index: u64, order: u64) -> Vec<u8> {
    record(600, tid, &[(7, 8), (ino, 8), (index, 8), (8 << 20 | 1, 4), (order, 1)])
}
pub fn read(tid: i32, ino: u64, index: u64, last: u64) -> Vec<u8> {
    record(601, tid, &[(ino, 8), (8 << 20 | 1, 4), (index, 8), (last, 8)])
}

/// A page of records at these times.
pub fn page(records: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let start = records.first().map_or(0, |(time, _)| *time);
    let (mut body, mut before) = (Vec::new(), start);
    for (time, data) in records {
        body.extend((((time - before) as u32) << 5).to_le_bytes());
        body.extend((data.len() as u32 + 4).to_le_bytes());
        body.extend(data);
        body.resize(body.len().next_multiple_of(4), 0);
        before = *time;
    }
    let mut out = [&start.to_ne_bytes()[..], &(body.len() as u64).to_ne_bytes(), &body].concat();
    out.resize(4096, 0);
    out
}

fn sized(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_ne_bytes()[..], text.as_bytes()].concat()
}

/// The sections: header, ftrace formats, formats, symbols, printk, names.
fn sections() -> [Vec<u8>; 6] {
    let (ftrace, other) = formats();
    let header = [&b"header_page\0"[..], &sized(HEADER), b"header_event\0", &sized("x")].concat();
    let texts = |texts: &[String]| texts.iter().flat_map(|text| sized(text)).collect::<Vec<u8>>();
    let count = |count: usize| (count as u32).to_ne_bytes();
    let symbols = format!("{FAULT:x} T handle_mm_fault\n{:x} T next\n", FAULT + 4096);
    [
        header,
        [&count(ftrace.len())[..], &texts(&ftrace)].concat(),
        [&count(1)[..], b"filemap\0", &count(other.len()), &texts(&other)].concat(),
        [&count(symbols.len())[..], symbols.as_bytes()].concat(),
        count(0).to_vec(),
        sized("7 cat\n8 sh\n"),
    ]
}

fn begin(version: &str) -> Vec<u8> {
    let order = u8::from(cfg!(target_endian = "big"));
    [super::layout::MAGIC, version.as_bytes(), &[0, order, 8], &4096u32.to_ne_bytes()].concat()
}

/// A file of version 6 with the traces of CPUs.
pub fn version_6(cpus: &[Vec<u8>]) -> Vec<u8> {
    let mut out = [begin("6"), sections().concat()].concat();
    out.extend((cpus.len() as u32).to_ne_bytes());
    out.extend(b"options  \0");
    let statistics = b"entries: 3\noverrun: 2\ndropped events: 1\n\0";
    out.extend(2u16.to_ne_bytes());
    out.extend((statistics.len() as u32).to_ne_bytes());
    out.extend(statistics);
    out.extend(0u16.to_ne_bytes());
    out.extend(b"flyrecord\0");
    let mut offset = (out.len() + cpus.len() * 16).next_multiple_of(4096);
    for cpu in cpus {
        out.extend((offset as u64).to_ne_bytes());
        out.extend((cpu.len() as u64).to_ne_bytes());
        offset += cpu.len();
    }
    out.resize((out.len()).next_multiple_of(4096), 0);
    out.extend(cpus.concat());
    out
}

pub fn packed(data: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::None => data.to_vec(),
        Compression::Zlib => miniz_oxide::deflate::compress_to_vec_zlib(data, 6),
        Compression::Zstd => {
            use ruzstd::encoding::{CompressionLevel, compress_to_vec};
            compress_to_vec(data, CompressionLevel::Fastest)[4..].to_vec()
        }
    }
}

/// A file of version 7.
pub fn version_7(cpus: &[Vec<u8>], compression: Compression) -> Vec<u8> {
    let is_packed = compression != Compression::None;
    let name = match compression {
        Compression::None => "none",
        Compression::Zlib => "zlib",
        Compression::Zstd => "zstd",
    };
    let mut out = [begin("7"), format!("{name}\0001.0\0").into_bytes()].concat();
    let options_at = out.len();
    out.extend([0; 8]);
    let head = |id: u16, size: usize| {
        let flags = u16::from(is_packed);
        let (id, flags) = (id.to_ne_bytes(), flags.to_ne_bytes());
        [&id[..], &flags, &[0; 4], &(size as u64).to_ne_bytes()].concat()
    };
    let content = |data: &[u8]| {
        if !is_packed {
            return data.to_vec();
        }
        let packed = packed(data, compression);
        let sizes = [packed.len() as u32, data.len() as u32].map(u32::to_ne_bytes);
        [&sizes.concat()[..], &packed].concat()
    };
    let mut options: Vec<(u16, Vec<u8>)> = Vec::new();
    for (section, id) in sections().iter().zip([16u16, 17, 18, 19, 20, 21]) {
        options.push((id, (out.len() as u64).to_ne_bytes().to_vec()));
        let content = content(section);
        out.extend([head(id, content.len()), content].concat());
    }
    let buffer_at = out.len() as u64;
    out.extend(head(3, 0));
    let mut buffer = [&buffer_at.to_ne_bytes()[..], b"\0local\0"].concat();
    buffer.extend(4096u32.to_ne_bytes());
    buffer.extend((cpus.len() as u32).to_ne_bytes());
    for (number, cpu) in cpus.iter().enumerate() {
        let chunks: Vec<&[u8]> = cpu.chunks(8192).collect();
        let count = (chunks.len() as u32).to_ne_bytes();
        let trace = if is_packed {
            let chunks: Vec<u8> = chunks.iter().flat_map(|chunk| content(chunk)).collect();
            [&count[..], &chunks].concat()
        } else {
            cpu.clone()
        };
        buffer.extend((number as u32).to_ne_bytes());
        buffer.extend((out.len() as u64).to_ne_bytes());
        // As trace-cmd 3.1 does, without the number of chunks.
        let count = if is_packed { 4 } else { 0 };
        buffer.extend((trace.len() as u64 - count).to_ne_bytes());
        out.extend(trace);
    }
    options.push((3, buffer));
    options.push((0, vec![0; 8]));
    let at = out.len() as u64;
    out[options_at..options_at + 8].copy_from_slice(&at.to_ne_bytes());
    let options: Vec<u8> = options
        .iter()
        .flat_map(|(id, data)| {
            [&id.to_ne_bytes()[..], &(data.len() as u32).to_ne_bytes(), data].concat()
        })
        .collect();
    let content = content(&options);
    out.extend([head(0, content.len()), content].concat());
    out
}
