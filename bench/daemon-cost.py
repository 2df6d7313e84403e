#!/usr/bin/env python3
"""What the service `headstart daemon` costs a machine that executes many programs.

    build   `make -j2` of a small C project: without the service, with it, and without it again.
            The ratio of the second to the mean of the others, so that a machine that becomes slower
            changes nothing, as `headstart bench` estimates it (Hodges and Lehmann). The third against the
            first is the proof of that: its interval has to include 1. The machine builds all the time, also
            between what is counted, since a rest makes the next builds faster; in the builds after its
            begin the service learns the names that the kernel then ignores, as one does that runs for
            seconds.
    exec    what the service adds to the exec of a program that it does not know, at 10,000 a minute
    execs   the service's CPU time for 10,000 execs a minute: of one name, of one executable by names that
            the kernel can't ignore, and of as many executables as execs
    memory  resident memory at most: after 50,000 execs as fast as fork allows, and after three cold starts
            of a program that reads 20,000 files, and of four such at once, each with files of its own

Usage: sudo bench/daemon-cost.py [--parts A,B] [--rounds N] [--headstart FILE] [--out FILE] [--smoke]
Needs gcc, make and grep. Nothing else should run; memory does not depend on that.
"""
import contextlib
import math
import os
import random
import resource
import shutil
import tempfile
import time
from pathlib import Path

from lib.execs import Load, added
from lib.readers import Readers
from lib.run import Trouble
from lib.service import Service
from measured import BUILT, RESULTS, about, command_line, hodges_lehmann, main, needs_root, run, spread, tool, write

# 10,000 a minute, for so many execs.
GAP_NS = 6_000_000
EXECS = 2_500
STORM = 50_000
# Files that a program reads, how many such start at once, and how often.
READ = 20_000
AT_ONCE = 4
STARTS = 3
DISK = "emmc"
# A short build: what the machine does otherwise changes slowly, and many pairs show less.
FILES = 80
ARMS = ("without", "without again", "with")
# Execs in a row, and how often.
CHAIN, CHAINS = 200, 60
# Builds that are not counted: after the service began, and after it ended. The kernel's filter gets names
# that were executed often within two seconds.
AFTER_BEGIN, AFTER_END = 3, 1
# The service is at rest before the execs begin.
REST_S = 0.5


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--parts", default="build,exec,execs,memory", metavar="A,B", help="[default: all]")
    add("--rounds", type=int, default=200, help="of the build, 7 s each [default: 200]")
    add("--headstart", default=BUILT / "headstart")
    add("--slowdisk", default=BUILT / "slowdisk")
    add("--out", default=RESULTS / "daemon-cost.json")
    add("--smoke", action="store_true", help="a few execs and one small build; keeps no results")
    return parser.parse_args()


class Project:
    """A C project of some hundred files."""

    def __init__(self, place, files):
        self.place = Path(place) / "project"
        self.place.mkdir()
        names = [f"part{number}" for number in range(files)]
        for name in names:
            lines = "".join(f"int {name}_{i}(int x) {{ return x * {i} + printf(\"%d\\n\", x); }}\n" for i in range(10))
            (self.place / f"{name}.c").write_text(f"#include <stdio.h>\n{lines}")
        objects = " ".join(f"{name}.o" for name in names)
        (self.place / "Makefile").write_text(
            f"all.a: {objects}\n\tar rcs $@ $^\n%.o: %.c\n\tgcc -O1 -c $< -o $@\n")

    def build(self):
        """The seconds of a whole build, and its CPU time."""
        for old in [*self.place.glob("*.o"), *self.place.glob("*.a")]:
            old.unlink()
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        run("make", "-s", "-j2", "-C", self.place)
        took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def build(service, project, rounds):
    """Builds without the service before and after those with it."""
    found, used, counters, own = [], [], {}, []
    for _ in range(rounds):
        times, cpu = {}, {}
        times["without"], cpu["without"] = project.build()
        with service() as running:
            for _ in range(AFTER_BEGIN):
                project.build()
            before = running.cpu_s()
            times["with"], cpu["with"] = project.build()
            own.append(round(running.cpu_s() - before, 4))
            counters = running.counters()
        for _ in range(AFTER_END):
            project.build()
        times["without again"], cpu["without again"] = project.build()
        # The service's own CPU time is a part of what the build costs.
        cpu["with"] += own[-1]
        found.append(times)
        used.append(cpu)
    result = {"rounds": rounds, "service_cpu_s": spread(own), "counters": counters}
    for name, of in (("seconds", found), ("cpu_seconds", used)):
        result[name] = {arm: spread([round(one[arm], 4) for one in of]) for arm in ARMS}
        for arm, ratio in (
            ("with", lambda one: one["with"] / math.sqrt(one["without"] * one["without again"])),
            ("without again", lambda one: one["without again"] / one["without"]),
        ):
            result[f"{name}, {arm}"] = estimate([ratio(one) for one in of])
    return result


def estimate(ratios):
    """The ratio, and its interval of 95 %."""
    logs = [math.log(ratio) for ratio in ratios]
    found = hodges_lehmann(logs)
    return dict(zip(("ratio", "low", "high"), (round(math.exp(log), 4) for log in found), strict=True))


def one_exec(service, load, execs, rounds):
    """What it adds to an exec, in rounds of random order."""
    took = {arm: [] for arm in ARMS}
    for _ in range(rounds):
        for arm in random.sample(ARMS, len(ARMS)):
            with service() if arm == "with" else contextlib.nullcontext():
                time.sleep(REST_S)
                took[arm].append(load.chain(execs, GAP_NS))
    return {"execs": execs * rounds} | {f"added_us, {arm}": added(took[arm], took["without"]) for arm in ARMS[1:]}


def execs(service, load, count):
    """The service's CPU time for execs at that rate."""
    many = load.program.parent / "many"
    many.mkdir(exist_ok=True)
    for number in range(count):
        # Hard links would be one executable for the kernel, and many for the service.
        shutil.copy(load.program, many / str(number))
    found = {}
    for name, start in (
        ("nothing", lambda: time.sleep(count * GAP_NS / 1e9)),
        ("one name", lambda: load.storm(count, GAP_NS, load.frequent)),
        ("one executable", lambda: load.storm(count, GAP_NS)),
        ("each another", lambda: each(many, count)),
    ):
        with service() as running:
            time.sleep(REST_S)
            before, began = running.cpu_s(), time.monotonic()
            start()
            seconds = time.monotonic() - began
            cpu = running.cpu_s() - before
            found[name] = {"execs": count, "execs_a_minute": round(count / seconds * 60),
                           "cpu_us": round(cpu / count * 1e6, 1), "cpu_percent": round(cpu / seconds * 100, 3),
                           "counters": {k: v for k, v in running.counters().items() if v}}
    return found


def each(many, count):
    """Executes each of so many programs once, at that rate."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0, began + number * GAP_NS / 1e9 - time.monotonic()))
        path = str(many / str(number))
        os.waitpid(os.posix_spawn(path, [path, "end"], {}), 0)


def memory(service, load, count, readers):
    """Memory after a storm of execs, and with starts that are recorded."""
    with service() as running:
        begin = running.memory()
        storm = load.storm(count)
        found = {"at_begin": begin, "after": running.memory(), **storm}
    with readers() as disk:
        for programs in (1, AT_ONCE):
            with service(f"{programs}-at-once") as running:
                found[f"{programs} of many files"] = disk.starts(running, programs, STARTS)
    return found


def bench():
    args = arguments()
    needs_root("The service needs root")
    for needed in ("gcc", "make"):
        tool(needed, f"apt-get install {needed}")
    headstart = tool(args.headstart, "./build.sh")
    slowdisk = tool(args.slowdisk, "cargo build --release -p slowdisk")
    result = about("headstart/daemon-cost/1", headstart)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        load = Load(place)
        service = lambda name="service": Service(headstart, Path(place) / name)  # noqa: E731
        project = Project(place, 20 if args.smoke else FILES)
        readers = lambda: Readers(slowdisk, DISK, place, AT_ONCE, 500 if args.smoke else READ)  # noqa: E731
        measure = {
            "build": lambda: build(service, project, 1 if args.smoke else args.rounds),
            "exec": lambda: one_exec(service, load, *((20, 2) if args.smoke else (CHAIN, CHAINS))),
            "execs": lambda: execs(service, load, 100 if args.smoke else EXECS),
            "memory": lambda: memory(service, load, 1_000 if args.smoke else STORM, readers),
        }
        for part in args.parts.split(","):
            result[part] = measure[part]()
            for name, found in result[part].items():
                print(f"{part}: {name}: {found}", flush=True)
            if not args.smoke:
                # Another part may fail.
                write(args.out, result)
    if args.smoke and not result["build"]["counters"]["execs"]:
        raise Trouble("the service saw nothing of the build")
    return 0


if __name__ == "__main__":
    main(bench)
