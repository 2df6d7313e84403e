#!/usr/bin/env python3
"""How headstart's cost grows with what a start reads, everything else fixed.

Part 1 reads 100 to 100,000 files of 8 KiB in directories of 100; part 2 reads
100 files of 10 MB to 10 GB in all (find -exec cat). Every round takes, cold each
time: a start that learns, one that prefetches and learns, one that only
prefetches, a replay alone, and the program alone, which then starts hot as well.
The disk is ext4 on a loop device with direct I/O; smaller points are repeated on
a modelled network volume (slowdisk cloud). Needs root.

Usage: bench/growth.py [--smoke] [--rounds N] [--bin DIR] [--dir DIR] [--out FILE]
"""
import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measured import BUILT, RESULTS, Trouble, about, command_line, main, needs_root, run, spread, tool, write

BLOCK = 4096
SMALL = 8192
FILES = (100, 1000, 10_000, 100_000)
BYTES = (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
OWN_MOUNTS = "HEADSTART_GROWTH_OWN_MOUNTS"
# Points up to here are repeated on the slow disk.
SLOW_FILES, SLOW_BYTES = 10_000, 1_000_000_000
EACH_DIRECTORY = 100
# What growth is worked out of.
FIGURES = ("pack_bytes", "events", "learn_ms", "resolve_ms", "relearn_ms", "learn_memory_bytes",
           "ahead_memory_bytes", "exec_first_ms", "exec_ahead_ms", "first_request_ms",
           "replay_ms", "requests", "cold_ms", "ahead_ms", "hot_ms")


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--smoke", action="store_true", help="the smallest points, one round")
    add("--rounds", type=int, default=3, help="rounds of each point [default: 3]")
    add("--bin", default=BUILT, type=Path, help="where headstart and slowdisk are")
    add("--dir", default="/var/tmp", type=Path, help="where the disk images are kept meanwhile")
    add("--out", default=RESULTS / "growth.json")
    return parser.parse_args()


# --- disks ----------------------------------------------------------------------


class Image:
    """An ext4 image with the files of a point, while the `with` block lasts."""

    def __init__(self, folder, files, total):
        self.file, self.files, self.total = folder / "image", files, total

    def __enter__(self):
        each = self.total // self.files
        blocks = self.files * (math.ceil(each / BLOCK) + 1)
        size = blocks * BLOCK * 21 // 20 + self.files * 512 + (64 << 20)
        run("truncate", "--size", f"{math.ceil(size / (1 << 20))}M", self.file)
        # Nothing is left for the kernel to initialise while we measure.
        run("mkfs.ext4", "-q", "-m", "0", "-N", self.files + self.files // 50 + 1000,
            "-E", "lazy_itable_init=0,lazy_journal_init=0", self.file)
        with Plain(self.file) as disk:
            for number in range(self.files):
                folder = disk.data / f"{number // EACH_DIRECTORY:05}"
                if number % EACH_DIRECTORY == 0:
                    folder.mkdir(parents=True)
                with open(folder / f"{number:06}", "wb", buffering=0) as file:
                    for at in range(0, each, 1 << 20):
                        file.write(bytes(min(1 << 20, each - at)))
        return self

    def __exit__(self, *_):
        self.file.unlink(missing_ok=True)


class Plain:
    """An image on a loop device with direct I/O, while the `with` block lasts."""

    name = "loop"

    def __init__(self, image):
        self.image, self.mount, self.loop = image, image.parent / "mount", None
        self.data = self.mount / "data"

    def __enter__(self):
        self.mount.mkdir(exist_ok=True)
        try:
            self.loop = run("losetup", "--find", "--show", "--direct-io=on", self.image).strip()
            run("mount", "-o", "noatime", self.loop, self.mount)
        except BaseException:
            self.__exit__()
            raise
        return self

    def cold(self):
        run("umount", self.mount)
        run("mount", "-o", "noatime", self.loop, self.mount)

    def __exit__(self, *_):
        if os.path.ismount(self.mount):
            run("umount", self.mount)
        # Asked of the kernel: we may have been stopped before we knew the name.
        for line in run("losetup", "--noheadings", "--output", "NAME", "--associated",
                        self.image).split():
            run("losetup", "--detach", line)


class Slow:
    """An image on a modelled disk, while the `with` block lasts."""

    def __init__(self, slowdisk, model, image):
        self.slowdisk, self.name, self.image = slowdisk, model, image
        self.mount, self.state = image.parent / "slow", image.parent / "state"
        self.data = self.mount / "data"

    def verb(self, verb, *words):
        return run(self.slowdisk, verb, "--state", self.state, *words)

    def __enter__(self):
        self.mount.mkdir(exist_ok=True)
        try:
            self.verb("up", "--model", self.name, "--image", self.image, "--mount", self.mount,
                      "--options", "noatime")
        except BaseException:
            with contextlib.suppress(Trouble):
                self.__exit__()
            raise
        return self

    def cold(self):
        self.verb("remount", self.mount)

    def __exit__(self, *_):
        # Also takes away what a killed `up` or `remount` left.
        self.verb("down", self.mount)


# --- what is measured -------------------------------------------------------------


def timed(words):
    """Runs a command to its end and tells how many milliseconds that took."""
    began = time.perf_counter()
    # A group of its own: it is ended with all that it started, and waited for.
    child = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             errors="replace", start_new_session=True)
    try:
        _, said = child.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
            child.wait()
            end = time.monotonic() + 30
            while time.monotonic() < end:
                os.killpg(child.pid, 0)
                time.sleep(0.01)
        raise
    if child.returncode:
        raise Trouble(f"{words[0]} ended with status {child.returncode}: {said.strip()[-300:]}")
    return 1000 * (time.perf_counter() - began)


def start(headstart, pack, data, *options):
    """A start with headstart: its own figures, and the most memory it took."""
    figures, memory = pack.parent / "run.json", pack.parent / "memory"
    # Our own getrusage would tell the size of this script if that is larger.
    wall = timed(["time", "--format", "%M", "--output", memory,
                  headstart, "run", "--pack", pack, "--for", "30m",
                  "--json", figures, *options, "--", *program(data)])
    found = json.loads(figures.read_text())
    if found["notes"]:
        raise Trouble(f"headstart did not do all it was to do: {found['notes']}")
    return found | {"whole_ms": wall, "memory_bytes": 1024 * int(memory.read_text())}


def program(data):
    return ["find", data, "-type", "f", "-exec", "cat", "{}", "+"]


def one_round(headstart, disk, folder, total):
    """Every figure of a point once; None when it was not cold."""
    pack = folder / "growth.pack"
    pack.unlink(missing_ok=True)
    disk.cold()
    first = start(headstart, pack, disk.data)
    disk.cold()
    second = start(headstart, pack, disk.data)
    disk.cold()
    ahead = start(headstart, pack, disk.data, "--no-learn")
    disk.cold()
    replay = json.loads(run(headstart, "replay", "--wait", "--json", pack))["report"]
    if replay["bytes"] < 0.9 * total:
        return None
    disk.cold()
    cold = timed(program(disk.data))
    hot = timed(program(disk.data))
    learned, again = first["learned"], second["learned"]
    return {
        "pack_bytes": again["pack_bytes"],
        "files": again["files"],
        "data_bytes": again["data_bytes"],
        "events": learned["events"],
        "lost_events": learned["lost_events"] + again["lost_events"],
        "learn_ms": learned["learn_us"] / 1000,
        "resolve_ms": learned["resolve_us"] / 1000,
        "relearn_ms": again["learn_us"] / 1000,
        "learn_memory_bytes": first["memory_bytes"],
        "relearn_memory_bytes": second["memory_bytes"],
        "ahead_memory_bytes": ahead["memory_bytes"],
        "exec_first_ms": first["exec_after_us"] / 1000,
        "exec_again_ms": second["exec_after_us"] / 1000,
        "exec_ahead_ms": ahead["exec_after_us"] / 1000,
        "first_request_ms": (replay["first_request_us"] or 0) / 1000,
        "replay_ms": replay["elapsed_us"] / 1000,
        "requests": replay["requests"],
        "replayed_bytes": replay["bytes"],
        "over_budget_bytes": replay["over_budget_bytes"],
        "ready_share": second["ready_share"],
        "cold_ms": cold,
        "ahead_ms": ahead["whole_ms"],
        "hot_ms": hot,
    }


# --- points and growth ------------------------------------------------------------


def points(smoke):
    """What is measured: part, files, bytes; the smallest first."""
    few = [("files", n, n * SMALL) for n in FILES] + [("bytes", 100, total) for total in BYTES]
    few.sort(key=lambda point: (point[2], point[1]))
    return [p for p in few if p in (few[0], few[1], ("bytes", 100, BYTES[0]))] if smoke else few


def too_big(total, folder):
    """Why so many bytes can't be measured here; None when they can."""
    free = shutil.disk_usage(folder).free
    if free < 1.3 * total + (1 << 30):
        return f"the image does not fit in {folder}: {free / 1e9:.1f} GB are free"
    [line] = [x for x in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in x]
    memory = 1024 * int(line.split()[1])
    # headstart prefetches half of the available memory at most.
    if memory / 2 < 1.02 * total:
        return f"half of the available memory is {memory / 2e9:.1f} GB, less than the files have"
    return None


def drops():
    """How often anybody has dropped caches: starts are not hot meanwhile."""
    return [line for line in Path("/proc/vmstat").read_text().splitlines()
            if line.startswith("drop_")]


def measure(headstart, disk, folder, point, rounds):
    """All rounds of a point on a disk."""
    part, files, total = point
    began = time.monotonic()
    runs, warm, dropped = [], 0, 0
    while len(runs) < rounds:
        before = drops()
        figures = one_round(headstart, disk, folder, total)
        if drops() != before and dropped < rounds:
            dropped += 1
            continue
        warm += figures is None
        if warm > 2:
            raise Trouble(f"{disk.mount} does not get cold: another process or mount namespace "
                          "holds it")
        runs += [figures] if figures else []
    found = {"part": part, "files": files, "bytes": total, "disk": disk.name, "rounds": rounds,
             "repeated": {"not_cold": warm, "caches_dropped_by_others": dropped},
             "figures": {name: spread([r[name] for r in runs]) for name in runs[0]}}
    show = {name: value["median"] for name, value in found["figures"].items()}
    print(f"{part} {files:>6} {total / 1e6:>8.1f} MB {disk.name:5} "
          f"events {show['events']:>7.0f} lost {show['lost_events']:.0f} "
          f"pack {show['pack_bytes'] / 1000:.1f} kB "
          f"learn {show['learn_ms']:.1f} ms rss {show['learn_memory_bytes'] / 1e6:.0f} MB "
          f"exec {show['exec_first_ms']:.1f}/{show['exec_ahead_ms']:.1f} ms "
          f"first request {show['first_request_ms']:.1f} ms replay {show['replay_ms']:.0f} ms "
          f"cold {show['cold_ms']:.0f} ahead {show['ahead_ms']:.0f} hot {show['hot_ms']:.0f} ms "
          f"({time.monotonic() - began:.0f} s)", flush=True)
    return found


def exponents(found, part, disk):
    """How each figure grows: the slope in log-log over all points and over the
    last step; 1 is linear. None where there are not two points above 0."""
    size = "files" if part == "files" else "bytes"
    mine = sorted((p for p in found if (p["part"], p["disk"]) == (part, disk)),
                  key=lambda p: p[size])
    slopes = {}
    for figure in FIGURES:
        line = [(math.log(p[size]), math.log(p["figures"][figure]["median"])) for p in mine
                if (p["figures"][figure] or {"median": 0})["median"] > 0]
        if len(line) < 2:
            slopes[figure] = None
            continue
        (x1, y1), (x2, y2) = line[-2:]
        slopes[figure] = {"all": round(slope(line), 3), "last": round((y2 - y1) / (x2 - x1), 3)}
    return {"part": part, "disk": disk, "points": len(mine), "exponents": slopes}


def slope(line):
    """The least-squares slope."""
    x0, y0 = (sum(values) / len(line) for values in zip(*line))
    return sum((x - x0) * (y - y0) for x, y in line) / sum((x - x0) ** 2 for x, _ in line)


def growth():
    options = arguments()
    needs_root("Recording and mounting need root")
    headstart = tool(options.bin / "headstart", "./build.sh, or --bin DIR")
    tool("time", "apt-get install time")
    if not os.environ.get(OWN_MOUNTS):
        # A mount namespace that is made meanwhile, for a container or a service,
        # would copy our mounts and keep what is on them in memory.
        os.environ[OWN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private",
                              sys.executable, *sys.argv])
    slowdisk = tool(options.bin / "slowdisk", "cargo build --release -p slowdisk, or --bin DIR")
    result = about("headstart/growth/1", headstart) | {
        "complete": False, "points": [], "skipped": [], "growth": []}
    rounds, slow_files = (1, FILES[0]) if options.smoke else (options.rounds, SLOW_FILES)
    folder = Path(tempfile.mkdtemp(prefix="headstart-growth-", dir=options.dir))
    try:
        for part, files, total in points(options.smoke):
            why = too_big(total, folder)
            if why:
                result["skipped"].append({"part": part, "files": files, "bytes": total, "why": why})
                print(f"{part} {files:>6} {total / 1e6:>8.1f} MB skipped: {why}", flush=True)
                continue
            with Image(folder, files, total) as image:
                disks = [Plain(image.file)]
                if files <= slow_files and total <= SLOW_BYTES:
                    disks.append(Slow(slowdisk, "cloud", image.file))
                for disk in disks:
                    with disk:
                        found = measure(headstart, disk, folder, (part, files, total), rounds)
                    result["points"].append(found)
                    result["growth"] = [exponents(result["points"], p, d) for p, d in sorted(
                        {(p["part"], p["disk"]) for p in result["points"]})]
                    if not options.smoke:
                        write(options.out, result)
    finally:
        shutil.rmtree(folder)
    result["complete"] = True
    if not options.smoke:
        write(options.out, result)
    for line in [] if options.smoke else result["growth"]:
        worse = [f"{name} {s['all']:.2f}, last step {s['last']:.2f}"
                 for name, s in line["exponents"].items() if s and max(s.values()) > 1.1]
        print(f"{line['part']} on {line['disk']}: grows faster than linearly: "
              f"{'; '.join(worse) or 'nothing'}")
    return 0


if __name__ == "__main__":
    main(growth)
