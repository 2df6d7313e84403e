#!/usr/bin/env python3
"""Does `headstart layout` lose anything when the power is cut?

A small ext4, xfs or btrfs is served by slowdisk, which logs all that is written, discarded and flushed, while a
layout is applied, resumed, undone or released. From the log the disk is made as a power cut at a
random moment leaves it: what was answered before a flush is there; of what came later a random part is,
in blocks of 4 KiB, in any order (a volatile write cache). Other trials let the disk die below a layout
that is running: all requests fail from then on, and the disk is made from the log as well.

Each disk is then mounted, so that its journal is replayed. Looked at are: contents, size, mode, owner,
mtime and ctime of all files; `e2fsck -fn`, `xfs_repair -n` or `btrfs check`; `layout status` and `verify`;
`pack verify`. Then the layout is
resumed, undone or released, and all is checked once more, after `undo` the place of each block too.

Usage: bench/storm/layout.py [--kind KIND] [-n N] [--live N] [--seed N] [--scenarios A;B] [--smoke]
Ends with status 3 if anything was lost.
"""
import collections
import contextlib
import fcntl
import hashlib
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from cuts import Log  # noqa: E402
from kinds import KINDS  # noqa: E402
from lib.alone import alone  # noqa: E402
from measured import BUILT, RESULTS, about, main, needs_root, run, tool, write  # noqa: E402
from options import drawn  # noqa: E402
from others import meanwhile  # noqa: E402

FILES = 14
CHUNK = 8 << 10
FIEMAP = 0xC020660B
# As fast as this machine: only the log counts.
MODEL = """description = "As fast as this machine"
[device]
read_latency_us = 0
write_latency_us = 0
queue_depth = 64
bandwidth_mb_s = 1000000
"""


def extents(path):
    """The extents of a file: offset, place, length."""
    with open(path, "rb") as file:
        buffer = bytearray(struct.pack("=QQLLLL", 0, 2**64 - 1, 0, 0, 500, 0) + bytes(56 * 500))
        fcntl.ioctl(file, FIEMAP, buffer)
        end = -(-os.fstat(file.fileno()).st_size // 4096) * 4096
    count = struct.unpack_from("=L", buffer, 20)[0]
    found = [struct.unpack_from("=QQQ", buffer, 32 + 56 * n) for n in range(count)]
    joined = []
    for logical, physical, length in found:
        # What xfs keeps allocated behind the end for a while is not meant.
        length = min(length, end - logical)
        if length <= 0:
            break
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

    def __init__(self, kind, place, headstart, slowdisk):
        self.kind, self.place, self.headstart, self.slowdisk = kind, Path(place), headstart, slowdisk
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

    def all(self):
        """These, and others that are moved aside."""
        return [*self.files(), *self.others]

    def step(self, step):
        """A step that has to succeed."""
        code, said = self.layout(*step)
        assert code == 0, f"{step}: {code}: {said}"
        if "--make-room" in step:
            assert re.search(r"[1-9][0-9.]* .iB (of other files|in block groups)", said), said

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
        self.kind.make(self.base, scenario)
        with self.mounted(self.base, f"{scenario.options},{self.kind.fills}"):
            self.fill(random.Random(7), scenario)
        with self.mounted(self.base, scenario.options):
            listed = self.place / "files.list"
            listed.write_text("".join(f"{path}\n" for path in self.files()))
            self.pack.unlink(missing_ok=True)
            run(self.headstart, "pack", "import", "--output", self.pack, listed)
            self.others = sorted((self.mount / "holes").iterdir()) if scenario.others else []
            self.before = [state(path) for path in self.all()]
            self.old = [extents(path) for path in self.all()]
            assert sum(map(len, self.old[:FILES])) > 3 * FILES, self.old
            for step in scenario.before:
                self.step(step)

    def fill(self, chance, scenario):
        """Writes the files chunk by chunk in turn; some have more extents than an inode has room for."""
        files = []
        for path in self.files():
            path.parent.mkdir(exist_ok=True)
            files.append(open(path, "wb", buffering=0))
        for at in range(14):
            for number, file in enumerate(files):
                if at <= number:
                    size = CHUNK if at < number else 1000 + 37 * number
                    # It can be compressed to half of that.
                    file.write(chance.randbytes(size // 2).hex().encode())
                    os.fdatasync(file.fileno())
        for number, file in enumerate(files):
            os.fchmod(file.fileno(), 0o600 + number)
            os.utime(file.fileno(), ns=(10**18 + number, 10**18 + 7 * number))
            file.close()
        if scenario.holes:
            self.perforate(scenario.holes, chance if scenario.others else None)
        os.sync()

    def perforate(self, size, chance):
        """Leaves free space in pieces only; with `chance`, files with content lie between them."""
        folder = self.mount / "holes"
        folder.mkdir()
        if chance:
            # What a file system reserves for itself would be one large hole.
            device = Path(run("findmnt", "-no", "SOURCE", self.mount).strip()).name
            with contextlib.suppress(FileNotFoundError):
                Path(f"/sys/fs/ext4/{device}/reserved_clusters").write_text("0")
            if self.kind is KINDS["xfs"]:
                run("xfs_io", "-x", "-c", "resblks 1", self.mount)
        number = 0
        with contextlib.suppress(OSError):
            while True:
                with open(folder / f"{number:05}", "wb", buffering=0) as file:
                    os.posix_fallocate(file.fileno(), 0, size)
                    if chance:
                        file.write(chance.randbytes(size))
                        # The last block of most files is not full.
                        file.truncate(size - 100)
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
                    if scenario.meanwhile in ("fill", "write"):
                        self.layout(*step)
                    else:
                        self.step(step)
            if not scenario.meanwhile:
                assert [state(path) for path in self.all()] == self.before
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


class Lost(Exception):
    """What a trial found."""


def expect(condition, what):
    if not condition:
        raise Lost(what)


def trial(rig, scenario, after):
    """Looks at a disk after a cut, and goes on with `after`. Returns where the layout stood."""
    changed = scenario.meanwhile == "write"
    def whole(when):
        for path, was in zip(rig.all(), rig.before, strict=True):
            now = state(path)
            # Who wrote to a file changed its times.
            expect(now[:6] == was[:6] and (changed or now == was), f"{when}: {path.name}: {now} was {was}")
    def check(when):
        wrong = rig.kind.wrong(rig.image)
        expect(wrong is None, f"{when}: {wrong}")
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
        stood, is_of_others = "no layout", False
        if found:
            old, new = found[0]["old_bytes"], found[0]["new_bytes"]
            stood = "old" if not new else "new" if not old else "between"
            if is_of_others := not found[0]["files"]:
                stood = "others aside"
            expect(changed or found[0]["elsewhere_bytes"] == 0, f"elsewhere: {found}")
        elif (rig.mount / ".headstart-layout").exists():
            stood = "before the journal"
        code, said = rig.layout("verify", "MOUNT")
        expect(code == (0 if found else 3), f"verify: {code}: {said}")
        pack_is_right("after the cut")
        code, said = rig.layout(after, "MOUNT")
        is_full = scenario.meanwhile == "fill" and code == 1
        # A layout of others alone is released by `resume`, which says that there is none.
        expected = 3 if is_of_others and after == "resume" else 0
        is_right = code == expected if found else code == 3 or (code == 0 and after == "release")
        expect(is_right or is_full or (changed and code == 1), f"{after}: {code}: {said}")
        whole(after)
        pack_is_right(after)
        places = [extents(path) for path in rig.all()]
        if found and not changed and not is_full:
            if after == "undo":
                # What was moved to make room stays: on btrfs block groups with all extents in them, on xfs the others.
                def shape(files):
                    if rig.kind is KINDS["btrfs"] and scenario.others:
                        return [len(one) for one in files]
                    return files[:FILES] if rig.kind is KINDS["xfs"] and not is_of_others else files
                expect(shape(places) == shape(rig.old), f"undo: {places} instead of {rig.old}")
            if after == "resume" and not is_of_others:
                code, said = rig.layout("status", "MOUNT")
                expect(code == 0, f"resume: status {code}: {said}")
        if (after != "resume" or is_of_others) and not is_full and not changed:
            expect(not (rig.mount / ".headstart-layout").exists(), f"{after}: its directory is there")
    check(after)
    with rig.mounted(rig.image, scenario.options):
        whole(f"{after}, from the disk")
    return stood


def storm():
    parser = drawn(__doc__, "layout", "a trial of each scenario and 2 live ones", 1000, "trials")
    parser.add_argument("--kind", choices=KINDS, default="ext4", help="of file system [default: %(default)s]")
    parser.add_argument("--live", type=int, default=100, help="disks that die below a layout [default: %(default)s]")
    parser.add_argument("--scenarios", metavar="NAME;…", help="only these [default: all]")
    parser.add_argument("--slowdisk", default=BUILT / "slowdisk")
    parser.set_defaults(out=None)
    options = parser.parse_args()
    needs_root("Mounts need it")
    alone()
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    slowdisk = tool(options.slowdisk, "./build.sh, or --slowdisk FILE")
    kind = KINDS[options.kind]
    names = options.scenarios.split(";") if options.scenarios else list(kind.scenarios)
    count, live = (len(names), 2) if options.smoke else (options.n, options.live)
    chance = random.Random(options.seed)
    result = about("headstart/storm-layout/1", headstart) | {"kind": options.kind, "seed": options.seed}
    tally, live_tally, bad, seconds = {}, collections.Counter(), [], time.monotonic()
    flushed = collections.Counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        rig = Rig(kind, place, headstart, slowdisk)
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
            scenario, stood = kind.scenarios[name], collections.Counter()
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
            scenario = kind.scenarios[name]
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
            is_apply = scenario.steps[0][0] == "apply" and scenario.meanwhile in ("", "commit")
            if code == 0 and is_apply and stood != "new":
                bad.append({"scenario": name, "kind": "live", "wrong": f"status 0, and it is {stood}: {said}"})
    result |= {"trials": sum(one["trials"] for one in tally.values()), "live": live,
               "scenarios": tally, "live_tally": dict(live_tally), "unflushed_blocks": dict(flushed),
               "seconds": round(time.monotonic() - seconds), "bad": bad}
    print(f"{result['trials']} cuts and {live} dead disks in {result['seconds']} s; {len(bad)} bad")
    if not options.smoke:
        write(options.out or RESULTS / f"storm-layout-{options.kind}.json", result)
    return 3 if bad else 0


if __name__ == "__main__":
    main(storm)
