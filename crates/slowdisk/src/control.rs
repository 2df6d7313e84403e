//! How the server is asked: a Unix socket in the disk's state directory, one
//! line of JSON each way.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::counters::Stats;
use crate::engine::Overhead;
use crate::error::{Error, Result};
use crate::model::Device;

/// A server that does not answer for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest line taken.
const LONGEST: u64 = 16 << 20;

/// What a server is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Nothing: whether it lives.
    Ping,
    /// Be a device of that kind from now on, and count from zero.
    Become(Device, Overhead),
    /// The counters; set to zero if so requested.
    Stats {
        /// Whether counting begins at zero.
        reset: bool,
    },
    /// Fail all requests from now on.
    Cut,
    /// End.
    Quit,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Done.
    Done,
    /// The counters.
    Stats(Box<Stats>),
    /// Nobody counts: nothing is modelled.
    NotCounted,
}

/// The server's end.
#[derive(Debug)]
pub struct Listener(UnixListener);

impl Listener {
    /// Listens in the state directory `dir`.
    ///
    /// # Errors
    /// Those of bind(2).
    pub fn bind(dir: &Path) -> Result<Self> {
        let path = socket(dir);
        UnixListener::bind(&path).map(Self).map_err(Error::io("listen on", &path))
    }

    /// Answers one caller after the other; ends at [`Command::Quit`]. A caller
    /// that breaks off or talks nonsense is hung up on and learns so by that.
    pub fn serve(&self, mut answer: impl FnMut(&Command) -> Answer) {
        for caller in self.0.incoming().filter_map(io::Result::ok) {
            if matches!(converse(caller, &mut answer), Ok(Command::Quit)) {
                return;
            }
        }
    }
}

fn converse(
    mut caller: UnixStream,
    answer: &mut impl FnMut(&Command) -> Answer,
) -> io::Result<Command> {
    caller.set_read_timeout(Some(PATIENCE))?;
    caller.set_write_timeout(Some(PATIENCE))?;
    let command: Command = serde_json::from_str(&line(&caller)?)?;
    let answer = serde_json::to_string(&answer(&command))? + "\n";
    // Whoever requests the end may be gone by then; the end comes all the same.
    let sent = caller.write_all(answer.as_bytes());
    if command != Command::Quit {
        sent?;
    }
    Ok(command)
}

fn line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    Ok(line)
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

/// Asks the server of the state directory `dir`; `None` when there is none.
///
/// # Errors
/// When it does not answer, or not sensibly.
pub fn query(dir: &Path, command: &Command) -> Result<Option<Answer>> {
    let path = socket(dir);
    let mut server = match UnixStream::connect(&path) {
        Ok(server) => server,
        Err(e)
            if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(Error::io("connect to", &path)(e)),
    };
    let mut talk = || {
        server.set_read_timeout(Some(PATIENCE))?;
        server.write_all((serde_json::to_string(command)? + "\n").as_bytes())?;
        let answer = serde_json::from_str(&line(&server)?)?;
        if *command == Command::Quit {
            // It closes the connection when it is about to end.
            server.read_to_end(&mut Vec::new())?;
        }
        Ok(answer)
    };
    talk().map(Some).map_err(Error::io("talk with the server at", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_until_the_end_is_requested() {
        let dir = tempfile::tempdir().unwrap();
        let listener = Listener::bind(dir.path()).unwrap();
        let stats = Stats { late: 7, ..Stats::default() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                listener.serve(|command| match command {
                    Command::Stats { reset: true } => Answer::Stats(Box::new(stats.clone())),
                    _ => Answer::Done,
                });
            });
            // Somebody who hangs up at once, and somebody who talks nonsense.
            drop(UnixStream::connect(socket(dir.path())).unwrap());
            let mut nonsense = UnixStream::connect(socket(dir.path())).unwrap();
            nonsense.write_all(b"nonsense\n").unwrap();
            let answer = query(dir.path(), &Command::Stats { reset: true }).unwrap();
            assert_eq!(answer, Some(Answer::Stats(Box::new(stats.clone()))));
            assert_eq!(query(dir.path(), &Command::Quit).unwrap(), Some(Answer::Done));
        });
    }

    #[test]
    fn nobody_there_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(query(dir.path(), &Command::Ping).unwrap(), None);
        drop(Listener::bind(dir.path()).unwrap());
        assert_eq!(query(dir.path(), &Command::Ping).unwrap(), None);
    }
}
