//! Notifies systemd of what a unit does (sd_notify(3)): a datagram to `$NOTIFY_SOCKET`. The driver.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The unit is ready.
pub const READY: &str = "READY=1";
/// The unit is alive.
pub const WATCHDOG: &str = "WATCHDOG=1";
/// The unit ends.
pub const STOPPING: &str = "STOPPING=1";

/// Tells it one of these, if there is a socket.
///
/// # Errors
/// What the socket said.
pub fn tell(socket: Option<&OsStr>, what: &str) -> io::Result<()> {
    let Some(name) = socket.map(OsStr::as_bytes).filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(OsStr::from_bytes(name))?,
    };
    UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_reaches_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let abstract_name = format!("headstart-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{abstract_name}")),
        ] {
            tell(Some(OsStr::new(&name)), READY).unwrap();
            let mut told = [0; 16];
            let n = socket.recv(&mut told).unwrap();
            assert_eq!(&told[..n], b"READY=1");
        }
        assert!(tell(None, READY).is_ok() && tell(Some(OsStr::new("")), READY).is_ok());
        assert!(tell(Some(dir.path().join("none").as_os_str()), READY).is_err());
    }
}
