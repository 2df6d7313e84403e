//! Parses the kernel's self-description of trace data: the `format` file of
//! an event and `events/header_page`. Pure; never assumes an offset, because
//! fields moved between kernels (`order` came late, `page` became `pfn`).

use thiserror::Error;

/// One field of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name, without array brackets.
    pub name: String,
    /// Bytes from the start of the record.
    pub offset: usize,
    /// Length in bytes.
    pub size: usize,
}

impl Field {
    /// The field's value in a record as an unsigned number, `None` when the
    /// record is too short or the field is no integer.
    pub fn read(&self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        Some(match *bytes {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        })
    }
}

/// The layout of one event's records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventFormat {
    /// The event's name, as `mm_filemap_fault`.
    pub name: String,
    /// The number in `common_type` of its records.
    pub id: u16,
    /// All fields, the common ones included.
    pub fields: Vec<Field>,
}

impl EventFormat {
    /// The field called `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// The layout of a sub-buffer, from `events/header_page`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageHeader {
    /// The first record's time stamp.
    pub timestamp: Field,
    /// Bytes in use and the flags of lost events.
    pub commit: Field,
    /// Where records start.
    pub data: usize,
}

/// A description that can't be understood.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// A line that is needed is missing.
    #[error("The kernel's trace description has no `{0}`; this kernel is not supported")]
    Missing(&'static str),
}

/// Parses an event's `format` file (`Documentation/trace/events.rst`).
pub fn parse_event(text: &str) -> Result<EventFormat, FormatError> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    Ok(EventFormat {
        name: value("name:").ok_or(FormatError::Missing("name"))?.to_owned(),
        id: value("ID:").and_then(|v| v.parse().ok()).ok_or(FormatError::Missing("ID"))?,
        fields: text.lines().filter_map(parse_field).collect(),
    })
}

/// Parses `events/header_page`.
pub fn parse_page_header(text: &str) -> Result<PageHeader, FormatError> {
    let fields: Vec<Field> = text.lines().filter_map(parse_field).collect();
    let find = |name: &'static str| {
        fields.iter().find(|f| f.name == name).cloned().ok_or(FormatError::Missing(name))
    };
    Ok(PageHeader {
        timestamp: find("timestamp")?,
        commit: find("commit")?,
        data: find("data")?.offset,
    })
}

/// `\tfield:unsigned long i_ino;\toffset:16;\tsize:8;\tsigned:0;`
fn parse_field(line: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declaration = parts.next()?;
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse().ok();
    Some(Field { name: name.to_owned(), offset: number("offset:")?, size: number("size:")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INSERT: &str = "name: mm_filemap_add_to_page_cache\nID: 600\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:struct file * file;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:24;\tsize:16;\tsigned:0;\n\
        \tfield:unsigned char order;\toffset:40;\tsize:1;\tsigned:0;\n\n\
        print fmt: \"dev %d\", ((unsigned int) REC->s_dev)\n";

    #[test]
    fn fields_of_every_declared_shape_are_found_by_name() {
        let format = parse_event(INSERT).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("mm_filemap_add_to_page_cache", 600));
        for (name, offset, size) in [
            ("common_pid", 4, 4),
            ("pfn", 8, 8),
            ("file", 16, 8),
            ("comm", 24, 16),
            ("order", 40, 1),
        ] {
            let field = format.field(name).unwrap();
            assert_eq!((field.offset, field.size), (offset, size), "{name}");
        }
        assert_eq!(format.field("REC"), None);
    }

    #[test]
    fn a_description_without_id_is_refused() {
        assert_eq!(parse_event("name: x\n"), Err(FormatError::Missing("ID")));
        assert_eq!(parse_page_header(""), Err(FormatError::Missing("timestamp")));
    }

    #[test]
    fn a_field_beyond_the_record_reads_as_nothing() {
        let field = Field { name: "x".into(), offset: usize::MAX, size: 8 };
        assert_eq!(field.read(&[0; 16]), None);
        let array = Field { name: "x".into(), offset: 0, size: 3 };
        assert_eq!(array.read(&[0; 16]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused_without_a_panic(text in "\\PC{0,300}") {
            let _ = parse_event(&text);
            let _ = parse_page_header(&text);
        }
    }
}
