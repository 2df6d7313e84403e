"""Starts of a program in a virtual machine, in virtual time.

The machine has the kit's kernel and a busybox, and no init but the job (../starts.sh). The program is in
a root image of the workloads, behind the modelled disk and a loop device, in which requests are merged.
"""

import json
import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lib.run import Trouble, run

from rig import kernel, models, virtual
from rig.container import tail
from rig.machine import mounted

HERE = Path(__file__).resolve().parent.parent
# Where the job leaves packs.
LEFT = "headstart-starts"
DISK = "/disk/root"
# How long a machine may take; starts of a browser take ten times their virtual time.
LIMIT_S = 3600


@dataclass(frozen=True)
class Timed:
    """A start or a replay."""

    us: int
    requests: int
    bytes: int


@dataclass(frozen=True)
class Started:
    """What one machine did; the first of each is not counted."""

    starts: list
    replays: list
    # Of `layout plan`, before and after.
    gain: dict


class Workload:
    """A workload with an image and a pack in a directory."""

    def __init__(self, workload, folder, kit, headstart, name=None):
        if workload.ready:
            raise Trouble(f"{workload.name} is a server, whose starts are not timed in virtual time")
        self.workload, self.folder, self.kit, self.headstart = workload, folder, kit, headstart
        self.image, self.pack = (folder / f"{name or workload.name}-virtual.{end}" for end in ("img", "pack"))

    def learn(self, root):
        """Learns it on a copy of a root image, on a disk without delay; unless that was done."""
        if not self.pack.exists():
            run("cp", "--sparse=always", root, self.image)
            self.job("learn", [], keep=True)
            self.take()

    def laid_out(self, model, times):
        """The same on an image that is laid out for its pack on such a disk."""
        name = f"{self.workload.name}-{model}-{times:g}"
        other = Workload(self.workload, self.folder, self.kit, self.headstart, name)
        if not other.pack.exists():
            run("cp", "--sparse=always", self.image, other.image)
            self.job("layout", models.slowed(model, times), image=other.image, keep=True)
            other.take()
        return other

    def starts(self, model, times, count, number):
        """That many starts and replays from such a disk; `number` is that of the machine, which shifts its scheduling."""
        words = [f"starts.count={count + 1}", f"starts.machine={number}"]
        return parse(self.job("starts", models.slowed(model, times), words))

    def job(self, name, numbers, append=(), image=None, keep=False):
        """Has a machine do it; what its console said."""
        with tempfile.TemporaryDirectory(prefix="boot-starts-") as folder:
            program = Path(folder) / "program"
            program.write_text('exec "$@" /bin/busybox unshare --mount --propagation private '
                               f"/rig/busybox sh /rig/enter.sh {DISK} {shlex.join(self.workload.start)}\n")
            files = [(HERE / "starts.sh", "job.sh"), (program, "rig/program"),
                     (HERE.parent / "enter.sh", "rig/enter.sh"), (self.headstart, "bin/headstart"),
                     *with_libraries("losetup")]
            if self.pack.exists():
                files += [(self.pack, "pack"), (last(self.pack), "pack.last")]
            initramfs = kernel.initramfs(self.kit, Path(folder) / "initramfs", None, files, ["loop"])
            words = virtual.command(kernel.vmlinux(self.kit), initramfs, image or self.image, numbers,
                                    [f"starts.job={name}", *append], keep)
            _, said, _ = virtual.run_until_off(words, LIMIT_S)
        if "starts: done" not in said:
            failed = re.search(r"starts: failed: (.*)", said)
            raise Trouble(f"{self.workload.name}, job {name}: {failed[1].strip() if failed else tail(said)}")
        return said

    def take(self):
        """Takes the pack that a job left on the image."""
        with mounted(self.image) as root:
            for left, mine in (("program.pack.last", last(self.pack)), ("program.pack", self.pack)):
                run("cp", root / LEFT / left, mine)


def last(pack):
    """The record of a pack's last start."""
    return pack.with_name(pack.name + ".last")


def with_libraries(name):
    """A program of this machine and its libraries, with their paths in an initramfs."""
    path = run("sh", "-c", 'command -v "$0"', name, capture=True).strip()
    listed = re.findall(r"(?:=> |^\s)(/\S+)", run("ldd", path, capture=True), re.MULTILINE)
    return [(path, f"bin/{name}"), *((library, library.lstrip("/")) for library in listed)]


def parse(said):
    """What a console said of starts."""
    text = said.replace("\r", "")
    found = {"start": [], "replay": []}
    event = re.compile(r"\[ *(\d+)\.(\d{6})\] starts: (start|replay) (begins|ends|read) (.*)")
    begun = None
    for seconds, micros, kind, word, rest in event.findall(text):
        now = int(seconds) * 1_000_000 + int(micros)
        counted = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", rest)}
        if word == "begins":
            begun, before = now, counted
        elif word == "ends":
            took = now - begun
            if rest != "0":
                raise Trouble(f"a {kind} ended with status {rest}")
        else:
            read = (counted[name] - before[name] for name in ("requests", "bytes"))
            found[kind].append(Timed(took, *read))
    plan = re.search(r"starts: plan (\{.*\})", text)
    gain = json.loads(plan[1])["file_systems"][0]["gain"] if plan else None
    return Started(found["start"][1:], found["replay"][1:], gain)
