//! The socket: a few clients at a time, each with one request and a short time. The user is that of
//! the socket's peer, as the kernel tells it.

use super::shared::{Places, Shared, When};
use crate::control::answer::{Answer, find};
use crate::control::metrics;
use crate::control::request::{MOST_BYTES, Request, parse};
use headstart::host::error::causes;
use headstart::launch::retention;
use headstart::pack::store::StoreError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Clients at the same time, and of one user. Root has room when others take it all.
const MOST_CLIENTS: usize = 32;
const MOST_OF_ONE: usize = 8;
/// Clients that are accepted before those that there are get on.
const MOST_ACCEPTED: usize = 64;
/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is checked whether the service ends.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Makes the socket. One that a killed service left is replaced.
///
/// # Errors
/// Another service answers at it, or it can't be made.
pub(super) fn listen(places: &Places) -> io::Result<UnixListener> {
    let path = &places.socket;
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(ErrorKind::AddrInUse, "the service runs already"));
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // Each user may ask; what for is decided by the user's number.
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves clients in a thread until the service ends.
///
/// # Errors
/// There is no thread.
pub(super) fn serve(shared: Arc<Shared>, listener: UnixListener) -> io::Result<JoinHandle<()>> {
    let server = Server { shared, listener, clients: Vec::new() };
    thread::Builder::new().name("control".into()).spawn(move || server.run())
}

struct Server {
    shared: Arc<Shared>,
    listener: UnixListener,
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    uid: u32,
    until: Instant,
    request: Vec<u8>,
    /// What is left of the answer, once there is one.
    answer: Option<Vec<u8>>,
}

/// How it goes on with a client.
enum Then {
    Wait,
    Close,
    Refuse,
}

impl Server {
    fn run(mut self) {
        while !self.shared.stops() {
            self.wait();
            self.accept();
            self.go_on();
        }
        // The answer to `off`.
        self.go_on();
        let _ = fs::remove_file(&self.shared.places.socket);
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.clients.iter().map(|client| {
            let flags = if client.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&client.stream, flags)
        }));
        // An error is a wake-up.
        let _ = poll(&mut fds, Some(&LOOK));
    }

    fn accept(&mut self) {
        for _ in 0..MOST_ACCEPTED {
            let Ok((stream, _)) = self.listener.accept() else { return };
            let peer = socket_peercred(&stream).map(|peer| peer.uid.as_raw());
            let is_set = stream.set_nonblocking(true).is_ok();
            let Some(uid) = peer.ok().filter(|_| is_set) else { continue };
            let of_one = self.clients.iter().filter(|client| client.uid == uid).count();
            let room = if uid == 0 { MOST_CLIENTS } else { MOST_CLIENTS - MOST_OF_ONE };
            if self.clients.len() >= room || of_one >= MOST_OF_ONE {
                self.shared.count(|counters| counters.refused_clients += 1);
                continue;
            }
            let until = Instant::now() + PATIENCE;
            self.clients.push(Client { stream, uid, until, request: Vec::new(), answer: None });
        }
    }

    fn go_on(&mut self) {
        let Self { shared, clients, .. } = self;
        clients.retain_mut(|client| match client.go_on(shared) {
            Then::Wait if Instant::now() < client.until => true,
            Then::Close => false,
            Then::Wait | Then::Refuse => {
                shared.count(|counters| counters.refused_clients += 1);
                false
            }
        });
    }
}

impl Client {
    fn go_on(&mut self, shared: &Shared) -> Then {
        if self.answer.is_none() {
            match self.read() {
                Ok(Some(line)) => self.answer = Some(answer(shared, &line, self.uid).line()),
                Ok(None) => return Then::Wait,
                Err(_) => return Then::Refuse,
            }
        }
        self.write()
    }

    /// The line of the request, if it is there.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut part = [0; 512];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.request.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            let end = self.request.iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                self.request.truncate(end);
                return Ok(Some(std::mem::take(&mut self.request)));
            }
            if self.request.len() > MOST_BYTES {
                // It is refused with the reason.
                return Ok(Some(std::mem::take(&mut self.request)));
            }
        }
    }

    fn write(&mut self) -> Then {
        let Some(answer) = &mut self.answer else { return Then::Wait };
        while !answer.is_empty() {
            match self.stream.write(answer) {
                Ok(0) => return Then::Refuse,
                Ok(written) => drop(answer.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Then::Wait,
                Err(_) => return Then::Refuse,
            }
        }
        Then::Close
    }
}

fn answer(shared: &Shared, line: &[u8], uid: u32) -> Answer {
    let request = parse(line).and_then(|request| request.check(uid).map(|()| request));
    match request {
        Ok(request) => does(shared, request, uid).unwrap_or_else(Answer::error),
        Err(refused) => Answer::error(refused),
    }
}

fn does(shared: &Shared, request: Request, uid: u32) -> Result<Answer, String> {
    Ok(match request {
        Request::Status {} => Answer { status: Some(shared.status()), ..Answer::default() },
        Request::Top {} => Answer::top(shared.recent().iter(), &shared.state().table, uid),
        Request::Metrics {} => {
            Answer { metrics: Some(metrics::text(&shared.status())), ..Answer::default() }
        }
        Request::Forget { program } => forget(shared, &program, uid)?,
        Request::Pin { program } => pin(shared, &program, uid, true)?,
        Request::Unpin { program } => pin(shared, &program, uid, false)?,
        Request::Pause { seconds } => {
            shared.pause(seconds);
            Answer::done("paused")
        }
        Request::Resume {} => {
            shared.resume();
            Answer::done("goes on")
        }
        Request::Off {} => {
            shared.stop();
            Answer::done("the service ends, and traces nothing any more")
        }
    })
}

fn forget(shared: &Shared, program: &str, uid: u32) -> Result<Answer, String> {
    let id = find(&shared.state().table, program, uid)?;
    match retention::forget(&shared.pack_of(&id)) {
        Ok(()) | Err(StoreError::Missing(_)) => {}
        Err(StoreError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(causes(&error)),
    }
    {
        let mut state = shared.state();
        state.table.remove(&id);
        state.model.forget(id.uid, &id.file_name);
    }
    shared.renew_login_pack(id.uid, When::Now);
    Ok(Answer::done(format!("forgot {}", id.file_name)))
}

fn pin(shared: &Shared, program: &str, uid: u32, pinned: bool) -> Result<Answer, String> {
    let id = find(&shared.state().table, program, uid)?;
    shared.change(&id, Default::default, |program| program.pinned = pinned);
    shared.renew_login_pack(id.uid, When::Now);
    let what = if pinned { "pinned" } else { "unpinned" };
    Ok(Answer::done(format!("{what} {}", id.file_name)))
}
