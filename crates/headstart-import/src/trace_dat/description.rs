//! How the traced kernel describes its events, and the names of its functions and threads. perf
//! keeps the same texts in its files.

use crate::error::ImportError;
use crate::fields::Fields;
use headstart::trace::decode::EVENTS;
use std::ops::Range;

/// The function whose calls are page faults.
const FAULT: &[u8] = b"handle_mm_fault";
/// Events of the function graph, besides those of the page cache.
const GRAPH: [&str; 3] = ["funcgraph_entry", "funcgraph_retaddr_entry", "funcgraph_exit"];

/// What a kernel tells of its traces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Description {
    /// Text of `events/header_page`.
    pub header_page: String,
    /// Texts of the `format` files of the events that are read.
    pub formats: Vec<String>,
    /// Where the code of `handle_mm_fault` is, if the file has the kernel's symbols.
    pub fault_function: Option<Range<u64>>,
    /// Names of threads: lines with a number and a name.
    pub names: Vec<u8>,
}

impl Description {
    /// As the start of a file of version 6 has it, up to the names of threads, if `has_names`.
    pub(crate) fn parse(fields: &mut Fields, has_names: bool) -> Result<Self, ImportError> {
        let damaged = |part| ImportError::Damaged { format: "trace", part };
        let mut out = Self::default();
        out.header(fields).ok_or(damaged("the layout of pages"))?;
        out.ftrace_formats(fields).ok_or(damaged("the formats of ftrace's own events"))?;
        out.event_formats(fields).ok_or(damaged("the formats of events"))?;
        out.symbols(fields).ok_or(damaged("the kernel's symbols"))?;
        let printk = fields.u32().and_then(|size| fields.take(size.into()));
        printk.ok_or(damaged("the formats of printk"))?;
        if has_names {
            out.thread_names(fields).ok_or(damaged("the names of threads"))?;
        }
        Ok(out)
    }

    pub(super) fn header(&mut self, fields: &mut Fields) -> Option<()> {
        fields.expect(b"header_page\0")?;
        let size = fields.u64()?;
        self.header_page = String::from_utf8_lossy(fields.take(size)?).into_owned();
        fields.expect(b"header_event\0")?;
        let size = fields.u64()?;
        fields.take(size).map(|_| ())
    }

    pub(super) fn ftrace_formats(&mut self, fields: &mut Fields) -> Option<()> {
        for _ in 0..fields.u32()? {
            self.format(fields)?;
        }
        Some(())
    }

    pub(super) fn event_formats(&mut self, fields: &mut Fields) -> Option<()> {
        for _ in 0..fields.u32()? {
            fields.text()?;
            for _ in 0..fields.u32()? {
                self.format(fields)?;
            }
        }
        Some(())
    }

    fn format(&mut self, fields: &mut Fields) -> Option<()> {
        let size = fields.u64()?;
        let text = fields.take(size)?;
        let name = text.split(|byte| *byte == b'\n').next()?;
        let name = name.strip_prefix(b"name: ").unwrap_or_default();
        let mut read = EVENTS.iter().map(|(_, name, _)| *name).chain(GRAPH);
        let begin = &text[..text.len().min("name: ".len() + name.len() + 1)];
        let is_known = self.formats.iter().any(|known| known.as_bytes().starts_with(begin));
        if read.any(|read| read.as_bytes() == name) && !is_known {
            self.formats.push(String::from_utf8_lossy(text).into_owned());
        }
        Some(())
    }

    pub(super) fn symbols(&mut self, fields: &mut Fields) -> Option<()> {
        let size = fields.u32()?;
        self.fault_function = function(fields.take(size.into())?, FAULT);
        Some(())
    }

    pub(super) fn thread_names(&mut self, fields: &mut Fields) -> Option<()> {
        let size = fields.u64()?;
        self.names = fields.take(size)?.to_vec();
        Some(())
    }

    /// The names of threads with their numbers.
    pub(super) fn named_threads(&self) -> impl Iterator<Item = (i32, &[u8])> {
        self.names.split(|byte| *byte == b'\n').filter_map(|line| {
            let space = line.iter().position(|byte| *byte == b' ')?;
            let tid = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
            Some((tid, &line[space + 1..]))
        })
    }

    /// What is kept of it, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let formats: usize = self.formats.iter().map(String::len).sum();
        self.header_page.len() + formats + self.names.len()
    }
}

/// Where the code of a function is, by the text of /proc/kallsyms.
fn function(symbols: &[u8], name: &[u8]) -> Option<Range<u64>> {
    let symbol = |line| {
        let mut words = <[u8]>::split(line, |byte: &u8| byte.is_ascii_whitespace());
        let address = std::str::from_utf8(words.next()?).ok()?;
        let address = u64::from_str_radix(address, 16).ok().filter(|address| *address != 0)?;
        Some((address, words.nth(1)?))
    };
    let symbols = || symbols.split(|byte| *byte == b'\n').filter_map(symbol);
    let (start, _) = symbols().find(|(_, found)| *found == name)?;
    let next = symbols().map(|(address, _)| address).filter(|address| *address > start).min();
    Some(start..next.unwrap_or(start.saturating_add(4096)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_reaches_to_the_next_symbol_wherever_that_stands() {
        let text = b"1000 T other\n3000 t far [module]\n2000 T handle_mm_fault\n2800 T next\n";
        assert_eq!(function(text, FAULT), Some(0x2000..0x2800));
        assert_eq!(function(b"2000 T handle_mm_fault", FAULT), Some(0x2000..0x3000));
        assert_eq!(function(b"0000 T handle_mm_fault\n0000 T x\n", FAULT), None, "hidden");
        assert_eq!(function(b"zz\n\n2000 T handle_mm_faults", FAULT), None);
    }
}
