//! Requests: one JSON document in one line, and who may make them. Pure.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A request is not longer, in bytes.
pub const MOST_BYTES: usize = 4096;

/// What a client wants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What the service does, in figures.
    Status {},
    /// The last starts, and the programs that gain most.
    Top {},
    /// The figures for Prometheus.
    Metrics {},
    /// Forgets what was learned of a program.
    Forget {
        /// Its name, its executable, or the file name of its pack.
        program: String,
    },
    /// Has a program prefetched and kept whatever the figures say.
    Pin {
        /// As above.
        program: String,
    },
    /// Leaves a pinned program to the figures.
    Unpin {
        /// As above.
        program: String,
    },
    /// Does nothing until `resume`, or for this time.
    Pause {
        /// In seconds.
        seconds: Option<u64>,
    },
    /// Goes on.
    Resume {},
    /// Ends tracing, and the service.
    Off {},
}

/// A request that is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// It is no request.
    #[error("this is no request that the service knows")]
    Unknown,
    /// It is too long.
    #[error("a request is {MOST_BYTES} bytes at most")]
    Long,
    /// Only root may make it.
    #[error("only root may do that")]
    Rights,
}

/// The request in a line.
///
/// # Errors
/// It is none.
pub fn parse(line: &[u8]) -> Result<Request, Refused> {
    if line.len() > MOST_BYTES {
        return Err(Refused::Long);
    }
    serde_json::from_slice(line).map_err(|_| Refused::Unknown)
}

impl Request {
    /// Its line, with the line end.
    pub fn line(&self) -> Vec<u8> {
        // Strings and numbers have a form.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Whether this user may make it. Programs of others are hidden from all but root elsewhere.
    ///
    /// # Errors
    /// [`Refused::Rights`].
    pub fn check(&self, uid: u32) -> Result<(), Refused> {
        match self {
            Self::Pause { .. } | Self::Resume {} | Self::Off {} if uid != 0 => Err(Refused::Rights),
            _ => Ok(()),
        }
    }
}

/// Whether a user sees and changes the programs of another.
pub fn may_see(uid: u32, of: u32) -> bool {
    uid == 0 || uid == of
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_survives_its_line_and_nothing_else_is_one() {
        let program = || "git".to_owned();
        for request in [
            Request::Status {},
            Request::Forget { program: program() },
            Request::Pause { seconds: Some(60) },
            Request::Pause { seconds: None },
            Request::Off {},
        ] {
            let line = request.line();
            assert_eq!(parse(&line[..line.len() - 1]).unwrap(), request);
        }
        for line in ["", "status", "{}", r#"{"do":"status","x":1}"#, r#"{"do":"rm"}"#, "[[[["] {
            assert_eq!(parse(line.as_bytes()), Err(Refused::Unknown), "{line}");
        }
        assert_eq!(parse(&[b' '; MOST_BYTES + 1]), Err(Refused::Long));
    }

    #[test]
    fn only_root_stops_the_service_and_sees_the_programs_of_all() {
        for (request, user) in [
            (Request::Status {}, true),
            (Request::Top {}, true),
            (Request::Metrics {}, true),
            (Request::Pin { program: "a".into() }, true),
            (Request::Pause { seconds: None }, false),
            (Request::Resume {}, false),
            (Request::Off {}, false),
        ] {
            assert!(request.check(0).is_ok());
            assert_eq!(request.check(1000).is_ok(), user, "{request:?}");
        }
        for (uid, of, expected) in [(0, 7, true), (7, 7, true), (7, 8, false), (7, 0, false)] {
            assert_eq!(may_see(uid, of), expected, "{uid} {of}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_request_or_refused(line in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = parse(&line);
        }
    }
}
