//! A path in a JSON document: always text, and the exact bytes too where text can't hold them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::names;
use serde::{Deserialize, Serialize};

/// `path` is the path as text; `path_bytes` is there where it is not UTF-8, and lists its bytes
/// then. A JSON string can't hold all paths.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct JsonPath {
    /// U+FFFD stands for what is not UTF-8.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<Vec<u8>>,
}

impl JsonPath {
    /// The path.
    pub fn to_path(&self) -> PathBuf {
        let bytes = self.path_bytes.as_deref().unwrap_or(self.path.as_bytes());
        OsString::from_vec(bytes.to_vec()).into()
    }

    /// The path for people.
    pub fn shown(&self) -> String {
        names::path(&self.to_path())
    }
}

impl From<&Path> for JsonPath {
    fn from(path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes();
        let path_bytes = path.to_str().is_none().then(|| bytes.to_vec());
        Self { path: String::from_utf8_lossy(bytes).into_owned(), path_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;

    #[test]
    fn a_path_that_is_not_utf8_keeps_its_bytes_in_json() {
        let json = |path| serde_json::to_string(&JsonPath::from(path)).unwrap();
        assert_eq!(json(Path::new("/a b")), r#"{"path":"/a b"}"#);
        let path = Path::new(OsStr::from_bytes(b"a\xff"));
        assert_eq!(json(path), "{\"path\":\"a\u{fffd}\",\"path_bytes\":[97,255]}");
    }

    proptest! {
        #[test]
        fn every_path_can_be_had_back(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let path = PathBuf::from(OsString::from_vec(bytes));
            let text = serde_json::to_string(&JsonPath::from(path.as_path())).unwrap();
            prop_assert_eq!(serde_json::from_str::<JsonPath>(&text).unwrap().to_path(), path);
        }
    }
}
