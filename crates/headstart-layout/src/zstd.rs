//! How ranges are compressed. Pure.

use std::str::FromStr;

/// How ranges are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zstd {
    /// The level; without one it is that of the file system.
    pub level: Option<u8>,
}

impl FromStr for Zstd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no compression; write it like zstd or zstd:9 (1 to 15)");
        let level = match text.split_once(':') {
            None if text == "zstd" => return Ok(Self { level: None }),
            Some(("zstd", level)) => level.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        if (1..=15).contains(&level) { Ok(Self { level: Some(level) }) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compression_is_zstd_with_or_without_a_level() {
        for (text, expected) in [
            ("zstd", Some(None)),
            ("zstd:1", Some(Some(1))),
            ("zstd:15", Some(Some(15))),
            ("zstd:0", None),
            ("zstd:16", None),
            ("zstd:", None),
            ("lzo", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), expected.map(|level| Zstd { level }), "{text}");
        }
    }
}
