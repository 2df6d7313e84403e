//! Records as the kernel writes them, for tests.

use super::*;

/// The layout of [`bytes`].
pub fn layout() -> Layout {
    let events = HashMap::from([(1, Event::Begin), (2, Event::MinorEnd), (3, Event::MajorEnd)]);
    let page = 4096;
    Layout { events, begins_have_pages: true, ends_have_pages: true, page, ..Layout::default() }
}

/// A record as bytes.
pub fn bytes(record: &Record) -> Vec<u8> {
    let (mut misc, mut body) = (0u16, Vec::new());
    let who = [record.pid, record.tid].map(i32::to_ne_bytes).concat();
    let put = |body: &mut Vec<u8>, numbers: &[u64]| {
        numbers.iter().for_each(|number| body.extend(number.to_ne_bytes()));
    };
    let padded = |name: &[u8]| {
        let mut padded = name.to_vec();
        padded.resize((name.len() + 1).next_multiple_of(8), 0);
        padded
    };
    let kind = match record.what {
        What::Begin { ip, address, page } => {
            put(&mut body, &[1, ip]);
            body.extend(&who);
            put(&mut body, &[record.time, address, page.unwrap_or(0)]);
            kind::SAMPLE
        }
        What::End { is_major, page } => {
            put(&mut body, &[2 + u64::from(is_major)]);
            body.extend(&who);
            put(&mut body, &[record.time, page.unwrap_or(0)]);
            kind::SAMPLE
        }
        What::Map(mapped) => {
            body.extend(&who);
            put(&mut body, &[mapped.start, mapped.length, mapped.offset]);
            let InodeId { dev, ino } = mapped.file;
            body.extend([dev.major(), dev.minor()].map(u32::to_ne_bytes).concat());
            put(&mut body, &[ino, 0]);
            body.extend([mapped.protection, mapped.flags].map(u32::to_ne_bytes).concat());
            body.extend(padded(mapped.name));
            kind::MMAP2
        }
        What::Name { name, by_exec } => {
            misc = if by_exec { BY_EXEC } else { 0 };
            body.extend(&who);
            body.extend(padded(name));
            kind::COMM
        }
        What::Start { parent, parent_tid } => {
            let who = [record.pid, parent, record.tid, parent_tid];
            body.extend(who.map(i32::to_ne_bytes).concat());
            put(&mut body, &[record.time]);
            kind::FORK
        }
        What::Exit => {
            let who = [record.pid, record.pid, record.tid, record.tid];
            body.extend(who.map(i32::to_ne_bytes).concat());
            put(&mut body, &[record.time]);
            kind::EXIT
        }
        What::Lost(count) => {
            put(&mut body, &[1, count]);
            kind::LOST
        }
        _ => panic!("points are made by their own tests"),
    };
    if kind != kind::SAMPLE {
        body.extend(&who);
        put(&mut body, &[record.time, 1]);
    }
    let mut out = kind.to_ne_bytes().to_vec();
    out.extend([misc, (HEADER + body.len()) as u16].map(u16::to_ne_bytes).concat());
    out.extend(body);
    out
}
