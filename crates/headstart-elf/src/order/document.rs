//! What is kept of runs: the functions that they called of each file, in the order of first
//! calls. A JSON document, so that runs of several days can be merged.
//!
//! A document is untrusted: [`parse`] checks it, and the rest relies on that.

use headstart::host::json_path::JsonPath;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The name of the form.
pub const SCHEMA: &str = "headstart/elf-order/1";

/// All that was seen.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Document {
    /// [`SCHEMA`]
    pub schema: String,
    /// The command and its arguments; U+FFFD stands for what is not UTF-8.
    pub command: Vec<String>,
    /// Programs and libraries, those first that were executed first.
    pub files: Vec<FileOrder>,
}

/// The first calls of one file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct FileOrder {
    /// Where it was found.
    #[serde(flatten)]
    pub path: JsonPath,
    /// Its build ID in hexadecimal digits; empty without one.
    #[serde(default)]
    pub build_id: String,
    /// Functions that it has.
    pub functions_in_file: u64,
    /// Where its code begins (`.text`), without the load bias.
    pub text_address: u64,
    /// Those that a run called.
    pub functions: Vec<Function>,
    /// For each run the indices of functions, in the order of first calls.
    pub runs: Vec<Vec<u32>>,
    /// Its static initializers in the order in which they run, by the indices of functions;
    /// those that no run called are skipped.
    #[serde(default)]
    pub initializers: Vec<u32>,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
pub struct Function {
    /// Its symbol, as linkers know it.
    pub name: String,
    /// Other symbols at its address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Without the load bias.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl Function {
    /// All its names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }
}

/// Why a document is of no use.
#[derive(thiserror::Error, Debug)]
pub enum DocumentError {
    /// It is something else.
    #[error("it is no JSON document of `headstart elf order`: {0}")]
    Json(#[from] serde_json::Error),
    /// Of another version, or another verb's.
    #[error("its schema is {0:?}, and {SCHEMA:?} is needed; record it again")]
    Schema(String),
    /// Somebody changed it.
    #[error("it is damaged: {0}; record it again")]
    Damaged(&'static str),
}

/// Reads a document.
///
/// # Errors
/// Those of [`DocumentError`].
pub fn parse(bytes: &[u8]) -> Result<Document, DocumentError> {
    /// What all documents have.
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let head: Head = serde_json::from_slice(bytes)?;
    if head.schema != SCHEMA {
        return Err(DocumentError::Schema(head.schema));
    }
    let document: Document = serde_json::from_slice(bytes)?;
    document.files.iter().try_for_each(check)?;
    Ok(document)
}

fn check(file: &FileOrder) -> Result<(), DocumentError> {
    let damaged = |what| Err(DocumentError::Damaged(what));
    if !file.functions.iter().flat_map(Function::names).all(is_name) {
        return damaged("a function has a name that no linker takes");
    }
    if file.functions.iter().any(|one| one.address.checked_add(one.size).is_none()) {
        return damaged("a function ends behind the end of memory");
    }
    let mut names = HashSet::new();
    if !file.functions.iter().all(|one| names.insert((&one.name, one.address))) {
        return damaged("a function is there twice");
    }
    for indices in file.runs.iter().chain([&file.initializers]) {
        let mut seen = HashSet::new();
        for index in indices {
            if *index as usize >= file.functions.len() {
                return damaged("it calls a function that it does not have");
            }
            if !seen.insert(index) {
                return damaged("a function is called first twice");
            }
        }
    }
    Ok(())
}

/// Whether a symbol can stand in an order file: letters, digits, `_`, `.`, `$`, `@` and what is
/// not ASCII. All symbols of C, C++ and Rust are such; spaces, quotes and wildcards are not.
pub fn is_name(name: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"_.$@".contains(&byte) || byte >= 0x80;
    !name.is_empty() && name.bytes().all(is_plain)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    /// A file whose functions of 100 bytes lie in the order of their names, and runs by names.
    pub fn file(names: &[&str], runs: &[&[&str]]) -> FileOrder {
        let function = |(at, name): (usize, &&str)| Function {
            name: (*name).to_owned(),
            aliases: Vec::new(),
            address: 0x1000 + at as u64 * 0x1000,
            size: 100,
        };
        let index = |name: &&str| names.iter().position(|one| one == name).unwrap() as u32;
        FileOrder {
            path: Path::new("/bin/program").into(),
            build_id: "ab12".into(),
            functions_in_file: 10,
            text_address: 0x1000,
            functions: names.iter().enumerate().map(function).collect(),
            runs: runs.iter().map(|run| run.iter().map(index).collect()).collect(),
            initializers: Vec::new(),
        }
    }

    fn document(file: FileOrder) -> Document {
        Document { schema: SCHEMA.into(), command: vec!["program".into()], files: vec![file] }
    }

    fn parsed(document: &Document) -> Result<Document, DocumentError> {
        parse(&serde_json::to_vec(document).unwrap())
    }

    #[test]
    fn a_document_that_was_changed_by_hand_is_refused_with_the_reason() {
        let whole = document(file(&["a", "b"], &[&["b", "a"], &["b"]]));
        assert_eq!(parsed(&whole).unwrap(), whole);
        type Change = fn(&mut Document);
        let changes: [(Change, &str); 6] = [
            (|d| d.schema = "headstart/elf-order/2".into(), "schema"),
            (|d| d.files[0].runs[0][0] = 2, "does not have"),
            (|d| d.files[0].runs[0][0] = 0, "twice"),
            (|d| d.files[0].functions[0].name = "a b".into(), "linker"),
            (|d| d.files[0].functions[0].size = u64::MAX, "memory"),
            (|d| d.files[0].functions[1] = d.files[0].functions[0].clone(), "twice"),
        ];
        for (change, why) in changes {
            let mut changed = whole.clone();
            change(&mut changed);
            let error = parsed(&changed).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
        for other in ["", "[]", "{}", "{\"schema\": 1}"] {
            assert!(matches!(parse(other.as_bytes()), Err(DocumentError::Json(_))), "{other}");
        }
    }

    #[test]
    fn names_of_compilers_are_names_and_wildcards_are_none() {
        for name in [
            "main",
            "foo.part.0",
            "_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE",
            "_RNvCs1234_7mycrate3foo",
            "operator@@V1",
        ] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "a*", "a?", "[a]", "a\nb", "\"", "a)", "/*", "-x", "a;", "#a", "{"]
        {
            assert!(!is_name(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
