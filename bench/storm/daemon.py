#!/usr/bin/env python3
"""Does the service `headstart daemon` ever keep a program from starting, or leave something behind?

    stopped   SIGSTOP while two processes execute 50,000 programs as fast as fork allows; then SIGCONT
    storm     the same while it runs, and its memory at most
    kills     kill -9 at random moments while programs start; the next one begins and cleans
    full      a full disk under its state: the old state stays, one line says so, and it is written later
    memory    the storm in a control group with little memory: never over its limit, and it ends
    clients   slow readers, thousands of connections, long lines and half requests, as another user

In each part all programs have to run to their end, the service to answer and to end; at the end no trace
instance, socket, process or temporary file is left, and the settings of the kernel are as before.

Usage: bench/storm/daemon.py [--parts A,B] [-n EXECS] [--headstart FILE] [--out FILE] [--smoke]
Needs root and gcc. Ends with status 3 if anything was wrong.
"""
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lib.execs import Load  # noqa: E402
from lib.run import Trouble  # noqa: E402
from lib.service import Service  # noqa: E402
from harm import Group  # noqa: E402
from measured import about, main, needs_root, run, tool, write  # noqa: E402
from options import drawn  # noqa: E402
from state import instances, settings  # noqa: E402

NOBODY = 65534
# How long a request of root may take while others trouble the service.
ANSWER_S = 5
# The state is written once in this time; the service reads what it has to.
INTERVAL_S = 60
# Removing a trace instance, which the kernel does in the background.
PATIENCE_S = 20
MEMORY = 40 << 20

# Clients that trouble the service until they are killed; they say how many connections they made.
HOSTILE = """
import os, socket, sys, time
os.setgid(65534); os.setuid(65534)
path, kept, made = sys.argv[1], [], 0
said = (b'', b'{"do":', b'x' * 3000, b'{"do":"top"}\\n' * 200, b'[' * 100000, b'{"do":"top"}\\n', b'\\0\\xff\\n')
parent = os.getppid()
while os.getppid() == parent:
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    try:
        client.connect(path)
        made += 1
        client.send(said[made % len(said)])
    except OSError:
        pass
    kept.append(client)
    if len(kept) > 800:
        del kept[:200]
    if made % 1000 == 0:
        print(made, flush=True)
"""


class Storm:
    """The parts; each returns its figures, and what was wrong."""

    def __init__(self, headstart, load, place, execs, chance, smoke):
        self.headstart, self.load, self.place = headstart, load, Path(place)
        self.execs, self.chance, self.smoke = execs, chance, smoke

    def service(self, name, **options):
        return Service(self.headstart, self.place / name, **options)

    def stopped(self):
        with self.service("stopped") as service:
            service.child.send_signal(signal.SIGSTOP)
            found = self.load.storm(self.execs)
            service.child.send_signal(signal.SIGCONT)
            counters = counted(service, self.execs)
            again = self.load.storm(100)
            after = counted(service, counters["execs"] + counters["lost_execs"] + 100)
        wrong = []
        if counters["execs"] + counters["lost_execs"] < self.execs:
            wrong.append("execs are neither reported nor counted as lost")
        if after["execs"] < counters["execs"] + 100:
            wrong.append("it sees no execs any more")
        return found | {"after": again["seconds"], "reported": counters["execs"],
                        "lost": counters["lost_execs"], "missed": counters["missed_execs"]}, wrong

    def storm(self):
        with self.service("storm") as service:
            before = service.cpu_s()
            found = self.load.storm(self.execs)
            counters = counted(service, self.execs)
            found |= {"cpu_us": round((service.cpu_s() - before) / self.execs * 1e6, 1),
                      "memory": service.memory()}
        return found | {"reported": counters["execs"], "lost": counters["lost_execs"],
                        "missed": counters["missed_execs"], "gone": counters["gone"]}, []

    def kills(self):
        count = 3 if self.smoke else 30
        wrong = []
        for number in range(count):
            service = self.service("kills")
            service.begin()
            pid = service.child.pid
            with self.load.running():
                time.sleep(self.chance.uniform(0, 0.3))
                service.end(signal.SIGKILL)
            with self.service("kills") as following:
                until = time.monotonic() + PATIENCE_S
                while (left := of(pid)) and time.monotonic() < until:
                    time.sleep(0.05)
                if left:
                    wrong.append(f"kill {number} left {left}")
                if not following.answers():
                    wrong.append(f"after kill {number} the next one does not answer")
        return {"kills": count}, wrong

    def full(self):
        disk, image = self.place / "disk", self.place / "disk.img"
        disk.mkdir()
        run("truncate", "--size", "4M", image)
        run("mkfs.ext4", "-q", image)
        run("mount", "-o", "loop", image, disk)
        wrong = []
        try:
            where = disk / "state"
            state = where / "state.json"
            with self.service("full", state=where) as service:
                self.seen(service, "first")
            before = state.read_bytes()
            with self.service("full", state=where) as service:
                fill(disk / "filler")
                self.seen(service, "second")
                if not self.smoke:
                    # Two failures, which are said once, and one more at the end.
                    time.sleep(INTERVAL_S + 5)
                    self.seen(service, "third")
            said = [line for line in service.said() if "is not written" in line]
            if len(said) != (1 if self.smoke else 2):
                wrong.append(f"it says {len(said)} times that the disk is full: {service.said()}")
            if state.read_bytes() != before:
                wrong.append("the old state did not stay")
            (disk / "filler").unlink()
            with self.service("full", state=where) as service:
                self.seen(service, "second")
            if b"second" not in state.read_bytes() or b"first" not in state.read_bytes():
                wrong.append("what is known is not written when there is room again")
            odd = [path.name for path in where.rglob("*") if path.name != "state.json"]
            if odd:
                wrong.append(f"left: {odd}")
        finally:
            run("umount", disk)
        return {"said": said}, wrong

    def seen(self, service, name):
        """Has the service see a program that it is to remember, by pinning it."""
        program = self.place / name
        program.write_text("#!/bin/sh\nsleep 0.3\n")
        program.chmod(0o755)
        until = time.monotonic() + PATIENCE_S
        while True:
            run(program)
            answer = service.ask("pin", program=program.name)
            if "done" in answer:
                return
            if time.monotonic() > until:
                raise Trouble(f"{program} is not seen: {answer}")

    def memory(self):
        with Group() as group:
            group.limit(MEMORY)
            with self.service("memory", within=group.enter) as service:
                found = self.load.storm(self.execs)
                counted(service, self.execs)
                wrong = [] if service.answers() else ["it does not answer"]
                peak = group.peak()
                found["memory"] = service.memory()
            if peak > MEMORY:
                wrong.append(f"{peak} bytes of {MEMORY}")
        return found | {"limit": MEMORY, "peak": peak}, wrong

    def clients(self):
        wrong, waits = [], []
        with self.service("clients") as service:
            self.place.chmod(0o755)
            (self.place / "clients").chmod(0o755)
            hostile = [subprocess.Popen([sys.executable, "-c", HOSTILE, service.socket],
                                        stdout=subprocess.PIPE, text=True) for _ in range(2)]
            try:
                until = time.monotonic() + (3 if self.smoke else 30)
                while time.monotonic() < until:
                    began = time.monotonic()
                    if not service.answers():
                        wrong.append("root gets no answer")
                        break
                    waits.append(time.monotonic() - began)
                    found = self.load.storm(100)
            finally:
                for one in hostile:
                    one.kill()
                made = sum(int(lines[-1]) for one in hostile if (lines := one.communicate()[0].split()))
            memory = service.memory()
            descriptors = len(list(Path(f"/proc/{service.child.pid}/fd").iterdir()))
            refused = service.counters()["refused_clients"]
        if waits and max(waits) > ANSWER_S:
            wrong.append(f"an answer took {max(waits):.1f} s")
        return found | {"connections": made, "refused": refused, "answers": len(waits),
                        "longest_s": round(max(waits, default=0), 3), "memory": memory,
                        "descriptors": descriptors}, wrong


def fill(path):
    """Fills the file system of a file."""
    # What was reserved for metadata is free once the data is on the disk.
    for _ in range(4):
        with open(path, "ab", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 1024)
            os.fsync(file.fileno())


def kernel():
    """The settings of the kernel, but those of disks, which come and go."""
    return {path: value for path, value in settings().items() if "ahead" not in path}


def counted(service, execs):
    """The counters once so many execs are accounted for, or after a while."""
    until = time.monotonic() + PATIENCE_S
    while True:
        counters = service.counters()
        if counters["execs"] + counters["lost_execs"] >= execs or time.monotonic() > until:
            return counters
        time.sleep(0.1)


def of(pid):
    """The trace instances of a process."""
    return [name for name in instances() if name.startswith(f"headstart-{pid}-")]


def bench():
    parser = drawn(__doc__, "daemon", "a few seconds for each part", 50_000, "execs")
    parts = ("stopped", "storm", "kills", "full", "memory", "clients")
    parser.add_argument("--parts", default=",".join(parts), metavar="A,B", help="[default: all]")
    options = parser.parse_args()
    needs_root("The service needs root")
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    result = about("headstart/storm-daemon/1", headstart) | {"seed": options.seed, "parts": {}}
    bad = False
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        load = Load(place)
        storm = Storm(headstart, load, place, 2_000 if options.smoke else options.n,
                      random.Random(options.seed), options.smoke)
        for part in options.parts.split(","):
            before = kernel()
            found, wrong = getattr(storm, part)()
            changed = [path for path, value in kernel().items() if before.get(path) != value]
            wrong += [f"changed: {changed}"] if changed else []
            wrong += left(Path(place) / part)
            bad |= bool(wrong)
            result["parts"][part] = found | {"wrong": wrong}
            print(f"{part}: {json.dumps(found)}" + "".join(f"\n    WRONG: {what}" for what in wrong), flush=True)
    if not options.smoke:
        write(options.out, result)
    return 3 if bad else 0


def left(place):
    """What a service with this place left behind."""
    wrong = []
    if (place / "socket").exists():
        wrong.append("its socket is left")
    odd = [path.name for path in (place / "state").rglob("*") if path.is_file()
           and not path.name.endswith((".json", ".pack", ".pack.last", ".lock"))]
    if odd:
        wrong.append(f"left in its state: {odd}")
    until = time.monotonic() + PATIENCE_S
    ours = set()
    while time.monotonic() < until:
        # Of processes that have ended; others may use headstart, too.
        ours = {name for name in instances() if not Path(f"/proc/{name.split('-')[1]}").exists()}
        if not ours:
            return wrong
        time.sleep(0.1)
    return wrong + [f"trace instances are left: {sorted(ours)}"]


if __name__ == "__main__":
    main(bench)
