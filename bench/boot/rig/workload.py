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
# For how long a machine may run for each start. One of a browser takes 10 s of virtual time, and two minutes.
START_LIMIT_S = 600
# Starts that are learned, about.
LEARNED = 7


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
    # Of `layout plan`, before and after; None if that was not asked.
    gain: dict | None


class VirtualWorkload:
    """A workload with an image and a pack in a directory."""

    def __init__(self, workload, folder, kit, headstart, name=None):
        self.workload, self.folder, self.kit, self.headstart = workload, folder, kit, headstart
        self.image, self.pack = (folder / f"{name or workload.name}-virtual.{end}" for end in ("img", "pack"))

    def learn(self, root):
        """Learns it on a copy of a root image, on a disk without delay; unless that was done."""
        if not self.pack.exists():
            # Those of another pack.
            for old in self.folder.glob(f"{self.workload.name}-*-virtual.*"):
                old.unlink()
            run("cp", "--sparse=always", root, self.image)
            self.job("learn", [], LEARNED)
            self.take()

    def laid_out(self, model, times):
        """The same on an image that is laid out for its pack on such a disk."""
        name = f"{self.workload.name}-{model}-{times:g}"
        other = VirtualWorkload(self.workload, self.folder, self.kit, self.headstart, name)
        if not other.pack.exists():
            run("cp", "--sparse=always", self.image, other.image)
            self.job("layout", models.slowed(model, times), LEARNED, image=other.image)
            other.take()
        return other

    def starts(self, model, times, count, number, is_planned):
        """That many starts and replays from such a disk, and what `layout plan` says if `is_planned`; `number` is that
        of the machine, which shifts its scheduling."""
        words = [f"starts.count={count + 1}", f"starts.machine={number}", *["starts.plan"] * is_planned]
        said = self.job("starts", models.slowed(model, times), count + 1, words)
        return parse(said, count + 1, is_planned)

    def job(self, name, numbers, starts, append=(), image=None):
        """Has a machine do it, with so many starts; what its console said. Only what it leaves changes an image."""
        with tempfile.TemporaryDirectory(prefix="boot-starts-") as folder:
            program = Path(folder) / "program"
            program.write_text('exec "$@" /bin/busybox unshare --mount --propagation private '
                               f"/rig/busybox sh /rig/enter.sh {DISK} {shlex.join(self.workload.start)}\n")
            files = [(HERE / "starts.sh", "job.sh"), (program, "rig/program"),
                     (HERE.parent / "enter.sh", "rig/enter.sh"), *with_libraries("losetup")]
            if self.pack.exists():
                files += [(self.pack, "pack"), (last(self.pack), "pack.last")]
            initramfs = kernel.initramfs(self.kit, Path(folder) / "initramfs", self.headstart, files, ["loop"])
            words = virtual.command(kernel.vmlinux(self.kit), initramfs, image or self.image, numbers,
                                    [f"starts.job={name}", *append], name != "starts")
            _, said, _ = virtual.run_until_off(words, START_LIMIT_S * (starts + 1))
        if "starts: done" not in said:
            failed = re.search(r"starts: failed: (.*)", said)
            raise Trouble(f"{self.workload.name}, job {name}: {failed[1].strip() if failed else tail(said)}")
        return said

    def take(self):
        """Takes the pack that a job left on the image."""
        with mounted(self.image) as root:
            for left, mine in (("program.pack.last", last(self.pack)), ("program.pack", self.pack)):
                draft = mine.with_name(mine.name + ".new")
                run("cp", root / LEFT / left, draft)
                draft.rename(mine)


def last(pack):
    """The record of a pack's last start."""
    return pack.with_name(pack.name + ".last")


def with_libraries(name):
    """A program of this machine and its libraries, with their paths in an initramfs."""
    path = run("sh", "-c", 'command -v "$0"', name, capture=True).strip()
    listed = re.findall(r"(?:=> |^\s)(/\S+)", run("ldd", path, capture=True), re.MULTILINE)
    return [(path, f"bin/{name}"), *((library, library.lstrip("/")) for library in listed)]


def parse(said, count, is_planned):
    """What a console said of so many starts, and of a plan."""
    text = said.replace("\r", "")
    found = {"start": [], "replay": []}
    event = re.compile(r"\[ *(\d+)\.(\d{6})\] starts: (start|replay) (begins|ends|read) (.*)")
    begun, before, took = None, {}, None
    for seconds, micros, kind, word, rest in event.findall(text):
        now = int(seconds) * 1_000_000 + int(micros)
        counted = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", rest)}
        if word == "begins":
            begun, before, took = now, counted, None
        elif word == "ends" and begun is not None:
            took = now - begun
            if rest != "0":
                raise Trouble(f"a {kind} ended with status {rest}")
        elif took is not None:
            read = (counted[name] - before[name] for name in ("requests", "bytes"))
            found[kind].append(Timed(took, *read))
    if any(len(events) != count for events in found.values()):
        raise Trouble(f"of {count} starts the console tells {len(found['start'])}, of as many replays {len(found['replay'])}")
    gain = planned(text) if is_planned else None
    return Started(found["start"][1:], found["replay"][1:], gain)


def planned(text):
    """What `layout plan` said of what is gained."""
    plan = re.search(r"starts: plan (\{.*\})", text)
    systems = json.loads(plan[1])["file_systems"] if plan else []
    if not systems:
        raise Trouble("layout plan planned nothing" + (f": {plan[1]}" if plan else ""))
    return systems[0]["gain"]
