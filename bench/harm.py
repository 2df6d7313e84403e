#!/usr/bin/env python3
"""Is a start ever slower with headstart? Conditions in which it gains little or may delay.

Measures each workload on each modelled disk in pairs, a start without and one through
`headstart run` in random order, under each condition:

    plain        no condition; on nvme the possible gain is small
    half-memory  a control group with what the program itself needs and memory for
                 half of the pack
    tight-memory the same with memory for an eighth of the pack: the program reads again
                 and again what the kernel dropped
    tight-first  the same without a pack, so that each start is recorded
    stale        half of the pack's files changed since they were learned
    busy         another process reads from the disk at its full queue depth
    hot          all that the start reads is resident

A start ends with the program's last process; learning after that is not timed. Each start
finds the same pack. Needs root. Cells are added to bench/results/harm.json and replace
earlier ones of the same name, so that it can be run in parts. Ends with status 3 when a
cell is significantly slower than allowed.

Usage: sudo bench/harm.py [--workloads A,B] [--models A,B] [--conditions A,B] [OPTION…]
"""

import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from lib import image
from lib.alone import alone
from lib.choice import add_choice, listed
from lib.disk import Programs
from lib.run import Trouble, run, wait_for_helpers
from lib.workloads import WORKLOADS
from measured import command_line, interval, main, needs_root
from standing import about, binaries, commit, keep

HERE = Path(__file__).resolve().parent
SCHEMA = "headstart-bench/harm/1"
# The disks, and how many readers keep each of them busy: the depth from which on it
# serves no more reads a second.
MODELS = {"nvme": 16, "emmc": 1, "cloud-lazy": 16, "hdd": 1}
CONDITIONS = ("plain", "half-memory", "tight-memory", "tight-first", "stale", "busy", "hot")
# The part of the pack that a control group has memory for.
PARTS = {"half-memory": 2, "tight-memory": 8, "tight-first": 8}
# The ratio that is allowed; on nvme less.
ALLOWED, ALLOWED_NVME = 1.02, 1.01
LEARNED_STARTS = 4
# A start that takes longer than this has failed.
TIMEOUT_S = 170

# Reads at random places past the cache, with so many threads, until its parent is gone.
READER = """
import mmap, os, random, sys, threading
device, threads = sys.argv[1], int(sys.argv[2])
file = os.open(device, os.O_RDONLY | os.O_DIRECT)
blocks = os.lseek(file, 0, os.SEEK_END) // 65536
def read():
    into = mmap.mmap(-1, 65536)
    while os.getppid() == parent:
        os.preadv(file, [into], 65536 * random.randrange(blocks))
parent = os.getppid()
for _ in range(threads):
    threading.Thread(target=read).start()
print("reads", flush=True)
"""


def benchmark():
    """Runs the benchmark; the exit status."""
    args = arguments()
    needs_root("Modelled disks and cold caches need root")
    alone()
    cells = harm(args)
    return 3 if any(cell["verdict"] == "slower" for cell in cells) else 0


def arguments():
    """The command line."""
    parser = command_line(__doc__)
    add_choice(parser, MODELS, list(MODELS), workloads=["python", "ml"])
    add = parser.add_argument
    add("--conditions", type=listed(CONDITIONS), default=list(CONDITIONS), metavar="A,B")
    add("--pairs", type=int, default=20, metavar="N", help="of a cell at most")
    add("--seconds", type=float, default=60, metavar="S",
        help="for a cell; at least 3 pairs are made")
    add("--run", default="", metavar="OPTIONS", help="more options of headstart run")
    add("--seed", type=int, default=1)
    add("--results", type=Path, default=HERE / "results/harm.json", metavar="FILE")
    return parser.parse_args()


def harm(args):
    """Measures the cells that were requested."""
    programs = binaries(args.bin)
    chosen = [w for w in WORKLOADS if w.name in args.workloads]
    folder = args.cache / "harm"
    folder.mkdir(parents=True, exist_ok=True)
    document = {"cells": []}
    if args.results.exists():
        document = json.loads(args.results.read_text())
    head = about(chosen, list(MODELS), []) | {"schema": SCHEMA}
    document = {name: head[name] for name in ("schema", "kernel", "cpu", "cpus",
                                              "memory_bytes")} | {"cells": document["cells"]}
    root = image.image(args.cache, chosen, tell)
    missing = [w for w in chosen if not is_known(programs / "headstart", w, folder)]
    measured = []
    for model, workloads, conditions in ([("nvme", missing, [])] if missing else []) + [
            part for model in args.models for part in parts(model, chosen, args.conditions)]:
        with Programs(programs / "slowdisk", model, root) as disk:
            starts = Starts(programs / "headstart", folder, disk, args.run.split())
            if not conditions:
                for workload in workloads:
                    starts.learn(workload)
            for workload, condition in [(w, c) for w in workloads for c in conditions]:
                cell = measure(starts, workload, condition, args)
                measured.append(cell)
                document["cells"] = [c for c in document["cells"] if place(c) != place(cell)]
                document["cells"].append(cell)
                document["cells"].sort(key=place)
                keep(document, args.results)
                tell(line(cell))
    return measured


def is_known(headstart, workload, folder):
    """Whether there is a pack that this headstart reads; one that it does not is removed."""
    pack = folder / f"{workload.name}.pack"
    with contextlib.suppress(Trouble):
        run(headstart, "show", "--json", pack)
        return True
    pack.unlink(missing_ok=True)
    return False


def parts(model, workloads, conditions):
    """What is measured on one disk; where files are changed, nothing else is."""
    others = [c for c in conditions if c != "stale"]
    if others:
        yield model, workloads, others
    if "stale" in conditions:
        for workload in workloads:
            yield model, [workload], ["stale"]


def place(cell):
    """Where a cell stands among the others."""
    return (cell["workload"], list(MODELS).index(cell["model"]),
            CONDITIONS.index(cell["condition"]))


class Killed(Exception):
    """A start that the kernel killed for want of memory."""


class Starts:
    """Starts of programs on a disk, with and without headstart."""

    def __init__(self, headstart, folder, disk, options):
        self.headstart, self.folder, self.disk, self.options = headstart, folder, disk, options

    def pack(self, workload):
        """Where a pack is kept."""
        return self.folder / f"{workload.name}.pack"

    def learn(self, workload):
        """Learns a program from its starts."""
        for _ in range(LEARNED_STARTS):
            self.cool()
            run(*self.through(self.pack(workload), waits=True),
                *self.disk.command(workload.start), env=self.environment())

    def through(self, pack, waits=False):
        """The first words of a command that starts through headstart, and maybe waits for it
        to learn."""
        report = ["--json", self.folder / "figures"] if waits else []
        return [self.headstart, "run", *report, "--pack", pack, *self.options, "--"]

    def environment(self):
        """With packs and models of devices of their own."""
        return os.environ | {"HEADSTART_PACKS": str(self.folder)}

    def cool(self):
        """Empties the disk's cache."""
        wait_for_helpers(self.headstart)
        run(*self.disk.cold().split())

    def timed(self, workload, helped, cold=True, group=None, known=True):
        """The seconds of one start."""
        command = self.disk.command(workload.start)
        if helped:
            # Each start finds the same pack, whatever the last one learned.
            pack = self.folder / "start.pack"
            pack.unlink(missing_ok=True)
            if known:
                shutil.copy(self.pack(workload), pack)
            command = [*self.through(pack), *command]
        if cold:
            self.cool()
        watched, held = os.pipe()
        with open(self.folder / "messages", "wb") as messages:
            began = time.monotonic()
            child = subprocess.Popen(
                [str(word) for word in command], env=self.environment(), pass_fds=[held],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages,
                preexec_fn=group and group.enter)
        os.close(held)
        os.set_blocking(watched, True)
        try:
            # The helper of headstart holds nothing that it inherits: the end is that of the program.
            os.read(watched, 1)
            took = time.monotonic() - began
            status = child.wait(timeout=TIMEOUT_S)
        finally:
            os.close(watched)
            if child.poll() is None:
                child.terminate()
                child.wait()
        if status in (-signal.SIGKILL, 128 + signal.SIGKILL) and group:
            raise Killed
        if status:
            last = (self.folder / "messages").read_text(errors="replace").splitlines()[-3:]
            raise Trouble(f"{workload.name} ended with status {status}: {' / '.join(last)}")
        return took


@contextlib.contextmanager
def own_starts(kind, headstart, folder, disk):
    """Starts of this class, with packs in a folder of their own, which is removed after them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield kind(headstart, folder, disk, [])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Group:
    """A control group with a limit of memory, in either version."""

    def __init__(self):
        version_1 = Path("/sys/fs/cgroup/memory")
        self.is_v1 = version_1.is_dir()
        parent = version_1 if self.is_v1 else Path("/sys/fs/cgroup")
        # One that could not be removed would bring its limit along.
        self.folder = parent / f"headstart-harm-{os.getpid()}-{time.monotonic_ns()}"

    def __enter__(self):
        self.folder.mkdir()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def enter(self):
        """Puts this process into it."""
        (self.folder / "cgroup.procs").write_text("0")

    def limit(self, size):
        """Sets the limit in bytes."""
        name = "memory.limit_in_bytes" if self.is_v1 else "memory.max"
        (self.folder / name).write_text(str(size))

    def peak(self):
        """The most that was ever used."""
        name = "memory.max_usage_in_bytes" if self.is_v1 else "memory.peak"
        return int((self.folder / name).read_text())


@contextlib.contextmanager
def condition_of(name, starts, workload):
    """What is set up for all pairs of a cell; gives the options of each start."""
    if name in PARTS:
        with Group() as group:
            # What is in memory already is charged to others: the peak of a hot start is
            # what the program needs beside its files.
            starts.timed(workload, helped=False)
            starts.timed(workload, helped=False, cold=False, group=group)
            need = group.peak()
            group.limit(need + pack_bytes(starts, workload) // PARTS[name])
            yield {"group": group, "known": name != "tight-first"}
    elif name == "stale":
        for path in sorted(files_of(starts, workload))[::2]:
            # A change that the program does not notice, unlike that of its contents.
            os.chmod(path, os.stat(path).st_mode & 0o7777)
        yield {}
    elif name == "busy":
        device = run("findmnt", "--noheadings", "--output", "SOURCE", starts.disk.mount,
                     capture=True).strip()
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, device, str(MODELS[starts.disk.model])],
            stdout=subprocess.PIPE)
        try:
            reader.stdout.readline()
            yield {}
        finally:
            reader.kill()
            reader.wait()
    elif name == "hot":
        starts.timed(workload, helped=False)
        starts.timed(workload, helped=False, cold=False)
        yield {"cold": False}
    else:
        yield {}


def shown(starts, workload):
    """The document of a pack."""
    return json.loads(run(starts.headstart, "show", "--json", starts.pack(workload), capture=True))


def files_of(starts, workload):
    """The files of a pack that are on the disk."""
    root = f"{starts.disk.mount}/"
    return [file["path"] for file in shown(starts, workload)["files"]
            if isinstance(file["path"], str) and file["path"].startswith(root)]


def pack_bytes(starts, workload):
    """Bytes of files in a pack."""
    files = shown(starts, workload)["files"]
    return sum(r["length"] for file in files for r in file["ranges"])


def measure(starts, workload, condition, args):
    """One cell."""
    random_order = random.Random(f"{args.seed} {workload.name} {starts.disk.model} {condition}")
    pairs, began, killed = [], time.monotonic(), {False: 0, True: 0}
    with condition_of(condition, starts, workload) as options:
        while len(pairs) < args.pairs:
            taken = time.monotonic() - began
            if len(pairs) >= 3 and taken * (len(pairs) + 1) / len(pairs) > args.seconds:
                break
            if taken > 3 * args.seconds:
                raise Trouble(f"{workload.name} needs more than {taken:.0f} s for 3 pairs "
                              f"({sum(killed.values())} starts were killed); raise --seconds")
            pair, order = {}, [False, True]
            random_order.shuffle(order)
            for helped in order:
                try:
                    pair[helped] = starts.timed(workload, helped, **options)
                except Killed:
                    killed[helped] += 1
            if len(pair) == 2:
                pairs.append(pair)
    if len(pairs) < 3:
        raise Trouble(f"{workload.name} has {len(pairs)} pairs; raise --pairs")
    ratios = sorted(pair[True] / pair[False] for pair in pairs)
    low, high, confidence = interval(ratios)
    allowed = ALLOWED_NVME if starts.disk.model == "nvme" else ALLOWED
    return {
        "workload": workload.name, "model": starts.disk.model, "condition": condition,
        "commit": commit(), "options": args.run, "n": len(pairs),
        "without_s": round(statistics.median(pair[False] for pair in pairs), 4),
        "with_s": round(statistics.median(pair[True] for pair in pairs), 4),
        "ratio": round(statistics.median(ratios), 4),
        "low": round(low, 4), "high": round(high, 4), "confidence": round(confidence, 4),
        "killed": {"without": killed[False], "with": killed[True]},
        "allowed": allowed,
        "verdict": "slower" if low > allowed else "not slower" if high <= allowed else "inconclusive",
        "pairs": [[round(pair[False], 4), round(pair[True], 4)] for pair in pairs],
    }


def line(cell):
    """A cell in one line."""
    return (f"{cell['model']:<10} {cell['workload']:<8} {cell['condition']:<11} n={cell['n']:<2} "
            f"{cell['without_s']:.3f} s without, {cell['with_s']:.3f} s with; "
            f"{cell['ratio']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]: {cell['verdict']}")


def tell(text):
    """Says how it goes."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(benchmark, "; the cells that were measured are kept")
