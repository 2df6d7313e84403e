"""The service of `headstart daemon` with places of its own, for benchmarks and storms."""

import json
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from lib.run import Trouble

# How long it may take to begin, to answer and to end.
PATIENCE_S = 30


class Service:
    """The service, while the `with` block lasts: its state, packs and socket are in `place`.

    `root` is the root directory that it runs in; `place` is below it. `state` is another directory for its
    state. `within` is called in its process.
    """

    def __init__(self, headstart, place, root="/", settings="", state=None, within=lambda: None):
        self.headstart, self.place, self.root = headstart, Path(place), Path(root)
        self.socket = self.place / "socket"
        self.place.mkdir(exist_ok=True)
        (self.place / "conf").write_text(settings)
        self.state = state or self.place / "state"
        self.child, self.within = None, within

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, *_):
        self.end()

    def begin(self):
        """Starts it, and waits until it answers."""
        inside, state = (Path("/") / path.relative_to(self.root) for path in (self.place, self.state))
        words = [self.headstart, "daemon", "run", "--config", inside / "conf",
                 "--state", state, "--socket", inside / "socket"]
        self.messages = open(self.place / "messages", "ab")
        # No environment of the terminal: it is that of a service.
        self.child = subprocess.Popen(
            [str(word) for word in words], env={"HEADSTART_PACKS": str(inside / "packs")},
            stdin=subprocess.DEVNULL, stdout=self.messages, stderr=self.messages,
            preexec_fn=lambda: (self.within(), enter(self.root)))
        until = time.monotonic() + PATIENCE_S
        while not self.answers():
            if self.child.poll() is not None or time.monotonic() > until:
                self.end()
                raise Trouble(f"the service does not begin: {self.said()[-1:]}")
            time.sleep(0.01)

    def end(self, number=signal.SIGTERM):
        """Ends it, and returns its status."""
        if self.child is None:
            return None
        self.child.send_signal(number)
        try:
            status = self.child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise Trouble("the service does not end") from None
        self.messages.close()
        self.child = None
        return status

    def said(self):
        """The lines that it wrote."""
        return (self.place / "messages").read_text(errors="replace").splitlines()

    def ask(self, what, **words):
        """The answer to a request."""
        with socket.socket(socket.AF_UNIX) as client:
            # Not settimeout: connecting then fails while others fill the queue.
            for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                client.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", PATIENCE_S, 0))
            client.connect(str(self.socket))
            client.sendall(json.dumps({"do": what} | words).encode() + b"\n")
            return json.loads(b"".join(iter(lambda: client.recv(65536), b"")))

    def answers(self):
        """Whether it does."""
        try:
            return "status" in self.ask("status")
        except (OSError, ValueError):
            return False

    def counters(self):
        """What it counted since it began."""
        return self.ask("status")["status"]["counters"]

    def start_of(self, pid, patience=PATIENCE_S):
        """What it tells of the start with this process, once it does; none after a while."""
        until = time.monotonic() + patience
        while True:
            found = [start for start in self.ask("top").get("starts", ()) if start["pid"] == pid]
            if found or time.monotonic() > until:
                return found[0] if found else None
            time.sleep(0.05)

    def cpu_s(self):
        """The CPU time that it has used."""
        # The process's clock, as clock_getcpuclockid(3) gives it: exact, with threads that ended.
        return time.clock_gettime((~self.child.pid << 3) | 2)

    def memory(self):
        """Its memory now and at most, in bytes: what is resident, and what of it is its own."""
        lines = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        sizes = {name: int(value.split()[0]) << 10 for name, _, value in
                 (line.partition(":") for line in lines) if value.strip().endswith(" kB")}
        return {"rss": sizes["VmRSS"], "anonymous": sizes["RssAnon"], "peak": sizes["VmHWM"]}


def enter(root):
    """Makes a directory the root of this process, in the child that is to execute something."""
    if str(root) != "/":
        os.chroot(root)
        os.chdir("/")
