#!/usr/bin/env python3
"""Does `headstart layout` lose anything when the power is cut?

A small ext4 is served by slowdisk, which logs all that is written, discarded and flushed, while a
layout is applied, resumed, undone or released. From the log the disk is made as a power cut at a
random moment leaves it: what was answered before a flush is there; of what came later a random part is,
in blocks of 4 KiB, in any order (a volatile write cache). Other trials let the disk die below a layout
that is running: all requests fail from then on, and the disk is made from the log as well.

Each disk is then mounted, so that its journal is replayed. Looked at are: contents, size, mode, owner,
mtime and ctime of all files; e2fsck -fn; `layout status` and `verify`; `pack verify`. Then the layout is
resumed, undone or released, and all is checked once more, after `undo` the place of each block too.

Usage: bench/storm/layout.py [-n N] [--live N] [--seed N] [--scenarios A,B] [--out FILE] [--smoke]
Ends with status 3 if anything was lost.
"""
import bisect
import collections
import contextlib
import fcntl
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lib.alone import alone  # noqa: E402
from measured import BUILT, about, main, needs_root, run, tool, write  # noqa: E402
from options import drawn  # noqa: E402

FILES = 14
CHUNK = 8 << 10
BLOCK = 4096
FIEMAP = 0xC020660B
# As fast as this machine: only the log counts.
MODEL = """description = "As fast as this machine"
[device]
read_latency_us = 0
write_latency_us = 0
queue_depth = 64
bandwidth_mb_s = 1000000
"""


@dataclass(frozen=True)
class Scenario:
    """What is done while the log is written; `before` is done earlier."""

    steps: tuple
    before: tuple = ()
    mkfs: tuple = ()
    options: str = "noatime"
    mib: int = 40
    # What others do meanwhile: "commit" their files, "write" to those that are laid out, or "fill" the disk.
    meanwhile: str = ""
    # Bytes of free space in each hole, if it is in pieces.
    holes: int = 0


APPLY = ("apply", "--force", "PACK")
SCENARIOS = {
    "apply": Scenario((APPLY,)),
    "undo": Scenario((("undo", "MOUNT"),), before=(APPLY,)),
    "release": Scenario((("release", "MOUNT"),), before=(APPLY,)),
    "apply, undo, apply": Scenario((APPLY, ("undo", "MOUNT"), APPLY)),
    "others commit": Scenario((APPLY, ("undo", "MOUNT")), meanwhile="commit"),
    "others write": Scenario((APPLY, ("undo", "MOUNT")), meanwhile="write"),
    "the disk fills": Scenario((APPLY, ("undo", "MOUNT")), meanwhile="fill", mib=24),
    "free space in pieces": Scenario((APPLY, ("undo", "MOUNT")), holes=64 << 10),
    "blocks of 1 KiB": Scenario((APPLY, ("undo", "MOUNT")), mkfs=("-b", "1024")),
    "data=writeback": Scenario((APPLY, ("undo", "MOUNT")), options="noatime,data=writeback"),
    "discard": Scenario((APPLY, ("release", "MOUNT")), options="noatime,discard"),
    "no checksums": Scenario((APPLY, ("undo", "MOUNT")), mkfs=("-O", "^metadata_csum,^64bit")),
}


def extents(path):
    """The extents of a file: offset, place, length."""
    with open(path, "rb") as file:
        buffer = bytearray(struct.pack("=QQLLLL", 0, 2**64 - 1, 0, 0, 500, 0) + bytes(56 * 500))
        fcntl.ioctl(file, FIEMAP, buffer)
    count = struct.unpack_from("=L", buffer, 20)[0]
    found = [struct.unpack_from("=QQQ", buffer, 32 + 56 * n) for n in range(count)]
    joined = []
    for logical, physical, length in found:
        if joined and (joined[-1][0] + joined[-1][2], joined[-1][1] + joined[-1][2]) == (logical, physical):
            joined[-1][2] += length
        else:
            joined.append([logical, physical, length])
    return joined


def state(path):
    """What of a file must stay."""
    stat = path.stat()
    return [hashlib.sha256(path.read_bytes()).hexdigest(), stat.st_size, stat.st_mode, stat.st_uid,
            stat.st_ino, stat.st_nlink, stat.st_mtime_ns, stat.st_ctime_ns]


class Rig:
    """A file system with fragmented files, a pack that touches them, and a place to mount it."""

    def __init__(self, place, headstart, slowdisk):
        self.place, self.headstart, self.slowdisk = Path(place), headstart, slowdisk
        self.mount = self.place / "mount"
        self.mount.mkdir()
        self.pack = self.place / "files.pack"
        self.model = self.place / "fast.toml"
        self.model.write_text(MODEL)
        self.base, self.image, self.log = (self.place / name for name in ("base", "image", "log"))
        self.states = [self.place / "slowdisk"]

    def files(self):
        """The files that are laid out."""
        return [self.mount / f"d{n % 3}" / f"f{n * 5 % FILES:02}" for n in range(FILES)]

    def layout(self, *words):
        """`headstart layout`; its status, and what it said."""
        words = [str({"PACK": self.pack, "MOUNT": self.mount}.get(word, word)) for word in words]
        done = subprocess.run([self.headstart, "layout", *words], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=900, check=False)
        return done.returncode, done.stdout + done.stderr

    @contextlib.contextmanager
    def mounted(self, image, options="noatime"):
        """Mounts an image meanwhile."""
        run("mount", "-o", f"loop,{options}", image, self.mount)
        try:
            yield
        finally:
            run("umount", self.mount)

    def make(self, scenario):
        """Makes the file system of a scenario, and remembers its files and their places."""
        with open(self.base, "wb") as file:
            file.truncate(scenario.mib << 20)
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-N", "2048", "-E",
            "lazy_itable_init=0,lazy_journal_init=0,nodiscard", *scenario.mkfs, self.base)
        with self.mounted(self.base, scenario.options):
            self.fill(random.Random(7), scenario.holes)
            listed = self.place / "files.list"
            listed.write_text("".join(f"{path}\n" for path in self.files()))
            self.pack.unlink(missing_ok=True)
            run(self.headstart, "pack", "import", "--output", self.pack, listed)
            self.before = [state(path) for path in self.files()]
            self.old = [extents(path) for path in self.files()]
            assert sum(map(len, self.old)) > 3 * FILES, self.old
            for step in scenario.before:
                code, said = self.layout(*step)
                assert code == 0, said
            self.places = [extents(path) for path in self.files()]

    def fill(self, chance, holes):
        """Writes the files chunk by chunk in turn; some have more extents than an inode has room for."""
        files = []
        for path in self.files():
            path.parent.mkdir(exist_ok=True)
            files.append(open(path, "wb", buffering=0))
        for at in range(14):
            for number, file in enumerate(files):
                if at <= number:
                    file.write(chance.randbytes(CHUNK if at < number else 1000 + 37 * number))
                    os.fdatasync(file.fileno())
        for number, file in enumerate(files):
            os.fchmod(file.fileno(), 0o600 + number)
            os.utime(file.fileno(), ns=(10**18 + number, 10**18 + 7 * number))
            file.close()
        if holes:
            self.perforate(holes)
        os.sync()

    def perforate(self, size):
        """Leaves free space in pieces only."""
        folder = self.mount / "holes"
        folder.mkdir()
        number = 0
        with contextlib.suppress(OSError):
            while True:
                with open(folder / f"{number:05}", "wb", buffering=0) as file:
                    os.posix_fallocate(file.fileno(), 0, size)
                number += 1
        for other in range(0, number, 2):
            (folder / f"{other:05}").unlink()
        with contextlib.suppress(OSError):
            (folder / f"{number:05}").unlink()

    def up(self, scenario):
        """Serves a copy of the file system by slowdisk."""
        run(self.slowdisk, "--state", self.states[0], "up", "--model", self.model, "--image", self.base,
            "--mount", self.mount, "--options", scenario.options, "--log", self.log)

    def down(self):
        """Ends that."""
        run(self.slowdisk, "--state", self.states[0], "down", self.mount)

    def record(self, scenario):
        """Does the steps of a scenario with a log."""
        self.up(scenario)
        try:
            with meanwhile(scenario.meanwhile, self):
                for step in scenario.steps:
                    code, said = self.layout(*step)
                    may_fail = scenario.meanwhile in ("fill", "write")
                    if code != 0 and not may_fail:
                        raise AssertionError(f"{step}: {code}: {said}")
            if not scenario.meanwhile:
                assert [state(path) for path in self.files()] == self.before
        finally:
            self.down()

    def die(self, scenario, after):
        """Lets the disk die while the first step of a scenario runs; how that ended."""
        self.up(scenario)
        try:
            words = [str({"PACK": self.pack, "MOUNT": self.mount}.get(w, w)) for w in scenario.steps[0]]
            with meanwhile(scenario.meanwhile, self):
                running = subprocess.Popen([self.headstart, "layout", *words], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                time.sleep(after)
                run(self.slowdisk, "--state", self.states[0], "cut", self.mount)
                said, _ = running.communicate(timeout=900)
            return running.returncode, said
        finally:
            self.down()


@contextlib.contextmanager
def meanwhile(what, rig):
    """Others use the file system meanwhile."""
    if not what:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target={"commit": commit, "write": rewrite, "fill": fill}[what],
                              args=(rig.mount, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def commit(mount, stop):
    """Makes the file system commit all the time, by files that come and go."""
    chance, number = random.Random(3), 0
    with contextlib.suppress(OSError):
        while not stop.is_set():
            path = mount / f"other{number % 7}"
            with open(path, "wb", buffering=0) as file:
                file.write(bytes(chance.randrange(1, 60_000)))
                os.fsync(file.fileno())
            if number % 3 == 0:
                path.unlink()
            number += 1


def rewrite(mount, stop):
    """Writes the same bytes to files that are laid out, through names of their own."""
    chance = random.Random(4)
    paths = [mount / f"d{n % 3}" / f"f{n * 5 % FILES:02}" for n in range(FILES)]
    with contextlib.suppress(OSError):
        while not stop.is_set():
            path = chance.choice(paths)
            at = chance.randrange(0, path.stat().st_size - 500)
            with open(path, "r+b", buffering=0) as file:
                same = os.pread(file.fileno(), 500, at)
                os.pwrite(file.fileno(), same, at)
                if chance.random() < 0.3:
                    os.fsync(file.fileno())
            time.sleep(0.002)


def fill(mount, stop):
    """Fills the disk again and again."""
    number = 0
    # A layout does not begin on a full disk.
    while not stop.is_set() and not (mount / ".headstart-layout/journal").exists():
        time.sleep(0.001)
    while not stop.is_set():
        with contextlib.suppress(OSError), open(mount / "fill", "wb", buffering=0) as file:
            while not stop.is_set():
                file.write(bytes(64 << 10))
        with contextlib.suppress(OSError):
            if number % 2:
                (mount / "fill").unlink()
        number += 1
        time.sleep(0.01)


class Log:
    """What a disk was asked to write."""

    def __init__(self, path):
        data = Path(path).read_bytes()
        # Index of a change in `events`, and of its answer.
        self.events, self.changes, self.answers = [], [], {}
        at = 0
        while at + 17 <= len(data):
            kind = data[at:at + 1]
            first, second = struct.unpack_from("<QQ", data, at + 1)
            at += 17
            if kind == b"A":
                self.answers[first] = len(self.events)
            else:
                body = b""
                if kind == b"W":
                    body = data[at:at + second]
                    at += second
                self.changes.append((kind, first, second, body, len(self.events)))
            self.events.append(kind)
        # Flushes that were answered: when they came, and when that was.
        self.flushes = [(place, self.answers.get(number, 2**63))
                        for number, (kind, *_, place) in enumerate(self.changes) if kind == b"F"]

    def disk(self, base, path, end, chance, part):
        """Makes the disk after a cut before event `end`; of what was not flushed, `part` is there."""
        copy_sparse(base, path)
        safe_since = max((came for came, done in self.flushes if done < end), default=-1)
        lost = kept = 0
        with open(path, "r+b") as file:
            for number, (kind, offset, length, body, place) in enumerate(self.changes):
                if place >= end:
                    break
                if kind == b"F":
                    continue
                is_safe = self.answers.get(number, 2**63) < safe_since
                if kind == b"D":
                    if is_safe or chance.random() < part:
                        punch(file, offset, length)
                    continue
                if is_safe:
                    os.pwrite(file.fileno(), body, offset)
                    continue
                for at in range(0, length, BLOCK):
                    if chance.random() < part:
                        os.pwrite(file.fileno(), body[at:at + BLOCK], offset + at)
                        kept += 1
                    else:
                        lost += 1
        return kept, lost


def copy_sparse(source, target):
    """Copies an image without its holes."""
    run("cp", "--sparse=always", source, target)


def punch(file, offset, length):
    """Makes a range read as zeroes."""
    zero, left = bytes(1 << 20), length
    while left > 0:
        part = min(left, len(zero))
        os.pwrite(file.fileno(), zero[:part], offset + length - left)
        left -= part


class Lost(Exception):
    """What a trial found."""


def expect(condition, what):
    if not condition:
        raise Lost(what)


def trial(rig, scenario, after):
    """Looks at a disk after a cut, and goes on with `after`. Returns where the layout stood."""
    changed = scenario.meanwhile == "write"
    def whole(when):
        for path, was in zip(rig.files(), rig.before, strict=True):
            now = state(path)
            # Who wrote to a file changed its times.
            expect(now[:6] == was[:6] and (changed or now == was), f"{when}: {path.name}: {now} was {was}")
    def check(when):
        done = subprocess.run(["e2fsck", "-fn", rig.image], capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"{when}: e2fsck {done.returncode}: {done.stdout}")
    def pack_is_right(when):
        if not changed:
            done = subprocess.run([rig.headstart, "pack", "verify", rig.pack], capture_output=True, text=True, check=False)
            expect(done.returncode == 0, f"{when}: pack verify: {done.stdout}{done.stderr}")
    with rig.mounted(rig.image, scenario.options):
        whole("after the cut")
    check("after the cut")
    with rig.mounted(rig.image, scenario.options):
        code, said = rig.layout("status", "--json", "MOUNT")
        expect(code in (0, 3), f"status: {code}: {said}")
        document = json.loads(said[said.index("{"):said.rindex("}") + 1])
        found = document["file_systems"]
        stood = "no layout"
        if found:
            old, new = found[0]["old_bytes"], found[0]["new_bytes"]
            stood = "old" if not new else "new" if not old else "between"
            expect(changed or found[0]["elsewhere_bytes"] == 0, f"elsewhere: {found}")
        elif (rig.mount / ".headstart-layout").exists():
            stood = "before the journal"
        code, said = rig.layout("verify", "MOUNT")
        expect(code == (0 if found else 3), f"verify: {code}: {said}")
        pack_is_right("after the cut")
        code, said = rig.layout(after, "MOUNT")
        is_full = scenario.meanwhile == "fill" and code == 1
        is_right = code == 0 if found else code == 3 or (code == 0 and after == "release")
        expect(is_right or is_full or (changed and code == 1), f"{after}: {code}: {said}")
        whole(after)
        pack_is_right(after)
        places = [extents(path) for path in rig.files()]
        if found and not changed and not is_full:
            if after == "undo":
                expect(places == rig.old, f"undo: {places} instead of {rig.old}")
            if after == "resume":
                code, said = rig.layout("status", "MOUNT")
                expect(code == 0, f"resume: status {code}: {said}")
        if after != "resume" and not is_full and not changed:
            expect(not (rig.mount / ".headstart-layout").exists(), f"{after}: its directory is there")
    check(after)
    with rig.mounted(rig.image, scenario.options):
        whole(f"{after}, from the disk")
    return stood


def storm():
    parser = drawn(__doc__, "layout", "24 trials and 2 live ones", 1000, "trials")
    parser.add_argument("--live", type=int, default=100, help="disks that die below a layout [default: %(default)s]")
    parser.add_argument("--scenarios", metavar="NAME;…", help="only these [default: all]")
    parser.add_argument("--slowdisk", default=BUILT / "slowdisk")
    options = parser.parse_args()
    needs_root("Mounts need it")
    alone()
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    slowdisk = tool(options.slowdisk, "./build.sh, or --slowdisk FILE")
    names = options.scenarios.split(";") if options.scenarios else list(SCENARIOS)
    count, live = (24, 2) if options.smoke else (options.n, options.live)
    chance = random.Random(options.seed)
    result = about("headstart/storm-layout/1", headstart) | {"seed": options.seed}
    tally, live_tally, bad, seconds = {}, collections.Counter(), [], time.monotonic()
    flushed = collections.Counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        rig = Rig(place, headstart, slowdisk)
        def look(name, scenario, log, end, part, title):
            after = chance.choice(("resume", "undo", "undo", "release"))
            kept, lost = log.disk(rig.base, rig.image, end, chance, part)
            flushed["kept"] += kept
            flushed["lost"] += lost
            try:
                return trial(rig, scenario, after)
            except Exception as wrong:  # noqa: BLE001
                bad.append({"scenario": name, "event": end, "of": len(log.events), "part": part,
                            "after": after, "kind": title, "wrong": str(wrong)[:2000]})
                print(f"{name}: {title} at {end} of {len(log.events)}, {part}, {after}: {str(wrong)[:1500]}",
                      flush=True)
                if os.path.ismount(rig.mount):
                    run("umount", "--lazy", rig.mount)
                return "bad"
        for number, name in enumerate(names):
            scenario, stood = SCENARIOS[name], collections.Counter()
            rig.make(scenario)
            rig.record(scenario)
            log = Log(rig.log)
            share = count * (number + 1) // len(names) - count * number // len(names)
            for _ in range(share):
                end = chance.randrange(1, len(log.events) + 1)
                part = chance.choice((0, 0.5, 1, chance.random()))
                stood[look(name, scenario, log, end, part, "cut")] += 1
            tally[name] = {"trials": share, "events": len(log.events), "flushes": len(log.flushes),
                           "stood": dict(stood)}
            print(f"{name}: {tally[name]}", flush=True)
        for number in range(live):
            name = names[number % len(names)]
            scenario = SCENARIOS[name]
            rig.make(scenario)
            code, said = rig.die(scenario, chance.uniform(0, 0.05))
            if code < 0 or "panicked" in said:
                bad.append({"scenario": name, "kind": "live", "wrong": f"{code}: {said}"})
            live_tally[f"status {code}"] += 1
            log = Log(rig.log)
            part = chance.choice((0, 0.5, 1))
            stood = look(name, scenario, log, len(log.events), part, "live")
            live_tally[stood] += 1
            # What was reported as done is on the disk.
            is_apply = scenario.steps[0] == APPLY and scenario.meanwhile in ("", "commit")
            if code == 0 and is_apply and stood != "new":
                bad.append({"scenario": name, "kind": "live", "wrong": f"status 0, and it is {stood}: {said}"})
    result |= {"trials": sum(one["trials"] for one in tally.values()), "live": live,
               "scenarios": tally, "live_tally": dict(live_tally), "unflushed_blocks": dict(flushed),
               "seconds": round(time.monotonic() - seconds), "bad": bad}
    print(f"{result['trials']} cuts and {live} dead disks in {result['seconds']} s; {len(bad)} bad")
    if not options.smoke:
        write(options.out, result)
    return 3 if bad else 0


if __name__ == "__main__":
    main(storm)
