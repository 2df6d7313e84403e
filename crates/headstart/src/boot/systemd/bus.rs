//! Asks systemd over its own socket, which is there before any message bus, as systemctl
//! does when root runs it.
//!
//! One connection for each round of questions, all sent at once. No process is started
//! for it: `systemctl` takes forty times as long, and reads itself from the disk first.

use super::message::{self, Property, Value};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Where systemd listens.
pub const SOCKET: &str = "/run/systemd/private";
/// systemd may be loading its units, which takes its time on a slow disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than systemd's answer to `AUTH` (some 40 bytes).
const LINE: usize = 256;

/// The values of properties; `None` for those that are not there.
///
/// # Errors
/// systemd does not listen there, or does not answer as it should.
pub fn query(socket: &Path, properties: &[Property<'_>]) -> io::Result<Vec<Option<Value>>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    log_in(&mut stream)?;
    let calls = (1..).zip(properties).flat_map(|(serial, property)| message::get(serial, property));
    stream.write_all(&calls.collect::<Vec<u8>>())?;
    let mut values = vec![None; properties.len()];
    let mut open = properties.len();
    while open > 0 {
        let message = receive(&mut stream)?;
        let Some(answer) = message::answer(&message) else { continue };
        let place =
            usize::try_from(answer.to).ok().and_then(|to| values.get_mut(to.checked_sub(1)?));
        if let Some(place) = place {
            *place = answer.value;
            open -= 1;
        }
    }
    Ok(values)
}

/// Says who we are: the kernel tells systemd whether that is true.
fn log_in(stream: &mut UnixStream) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw().to_string();
    let user: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
    stream.write_all(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes())?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.extend(byte);
        if line.len() > LINE {
            return Err(io::Error::other("systemd's socket does not speak D-Bus"));
        }
    }
    if !line.starts_with(b"OK ") {
        return Err(io::Error::other("systemd does not let us ask"));
    }
    stream.write_all(b"BEGIN\r\n")
}

fn receive(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut start = [0; message::START];
    stream.read_exact(&mut start)?;
    let Some(length) = message::length(start) else {
        return Err(io::Error::other("systemd's socket does not speak D-Bus"));
    };
    let mut message = vec![0; length];
    message[..start.len()].copy_from_slice(&start);
    stream.read_exact(&mut message[start.len()..])?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    const PROPERTY: Property<'_> = Property { path: "/a", interface: "a.B", name: "C" };

    /// Lets somebody listen who says `words` to whoever connects, and asks there.
    fn answer_to(words: &'static [u8]) -> io::Result<Vec<Option<Value>>> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("private");
        let listener = UnixListener::bind(&socket).unwrap();
        let listening = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(words).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // What was asked, until the asker is gone.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let answer = query(&socket, &[PROPERTY, PROPERTY]);
        listening.join().unwrap();
        answer
    }

    #[test]
    fn answers_come_in_any_order_with_others_between() {
        let answer = answer_to(
            b"OK 0123456789abcdef0123456789abcdef\r\n\
              l\x02\x01\x01\x10\0\0\0\x01\0\0\0\x08\0\0\0\x05\x01u\0\x02\0\0\0\
              \x01t\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0\
              l\x02\x01\x01\0\0\0\0\x02\0\0\0\x08\0\0\0\x05\x01u\0\x63\0\0\0\
              l\x03\x01\x01\0\0\0\0\x03\0\0\0\x08\0\0\0\x05\x01u\0\x01\0\0\0",
        );
        assert_eq!(answer.unwrap(), [None, Some(Value::Number(42))]);
    }

    #[test]
    fn who_is_no_systemd_ends_in_an_error() {
        for words in [
            &b"REJECTED EXTERNAL\r\n"[..],
            b"OK 00\r\nHTTP/1.1 400 Bad Request",
            b"OK 00\r\nl\x02",
            b"",
            &[b'x'; 600],
        ] {
            assert!(answer_to(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn nobody_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(query(&dir.path().join("private"), &[PROPERTY]).is_err());
    }
}
