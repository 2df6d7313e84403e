#!/usr/bin/env python3
"""Third cold starts by the service `headstart daemon`, compared with those by `headstart run`.

Programs on modelled disks are never named to the service. Two cold starts are noticed and learned by it, and
two others learned by `headstart run`, in stores of their own. Then the third cold start of both is measured
in pairs in random order, from what was known after the second each time. The ratio is the median of the
pairs' ratios, with its interval from order statistics; it is to be 1.25 at most, on hdd 1.15.

The service skips programs in another root directory. So it runs in the same one as the programs: a tmpfs with
/proc, /sys and /dev, in which the disk is mounted at /disk, and /usr, /etc, /srv and so on are symbolic links
to it. Mounting the disk again is what makes a start cold. Stores, state and socket are on the tmpfs.

Usage: sudo bench/daemon.py [--workloads A,B] [--models A,B] [--rounds N] [OPTION…]
What was learned stays in the cache, so that --rounds alone measures again; --learn learns again.
"""
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from explain import has_ended
from lib import image
from lib.alone import alone
from lib.choice import add_choice
from lib.disk import Disk
from lib.run import Trouble, mounted_under, run, wait_for_helpers
from lib.service import Service, enter
from lib.workloads import WORKLOADS
from measured import RESULTS, about, command_line, joined, main, needs_root, ratio_of, spread, write
from standing import MODELS, binaries

# What the third start by the service may take, of that by `headstart run`.
BOUNDS = {"hdd": 1.15}
BOUND = 1.25
ENVIRONMENT = {"HOME": "/home", "LC_ALL": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
# What a start needs beside the disk, in memory.
MOUNTS = (("proc", "proc"), ("sysfs", "sys"), ("tracefs", "sys/kernel/tracing"), ("tmpfs", "tmp"))
PROGRAMS = ("office", "chromium", "gimp", "emacs")
TIMEOUT_S = 120
# After its start, the service reads what it knows; and after a mount, the kernel is at rest.
REST_S = 0.3
# The last look at a start that is not known.
LAST_LOOK_S = 11


class Root(Disk):
    """A root directory in memory, with the disk and links to what is on it."""

    name = "headstart-daemon"
    point = "disk"

    def furnish(self):
        """Makes links to the disk, and mounts what programs need."""
        for entry in self.mount.iterdir():
            if entry.name in ("proc", "sys", "dev", "tmp", "run", "lost+found", "mnt", "media", "home"):
                continue
            target = os.readlink(entry) if entry.is_symlink() else f"disk/{entry.name}"
            (self.folder / entry.name).symlink_to(target)
        for kind, where in MOUNTS:
            (self.folder / where).mkdir(exist_ok=True)
            run("mount", "-t", kind, kind, self.folder / where)
        (self.folder / "dev").mkdir()
        run("mount", "--bind", "/dev", self.folder / "dev")
        for name in ("run", "home"):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        # What the links are for.
        assert (self.folder / "usr/bin").is_dir()

    def __exit__(self, *_):
        # The kernel removes trace instances in the background.
        patiently(self.unmount_others)
        super().__exit__()

    def unmount_others(self):
        """Unmounts what is mounted beside the disk, which ends with its server."""
        for point in mounted_under(self.folder):
            if Path(point) != self.mount:
                run("umount", point)


def patiently(do):
    """Does what others may delay."""
    until = time.monotonic() + LAST_LOOK_S
    while True:
        try:
            return do()
        except Trouble:
            if time.monotonic() > until:
                raise
            time.sleep(REST_S)


class Starts:
    """Starts of a workload in that root, plain and by both ways."""

    def __init__(self, headstart, root, kept):
        self.root, self.kept = root, kept
        # By this name the service knows it.
        self.headstart = root.folder / "headstart"
        shutil.copy(headstart, self.headstart)
        self.place = root.folder / "service"
        self.packs = root.folder / "run"

    def once(self, workload, through=()):
        """The seconds of a cold start, and its process."""
        self.furnish(workload)
        # A browser's processes may end after it.
        patiently(lambda: run(*self.root.cold().split()))
        environment = ENVIRONMENT | {"HEADSTART_PACKS": "/run"}
        began = time.monotonic()
        child = subprocess.Popen(
            [*through, *workload.start], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=lambda: enter(self.root.folder))
        has_ended(child)
        took = time.monotonic() - began
        said = child.stderr.read().decode(errors="replace").strip().splitlines()
        if child.wait():
            raise Trouble(f"{workload.name} ended with status {child.returncode}: {' / '.join(said[-3:])}")
        child.stderr.close()
        return took, child.pid

    def by_service(self, workload):
        """A cold start while the service runs, and what that tells of it."""
        with Service("/headstart", self.place, self.root.folder) as service:
            time.sleep(REST_S)
            took, pid = self.once(workload)
            told = self.told(service, pid)
            return took, told, service.counters()

    def told(self, service, pid):
        """The starts that the service lists, once it is done with them; one that it only watches is
        listed at its last look, after its end."""
        until = time.monotonic() + LAST_LOOK_S
        while True:
            time.sleep(REST_S)
            status = service.ask("status")["status"]
            is_busy = status["recording"] or status["in_flight_bytes"]
            starts = service.ask("top").get("starts", [])
            if not is_busy and (starts or time.monotonic() > until):
                return starts
            if time.monotonic() > until + TIMEOUT_S:
                raise Trouble(f"the service is not done with process {pid}")

    def by_run(self, workload):
        """A cold start through `headstart run`."""
        took, _ = self.once(workload, ["/headstart", "run", "--"])
        wait_for_helpers(self.headstart)
        return took

    def furnish(self, workload):
        """Gives it the directory that its user has after the first start, in memory."""
        home, kept = self.root.folder / "home", self.kept / f"{workload.name}-home"
        shutil.rmtree(home)
        if kept.exists():
            shutil.copytree(kept, home, symlinks=True)
        else:
            home.mkdir()

    def keep_home(self, workload):
        """Keeps that directory."""
        self.once(workload)
        into = self.kept / f"{workload.name}-home"
        shutil.rmtree(into, ignore_errors=True)
        # Sockets and pipes are not kept.
        def odd(folder, names):
            return [name for name in names
                    if not (path := Path(folder) / name).is_symlink() and not path.is_dir() and not path.is_file()]
        shutil.copytree(self.root.folder / "home", into, symlinks=True, ignore=odd)

    def snapshot(self, workload, model):
        """Where it is kept what was learned in two starts."""
        return self.kept / f"{workload.name}-{model}"

    def learn(self, workload, model):
        """Two cold starts by each, and keeps what was learned then; what the service told."""
        self.clear()
        told = []
        for _ in range(2):
            _, starts, _ = self.by_service(workload)
            told.append(starts)
            self.by_run(workload)
        into = self.snapshot(workload, model)
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        for place in (self.place, self.packs):
            shutil.copytree(place, into / place.name, ignore=shutil.ignore_patterns("socket", "messages"))
        return told

    def clear(self):
        for place in (self.place, self.packs):
            shutil.rmtree(place, ignore_errors=True)
        self.packs.mkdir(mode=0o755)

    def restore(self, workload, model):
        """Forgets what was learned after the second start."""
        self.clear()
        shutil.copytree(self.snapshot(workload, model), self.root.folder, dirs_exist_ok=True)


def measure(starts, workload, model, rounds):
    """The pairs of third starts of a workload."""
    pairs, told = [], []
    for _ in range(rounds):
        pair = {}
        for arm in random.sample(("service", "run"), 2):
            starts.restore(workload, model)
            if arm == "run":
                pair[arm] = starts.by_run(workload)
            else:
                pair[arm], listed, _ = starts.by_service(workload)
                told.append(listed)
        pairs.append(pair)
    cell = {"workload": workload.name, "model": model, "pairs": len(pairs)}
    for arm in ("service", "run"):
        cell[f"{arm}_s"] = spread([round(pair[arm], 4) for pair in pairs])
    cell |= ratio_of(pairs, "service", "run")
    cell["bound"] = BOUNDS.get(model, BOUND)
    # What the service made of the last start.
    cell["starts"] = [{name: start[name] for name in
                       ("program", "kind", "first_request_us", "read_bytes", "saved_us", "pages")}
                      for start in told[-1]]
    return cell


def arguments():
    parser = command_line(__doc__)
    add_choice(parser, MODELS, ["cloud-lazy", "hdd"], workloads=list(PROGRAMS))
    add = parser.add_argument
    add("--rounds", type=int, default=6, metavar="N", help="pairs of a cell [default: 6]")
    add("--learn", action="store_true", help="learns again what was learned before")
    add("--learn-only", action="store_true", help="measures nothing")
    add("--smoke", action="store_true", help="python on one disk: does it work? keeps no results")
    add("--out", type=Path, default=RESULTS / "daemon.json", metavar="FILE")
    args = parser.parse_args()
    if args.smoke:
        args.workloads, args.models, args.rounds, args.learn = ["python"], ["cloud-lazy"], 1, True
    return args


def line(cell):
    """A cell in one line."""
    return (f"{cell['model']:<10} {cell['workload']:<9} third start by the service "
            f"{cell['service_s']['median']:.3f} s, by run {cell['run_s']['median']:.3f} s: "
            f"{cell['ratio']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}] (n = {cell['pairs']}, "
            f"bound {cell['bound']})")


def check(cell, cold):
    """What must hold of a smoke test, with the seconds of a cold start."""
    kinds = [start["kind"] for start in cell["starts"]]
    if "prefetched" not in kinds:
        raise Trouble(f"no third start was prefetched: {cell['starts']}")
    if cell["service_s"]["median"] >= cold:
        raise Trouble(f"a third start is no faster than a cold one: {line(cell)}")


def bench():
    args = arguments()
    needs_root("Modelled disks and cold caches need root")
    alone()
    programs = binaries(args.bin)
    chosen = [w for w in WORKLOADS if w.name in args.workloads]
    by_name = {w.name: w for w in WORKLOADS}
    # One image has all of these programs, whichever are measured.
    held = chosen if args.smoke else [by_name[name] for name in PROGRAMS]
    held += [w for w in chosen if w not in held]
    picture = image.image(args.cache, held, print)
    result = about("headstart/daemon-starts/1", programs / "headstart") | {"cells": []}
    with contextlib.ExitStack() as stack:
        kept = args.cache / "daemon"
        if args.smoke:
            kept = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        missing = [w for w in chosen if args.learn or not (kept / f"{w.name}-home").exists()]
        if missing:
            with Root(programs / "slowdisk", "nvme", picture) as root:
                for workload in missing:
                    Starts(programs / "headstart", root, kept).keep_home(workload)
        for model in args.models:
            with Root(programs / "slowdisk", model, picture) as root:
                starts = Starts(programs / "headstart", root, kept)
                for workload in chosen:
                    if args.learn or not starts.snapshot(workload, model).exists():
                        for told in starts.learn(workload, model):
                            print(f"{workload.name} on {model}:",
                                  "; ".join(f"{start['program']} {start['kind']}" for start in told), flush=True)
                    if args.learn_only:
                        continue
                    cell = measure(starts, workload, model, args.rounds)
                    result["cells"].append(cell)
                    print(line(cell), flush=True)
                    if args.smoke:
                        check(cell, starts.once(workload)[0])
                    else:
                        write(args.out, joined(args.out, result,
                                               lambda cell: (cell["workload"], cell["model"])))
    return 0


if __name__ == "__main__":
    main(bench)
