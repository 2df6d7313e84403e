//! Execs from the proc connector: `include/uapi/linux/cn_proc.h`, `Documentation/driver-api/connector.rst`.

use headstart_daemon::execs::{Exec, Lost, Seen, Source};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Its multicast group, `CN_IDX_PROC`, and its number within that, `CN_VAL_PROC`.
const GROUP: u32 = 1;
/// `PROC_CN_MCAST_LISTEN`
const LISTEN: u32 = 1;
/// `PROC_EVENT_EXEC`
const EXEC: u32 = 2;
/// Bytes of `struct nlmsghdr`, and of that with `struct cn_msg`.
const NETLINK: usize = 16;
const HEADERS: usize = NETLINK + 20;
/// Bytes that may wait: some thousand execs.
const ROOM: usize = 4 << 20;

/// A socket that reports execs.
pub struct Connector(OwnedFd);

impl Connector {
    /// Listens, to execs only if the kernel is to filter (since Linux 6.6; before, that is refused
    /// without an answer).
    pub fn listen(filter: bool) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::DGRAM;
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            kind,
            flags,
            Some(netlink::CONNECTOR),
        )?;
        sockopt::set_socket_recv_buffer_size_force(&socket, ROOM)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
        let told = if filter { &[LISTEN, EXEC][..] } else { &[LISTEN][..] };
        let length = 4 * told.len() as u32;
        let message = [HEADERS as u32 + length, 3, 0, 0, GROUP, GROUP, 0, 0, length];
        let words: Vec<u8> =
            message.iter().chain(told).flat_map(|word| word.to_ne_bytes()).collect();
        rustix::net::send(&socket, &words, SendFlags::empty())?;
        Ok(Self(socket))
    }
}

impl Source for Connector {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn read(&mut self, out: &mut Vec<Exec>) -> io::Result<Lost> {
        let mut message = [0u8; 256];
        let mut lost = 0;
        loop {
            match rustix::net::recv(&self.0, &mut message[..], RecvFlags::empty()) {
                Ok((length, _)) => out.extend(parse(&message[..length.min(message.len())])),
                Err(Errno::AGAIN) => return Ok(Lost(lost)),
                // At least one; the kernel does not say how many.
                Err(Errno::NOBUFS) => lost += 1,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The exec that a message reports.
fn parse(message: &[u8]) -> Option<Exec> {
    let word = |at: usize| {
        let bytes = message.get(HEADERS + at..HEADERS + at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let at = message.get(HEADERS + 8..HEADERS + 16)?;
    let at = u64::from_ne_bytes(at.try_into().ok()?);
    (word(0)? == EXEC).then_some(())?;
    Some(Exec { pid: word(20)?, at, seen: Seen::Exec })
}
