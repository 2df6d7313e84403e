//! Services that others start for whoever wants them: those of a real D-Bus, for a message, and of systemd's
//! socket activation, for a connection.

use crate::common::starts::{Ends, Starts, is_learned_beside};
use crate::daemon::program;
use headstart_testing::{LoopFs, has, is_root, must, skip, wait_until, write_synced};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

/// The names of the service, and of the bus itself.
const NAME: &str = "org.headstart.Reader";
const BUS: &str = "org.freedesktop.DBus";

/// Takes its name on the bus, and does what messages say. What it sends and receives is in the D-Bus specification,
/// "Message Protocol" and "Authentication Protocol".
const SERVICE: &str = "\
import os, socket, struct, sys
FOLDER, NAME = sys.argv[1:]
CALL, REPLY = 1, 2
PATH, MEMBER, REPLY_SERIAL, DESTINATION, SENDER, SIGNATURE = 1, 3, 5, 6, 7, 8

def padded(data, to):
    return data + bytes(-len(data) % to)

def text(word):
    return struct.pack('<I', len(word)) + word.encode() + b'\\0'

def send(kind, serial, fields, body=b''):
    array = b''
    for code, (signature, value) in fields.items():
        array = padded(array, 8) + bytes([code, 1]) + signature.encode() + b'\\0'
        if signature == 'g':
            array += bytes([len(value)]) + value.encode() + b'\\0'
        else:
            array = padded(array, 4) + (struct.pack('<I', value) if signature == 'u' else text(value))
    begin = struct.pack('<cBBBIII', b'l', kind, 0, 1, len(body), serial, len(array))
    bus.sendall(padded(begin + array, 8) + body)

def receive():
    begin = stream.read(16)
    if len(begin) < 16:
        sys.exit('the bus has ended')
    kind, _, _, body, serial, length = struct.unpack('<xBBBIII', begin)
    array = stream.read(-(-length // 8) * 8)[:length]
    stream.read(body)
    fields, at = {}, 0
    while at < len(array):
        at += -at % 8
        code, signature = array[at], chr(array[at + 2])
        at += 4
        size = array[at] + 2 if signature == 'g' else 4
        if signature != 'g':
            at += -at % 4
            number = struct.unpack_from('<I', array, at)[0]
            size += number + 1 if signature != 'u' else 0
        value = array[at:at + size]
        fields[code] = number if signature == 'u' else value[1 if signature == 'g' else 4:-1].decode()
        at += size
    return kind, serial, fields

def call(serial, member, signature='', body=b''):
    bus_name = 'org.freedesktop.DBus'
    fields = {PATH: ('o', '/'), DESTINATION: ('s', bus_name), MEMBER: ('s', member), 2: ('s', bus_name)}
    send(CALL, serial, fields | ({SIGNATURE: ('g', signature)} if signature else {}), body)

bus = socket.socket(socket.AF_UNIX)
bus.connect(os.environ['DBUS_STARTER_ADDRESS'].split('path=')[1].split(',')[0])
stream = bus.makefile('rb')
bus.sendall(b'\\0AUTH EXTERNAL ' + str(os.getuid()).encode().hex().encode() + b'\\r\\n')
assert stream.readline().startswith(b'OK ')
bus.sendall(b'BEGIN\\r\\n')
call(1, 'Hello')
call(2, 'RequestName', 'su', padded(text(NAME), 4) + struct.pack('<I', 0))
number, member = 2, None
while member != 'End':
    kind, serial, fields = receive()
    member = fields.get(MEMBER)
    if kind != CALL:
        continue
    if member == 'Read':
        open(f'{FOLDER}/library', 'rb').read()
        for file in range(64):
            open(f'{FOLDER}/{file}', 'rb').read()
    number += 1
    send(REPLY, number, {REPLY_SERIAL: ('u', serial), DESTINATION: ('s', fields[SENDER])})
";

/// A bus of its own, which starts the service by a shell that becomes it, as wrappers of packages do.
struct Bus {
    _daemon: Ends,
    address: String,
}

impl Bus {
    fn start(fs: &LoopFs) -> Self {
        let (services, socket, conf) =
            (fs.beside("services"), fs.beside("bus"), fs.beside("bus.conf"));
        write_synced(&fs.path().join("service.py"), SERVICE.as_bytes());
        let wrapper = fs.beside("wrapper");
        let command = format!("exec {0}/python3 {0}/service.py {0} {NAME}\n", fs.path().display());
        std::fs::write(&wrapper, command).unwrap();
        std::fs::create_dir_all(&services).unwrap();
        let service = format!("[D-BUS Service]\nName={NAME}\nExec=/bin/sh {}\n", wrapper.display());
        std::fs::write(services.join(format!("{NAME}.service")), service).unwrap();
        let address = format!("unix:path={}", socket.display());
        let services = services.display();
        let text = format!(
            "<busconfig><type>session</type><listen>{address}</listen>\
             <servicedir>{services}</servicedir><policy context=\"default\">\
             <allow send_destination=\"*\"/><allow receive_sender=\"*\"/>\
             <allow own=\"*\"/></policy></busconfig>"
        );
        std::fs::write(&conf, text).unwrap();
        let mut daemon = Command::new("dbus-daemon");
        daemon.args(["--nofork", "--nopidfile", "--nosyslog", "--config-file"]).arg(conf);
        let daemon = Ends(daemon.spawn().unwrap());
        wait_until("bus", || UnixStream::connect(&socket).ok());
        Self { _daemon: daemon, address }
    }

    /// Calls a method, and waits for the reply.
    fn call(&self, name: &str, method: &str, words: &[&str]) -> String {
        let (bus, to) = (format!("--bus={}", self.address), format!("--dest={name}"));
        let method = format!("{name}.{method}");
        must("dbus-send", &[&[&bus, "--print-reply", &to, "/", &method], words].concat())
    }
}

impl Starts for Bus {
    fn begin(&mut self) {
        let words = [&format!("string:{NAME}"), "uint32:0"];
        let reply = self.call(BUS, "StartServiceByName", &words);
        // It did not run.
        assert!(reply.contains("uint32 1"), "{reply}");
    }

    fn read(&mut self) {
        self.call(NAME, "Read", &[]);
    }

    fn end(&mut self) {
        self.call(NAME, "End", &[]);
        let owner = || self.call(BUS, "NameHasOwner", &[&format!("string:{NAME}")]);
        wait_until("end of the service", || owner().contains("boolean false").then_some(()));
    }
}

#[test]
fn a_service_that_d_bus_starts_is_learned_as_the_program_that_its_wrapper_becomes() {
    if !is_root() {
        return skip("tracing needs root");
    }
    if !["dbus-daemon", "dbus-send"].iter().all(|program| has(program)) {
        return skip("dbus-daemon is missing");
    }
    let Some(fs) = program() else { return };
    is_learned_beside(&fs, "python3-service.py", Bus::start);
}

/// A socket, for each connection to which systemd starts the program.
struct Socket {
    _systemd: Ends,
    path: PathBuf,
    connection: Option<UnixStream>,
}

impl Socket {
    fn start(fs: &LoopFs) -> Self {
        let path = fs.beside("socket");
        // Of one that was killed.
        let _ = std::fs::remove_file(&path);
        let mut systemd = Command::new("systemd-socket-activate");
        systemd.args(["--accept", "--inetd", "--listen"]).arg(&path);
        systemd.arg(fs.path().join("python3")).arg(fs.path().join("reader.py")).arg(fs.path());
        let systemd = Ends(systemd.spawn().unwrap());
        Self { _systemd: systemd, path, connection: None }
    }

    fn line(&mut self) {
        self.connection.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Starts for Socket {
    fn begin(&mut self) {
        self.connection = Some(wait_until("socket", || UnixStream::connect(&self.path).ok()));
    }

    fn read(&mut self) {
        self.line();
    }

    fn end(&mut self) {
        self.line();
        let mut connection = self.connection.take().unwrap();
        // The program has the other end.
        connection.read_to_end(&mut Vec::new()).unwrap();
    }
}

#[test]
fn a_service_that_systemd_starts_for_a_connection_is_learned() {
    if !is_root() {
        return skip("tracing needs root");
    }
    if !has("systemd-socket-activate") {
        return skip("systemd-socket-activate is missing");
    }
    let Some(fs) = program() else { return };
    is_learned_beside(&fs, "python3-reader.py", Socket::start);
}
