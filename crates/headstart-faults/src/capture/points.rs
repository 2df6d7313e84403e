//! Reads the kernel's descriptions of the tracepoints that waits are recorded by.

use crate::points::{Fields, Point};
use headstart::host::contents;
use headstart::host::proc::in_first_pid_namespace;
use headstart::trace::format::{FormatError, parse_event};
use headstart::trace::tracefs::{TraceError, Tracefs};
use std::io::{self, ErrorKind};

/// Why waits can't be recorded, and what to do.
#[derive(thiserror::Error, Debug)]
pub enum PointsError {
    /// There are no descriptions for this user, or at all.
    #[error("Waits can't be recorded")]
    Trace(#[from] TraceError),
    /// The kernel's numbers of threads are not those of this process.
    #[error(
        "Waits can't be recorded in a PID namespace, as that of a container, since the kernel reports \
         other numbers of threads; run headstart outside of it"
    )]
    Namespace,
    /// A tracepoint is missing.
    #[error(
        "Waits can't be recorded: this kernel has no tracepoint {0}:{1} (CONFIG_FTRACE_SYSCALLS, \
         CONFIG_BLK_DEV_IO_TRACE)"
    )]
    Missing(&'static str, &'static str),
    /// It is another than is known.
    #[error("Waits can't be recorded: the tracepoint {0}:{1} of this kernel has no field {2}")]
    Field(&'static str, &'static str, String),
    /// It can't be read.
    #[error(
        "Waits can't be recorded: the description of the tracepoint {0}:{1} can't be read ({2})"
    )]
    Read(&'static str, &'static str, io::Error),
}

/// The tracepoints of this kernel, with their numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Points {
    /// Each with its number.
    pub all: Vec<(u16, Fields)>,
    /// Whether tracefs had to be mounted to find them.
    pub mounted_tracefs: bool,
}

/// Those that are needed.
const NEEDED: [Point; 6] =
    [Point::Enter, Point::Return, Point::Switch, Point::Waking, Point::Issue, Point::Complete];

impl Points {
    /// Finds them.
    ///
    /// # Errors
    /// Those of [`PointsError`].
    pub fn find() -> Result<Self, PointsError> {
        if !in_first_pid_namespace() {
            return Err(PointsError::Namespace);
        }
        let tracefs = Tracefs::locate()?;
        let read = |point: Point| {
            let (group, name) = point.name();
            let path = tracefs.root().join("events").join(group).join(name).join("format");
            let text = contents::text(path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => PointsError::Missing(group, name),
                ErrorKind::PermissionDenied => TraceError::Permission(error).into(),
                _ => PointsError::Read(group, name, error),
            })?;
            let missing = |field: &str| PointsError::Field(group, name, field.to_owned());
            let format = parse_event(&text).map_err(|FormatError::Missing(line)| missing(line))?;
            Ok((format.id, Fields::new(point, &format).map_err(missing)?))
        };
        let mut found = NEEDED.into_iter().map(read).collect::<Result<Vec<_>, PointsError>>()?;
        match read(Point::Pages) {
            Err(PointsError::Missing(..)) => found.push(read(Point::Added)?),
            other => found.push(other?),
        }
        Ok(Self { all: found, mounted_tracefs: tracefs.mounted_now })
    }
}
