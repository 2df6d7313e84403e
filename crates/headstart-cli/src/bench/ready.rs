//! When a program that does not end counts as started: the conditions, and how to notice them
//! without disturbing the program.

use crate::output;
use headstart::host::contents;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How often a condition is polled.
const TICK: Duration = Duration::from_millis(1);
/// Pieces of output that are looked through at once.
const READS: usize = 4;

/// What a start is waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ready {
    /// Its end.
    End,
    /// A line on its standard output that holds this text.
    Line(String),
    /// Somebody listening on this TCP port.
    Port(u16),
    /// A file that exists.
    File(PathBuf),
    /// An owner of this name on the D-Bus.
    Bus {
        /// The system's bus, not the session's.
        system: bool,
        /// The name.
        name: String,
    },
    /// READY=1 on `$NOTIFY_SOCKET` (sd_notify(3)).
    Notify,
}

impl FromStr for Ready {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no condition; write line:TEXT, port:NUMBER, file:PATH, \
                 dbus:[system:|session:]NAME or notify"
            )
        };
        if text == "notify" {
            return Ok(Self::Notify);
        }
        let (kind, value) =
            text.split_once(':').filter(|(_, v)| !v.is_empty()).ok_or_else(wrong)?;
        Ok(match kind {
            "line" => Self::Line(value.to_owned()),
            "port" => Self::Port(value.parse().map_err(|_| wrong())?),
            "file" => Self::File(value.into()),
            "dbus" => {
                let (system, name) = match value.split_once(':') {
                    Some(("system", name)) => (true, name),
                    Some(("session", name)) => (false, name),
                    Some(_) => return Err(wrong()),
                    // Outside a session there is only the other one.
                    None => (std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_none(), value),
                };
                Self::Bus { system, name: name.to_owned() }
            }
            _ => return Err(wrong()),
        })
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("it ends"),
            Self::Line(text) => write!(f, "it prints a line with {text:?}"),
            Self::Port(port) => write!(f, "it listens on port {port}"),
            Self::File(path) => write!(f, "{} exists", output::shown(path)),
            Self::Bus { name, .. } => write!(f, "{name} is on the D-Bus"),
            Self::Notify => f.write_str("it says READY=1 on $NOTIFY_SOCKET"),
        }
    }
}

/// Looks out for a condition during one start.
#[derive(Debug)]
pub enum Watcher {
    /// See [`Ready::End`].
    End,
    /// The reading end of its standard output, until that is closed.
    Line {
        output: Option<File>,
        seen: Vec<u8>,
        text: Vec<u8>,
        /// Whether what is read is passed on to our standard error.
        shown: bool,
    },
    /// See [`Ready::Port`].
    Port(u16),
    /// See [`Ready::File`].
    File(PathBuf),
    /// A process that ends when the name has an owner.
    Bus { waiting: Child, end: OwnedFd },
    /// The socket and its abstract name.
    Notify { socket: UnixDatagram, name: String },
}

impl Watcher {
    /// Begins to watch, before the program starts; `shown`: the output that it reads for
    /// that goes to our standard error.
    ///
    /// # Errors
    /// When the condition holds already, or can't be watched here.
    pub fn new(ready: &Ready, shown: bool) -> anyhow::Result<Self> {
        Ok(match ready {
            Ready::End => Self::End,
            Ready::Line(text) => {
                let text = text.clone().into_bytes();
                Self::Line { output: None, seen: Vec::new(), text, shown }
            }
            Ready::Port(port) => {
                if listens_in("self", *port) {
                    bail!("Port {port} is in use already; stop what listens on it");
                }
                Self::Port(*port)
            }
            Ready::File(path) => {
                if path.symlink_metadata().is_ok() {
                    bail!(
                        "{0} exists already; remove it before each start: --prepare 'rm {0}'",
                        output::shown(path)
                    );
                }
                Self::File(path.clone())
            }
            Ready::Bus { system, name } => bus(*system, name)?,
            Ready::Notify => notify()?,
        })
    }

    /// Prepares the program's command.
    pub fn prepare(&mut self, command: &mut Command) -> anyhow::Result<()> {
        match self {
            Self::Line { output, .. } => {
                let (reader, writer) = io::pipe().context("Can't make a pipe")?;
                rustix::io::ioctl_fionbio(&reader, true).context("Can't read without waiting")?;
                *output = Some(File::from(OwnedFd::from(reader)));
                command.stdout(writer);
            }
            Self::Notify { name, .. } => {
                command.env("NOTIFY_SOCKET", format!("@{name}"));
            }
            _ => {}
        }
        Ok(())
    }

    /// What becomes readable when there may be something new.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Line { output, .. } => output.as_ref().map(AsFd::as_fd),
            Self::Bus { end, .. } => Some(end.as_fd()),
            Self::Notify { socket, .. } => Some(socket.as_fd()),
            _ => None,
        }
    }

    /// How long to wait at most between two looks.
    pub fn tick(&self) -> Option<Duration> {
        matches!(self, Self::Port(_) | Self::File(_)).then_some(TICK)
    }

    /// Whether the program with this number is ready.
    pub fn check(&mut self, pid: Pid) -> anyhow::Result<bool> {
        match self {
            Self::End => Ok(false),
            Self::Line { .. } => self.read_lines(),
            Self::Port(port) => Ok(listens_in(&pid.as_raw_nonzero().to_string(), *port)),
            Self::File(path) => Ok(path.symlink_metadata().is_ok()),
            Self::Bus { waiting, .. } => {
                match waiting.try_wait().context("Can't wait for gdbus")? {
                    None => Ok(false),
                    Some(status) if status.success() => Ok(true),
                    Some(status) => bail!("gdbus wait failed ({status}); is there such a bus?"),
                }
            }
            Self::Notify { socket, .. } => {
                let mut message = [0; 4096];
                let read = match socket.recv(&mut message) {
                    Ok(read) => read,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(e) => return Err(e).context("Can't read from the notification socket"),
                };
                Ok(message[..read].split(|b| *b == b'\n').any(|line| line == b"READY=1"))
            }
        }
    }

    /// Reads what is there, or a part of much; also drains it for a program that is to end.
    pub fn read_lines(&mut self) -> anyhow::Result<bool> {
        let Self::Line { output, seen, text, shown } = self else { return Ok(false) };
        let Some(file) = output else { return Ok(false) };
        let mut chunk = [0; 8192];
        // One that writes faster than this reads must not keep us from the clock and signals.
        for _ in 0..READS {
            match io::Read::read(file, &mut chunk) {
                Ok(0) => {
                    *output = None;
                    return Ok(holds(seen, text));
                }
                Ok(read) => {
                    if *shown {
                        // Who can't be shown it can't be told so either.
                        let _ = io::Write::write_all(&mut io::stderr(), &chunk[..read]);
                    }
                    seen.extend_from_slice(&chunk[..read]);
                    if holds(seen, text) {
                        return Ok(true);
                    }
                    // What can't be the beginning of the text any more may go.
                    let last_line = seen.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
                    let begin = (seen.len() + 1).saturating_sub(text.len().max(1));
                    seen.drain(..last_line.max(begin.min(seen.len())));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e).context("Can't read the program's output"),
            }
        }
        Ok(false)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Self::Bus { waiting, .. } = self {
            // It has ended by itself where the name came.
            let _ = waiting.kill();
            let _ = waiting.wait();
        }
    }
}

/// Whether a line, the unfinished last one included, holds the text.
fn holds(seen: &[u8], text: &[u8]) -> bool {
    seen.split(|b| *b == b'\n').any(|line| line.windows(text.len()).any(|part| part == text))
}

/// Whether a process's network has a listener on a port; `process` as in /proc.
/// Connecting would be noticed by the program.
fn listens_in(process: &str, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|protocol| {
        contents::text(format!("/proc/{process}/net/{protocol}"))
            .is_ok_and(|table| listens(&table, port))
    })
}

/// Whether a table of sockets (proc_pid_net(5)) has a listener on a port.
fn listens(table: &str, port: u16) -> bool {
    /// `TCP_LISTEN` of `include/net/tcp_states.h`.
    const LISTEN: &str = "0A";
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let local = words.next().and_then(|address| address.rsplit_once(':'));
        local.is_some_and(|(_, p)| u16::from_str_radix(p, 16) == Ok(port))
            && words.nth(1) == Some(LISTEN)
    })
}

fn notify() -> anyhow::Result<Watcher> {
    // An abstract name: it can be reached from a chroot, and nothing stays.
    let name = format!("headstart-bench-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).context("Can't name a socket")?;
    let socket = UnixDatagram::bind_addr(&address)
        .with_context(|| format!("Can't make the notification socket @{name}"))?;
    socket.set_nonblocking(true).context("Can't read without waiting")?;
    Ok(Watcher::Notify { socket, name })
}

/// Starts `gdbus wait` and returns once it sleeps, so that nothing of it runs
/// in parallel with the program.
fn bus(system: bool, name: &str) -> anyhow::Result<Watcher> {
    let which = if system { "--system" } else { "--session" };
    let mut waiting = Command::new("gdbus")
        .args(["wait", which, name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("Can't run gdbus, which watches the D-Bus; install it (libglib2.0-bin)")?;
    let pid = Pid::from_child(&waiting);
    let end = pidfd_open(pid, PidfdFlags::empty()).context("Can't watch gdbus")?;
    // It connects in a few steps; asleep at several looks in a row, it is done.
    let mut asleep = 0;
    while asleep < 10 {
        if waiting.try_wait().context("Can't wait for gdbus")?.is_some() {
            bail!("{name} is on the D-Bus already, or there is no bus; stop what owns the name");
        }
        let stat = contents::text(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        let sleeps = stat.is_ok_and(|s| s.rsplit(')').next().is_some_and(|r| r.starts_with(" S")));
        asleep = if sleeps { asleep + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Watcher::Bus { waiting, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_by_their_kind() {
        for (text, ready) in [
            ("line:Listening on", Ready::Line("Listening on".into())),
            ("line:a:b", Ready::Line("a:b".into())),
            ("port:8080", Ready::Port(8080)),
            ("file:/run/x.pid", Ready::File("/run/x.pid".into())),
            ("dbus:system:org.a.B", Ready::Bus { system: true, name: "org.a.B".into() }),
            ("dbus:session:org.a.B", Ready::Bus { system: false, name: "org.a.B".into() }),
            ("notify", Ready::Notify),
        ] {
            assert_eq!(text.parse(), Ok(ready), "{text}");
        }
        for text in ["", "line:", "port:x", "port:70000", "dbus:a:b", "socket:/x", "notify:"] {
            let error = text.parse::<Ready>().unwrap_err();
            assert!(error.contains("line:TEXT"), "{error}");
        }
    }

    #[test]
    fn only_a_listener_on_the_port_counts() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00\n\
            1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00\n\
            2: 00000000000000000000000000000000:0050 0000:0000 0A 0\n";
        assert!(listens(table, 8080) && listens(table, 80));
        assert!(!listens(table, 8081), "a connection is no listener");
        assert!(!listens("", 80) && !listens("x\ny\n", 80));
    }

    fn line(output: Option<File>, text: &[u8]) -> Watcher {
        Watcher::Line { output, seen: Vec::new(), text: text.to_vec(), shown: false }
    }

    #[test]
    fn a_line_is_found_whole_or_in_pieces() {
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let output = Some(File::from(OwnedFd::from(reader)));
        let mut watcher = line(output, b"ready now");
        let mut say = |text: &str| io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
        say("starting\nnearly rea");
        assert!(!watcher.read_lines().unwrap());
        say("dy\nready ");
        assert!(!watcher.read_lines().unwrap(), "a line break is in between");
        say("now and then");
        assert!(watcher.read_lines().unwrap());
        drop(writer);
        assert!(!matches!(watcher, Watcher::Line { output: None, .. }));
    }

    #[test]
    fn of_much_output_without_lines_a_part_is_read_and_little_kept() {
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let output = Some(File::from(OwnedFd::from(reader)));
        let mut watcher = line(output, b"ready now");
        io::Write::write_all(&mut writer, &[b'x'; 50_000]).unwrap();
        assert!(!watcher.read_lines().unwrap());
        let Watcher::Line { output: Some(output), seen, .. } = &watcher else { panic!() };
        assert!(rustix::io::ioctl_fionread(output).unwrap() > 0, "all was read");
        assert_eq!(seen.len(), 8);
        io::Write::write_all(&mut writer, b"ready now").unwrap();
        let found = (0..8).any(|_| watcher.read_lines().unwrap());
        assert!(found, "it is still seen across pieces");
    }

    #[test]
    fn a_notification_counts_when_it_says_ready() {
        let mut watcher = notify().unwrap();
        let Watcher::Notify { name, .. } = &watcher else { panic!() };
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect_addr(&address).unwrap();
        let me = rustix::process::getpid();
        assert!(!watcher.check(me).unwrap());
        socket.send(b"STATUS=READY=1").unwrap();
        assert!(!watcher.check(me).unwrap());
        socket.send(b"STATUS=x\nREADY=1\n").unwrap();
        assert!(watcher.check(me).unwrap());
    }

    #[test]
    fn what_holds_before_the_start_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = Watcher::new(&Ready::Port(port), false).unwrap_err().to_string();
        assert!(error.contains("in use already"), "{error}");
        let error = Watcher::new(&Ready::File("/proc".into()), false).unwrap_err().to_string();
        assert!(error.contains("--prepare 'rm /proc'"), "{error}");
    }
}
