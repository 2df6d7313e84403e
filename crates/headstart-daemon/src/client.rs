//! Asks the service: the driver of the other end of its socket.

use crate::control::answer::Answer;
use crate::control::request::Request;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Where the service listens.
pub const SOCKET: &str = "/run/headstart/headstartd.sock";
/// How long it may take: a stopped one does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No answer is larger, in bytes.
const MOST_BYTES: u64 = 4 << 20;

/// The answer of the service to a request.
///
/// # Errors
/// There is no service, or it does not answer in time.
pub fn ask(socket: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&request.line())?;
    let mut answer = Vec::new();
    #[allow(clippy::disallowed_methods)] // Here is the limit.
    let read = stream.take(MOST_BYTES).read_to_end(&mut answer);
    read.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "it does not answer"),
        _ => error,
    })?;
    serde_json::from_slice(&answer).map_err(io::Error::other)
}
