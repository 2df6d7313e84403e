//! Notifies systemd that a unit is ready (sd_notify(3)): a datagram to `$NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells it, if somebody asks.
///
/// # Errors
/// What the socket said.
pub fn ready(socket: Option<&OsStr>) -> io::Result<()> {
    let Some(name) = socket.map(OsStr::as_bytes).filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(OsStr::from_bytes(name))?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
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
            ready(Some(OsStr::new(&name))).unwrap();
            let mut told = [0; 16];
            let n = socket.recv(&mut told).unwrap();
            assert_eq!(&told[..n], b"READY=1");
        }
        assert!(ready(None).is_ok() && ready(Some(OsStr::new(""))).is_ok());
        assert!(ready(Some(dir.path().join("none").as_os_str())).is_err());
    }
}
