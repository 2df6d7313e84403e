#!/usr/bin/env python3
"""Do two builds of headstart start a program equally soon?

Starts programs cold from modelled disks through `headstart run` of either build, in random order in
each pair, each build with packs that it learned itself. For each disk it tells, with the interval
of the median by order, of 95 %:

    start          the time of the start, and the ratio of the pairs
    first request  from the execve(2) of headstart to the first request to the disk that it makes,
                   as the tracepoints sched_process_exec and block_rq_issue tell it, in starts of
                   their own

The cost of hot starts is told by overhead.py --other.

Usage: sudo bench/builds.py --other FILE [--workloads A,B] [--models A,B] [--pairs N] [OPTION…]
"""
import contextlib
import os
import random
import re
import statistics
from pathlib import Path

from harm import Starts, own_starts
from lib import image
from lib.alone import alone
from lib.choice import add_choice
from lib.disk import Programs
from lib.run import Trouble, wait_for_helpers
from lib.workloads import WORKLOADS
from measured import RESULTS, about, command_line, joined, main, needs_root, ratio_of, tool, write
from standing import binaries

EVENTS = ("sched/sched_process_exec", "block/block_rq_issue")
LINE = re.compile(r"\s*.+-\d+ +\[\d+\] \S+ +(?P<time>[\d.]+): (?P<event>\w+): (?P<rest>.*)")


class TwoBuilds(Starts):
    """Starts through one of two builds, none of whose helpers is left before a cold start."""

    builds = ()

    @classmethod
    def wait(cls):
        """Waits until no helper of either build is left, which would keep the disk busy."""
        for build in cls.builds:
            wait_for_helpers(build)

    def cool(self):
        self.wait()
        super().cool()


class Trace:
    """A trace of executed programs and requests."""

    def __init__(self):
        self.folder = Path(f"/sys/kernel/tracing/instances/builds-{os.getpid()}")

    def __enter__(self):
        self.folder.mkdir()
        for event in EVENTS:
            (self.folder / "events" / event / "enable").write_text("1")
        return self

    def __exit__(self, *_):
        self.folder.rmdir()

    def clear(self):
        """Forgets what was traced."""
        (self.folder / "trace").write_text("")

    def first_request_us(self, headstart, device):
        """From the first execve of `headstart` to the first read of `device` after it."""
        began = None
        for line in (self.folder / "trace").read_text().splitlines():
            event = LINE.match(line)
            if not event:
                continue
            at, rest = float(event["time"]) * 1e6, event["rest"]
            if began is None and event["event"] == "sched_process_exec":
                began = at if f"filename={headstart} " in rest else None
            elif began is not None and rest.startswith(f"{device} R"):
                return at - began
        raise Trouble(f"{headstart} requested nothing from {device}")


def arguments():
    parser = command_line(__doc__)
    add_choice(parser, ("nvme", "emmc", "cloud", "hdd"), ["nvme", "emmc"], workloads=["python"])
    add = parser.add_argument
    add("--other", required=True, metavar="FILE", help="the other build of headstart")
    add("--pairs", type=int, default=40, metavar="N")
    add("--seed", type=int, default=1)
    add("--results", type=Path, default=RESULTS / "builds.json", metavar="FILE")
    return parser.parse_args()


def compare():
    options = arguments()
    needs_root("Modelled disks and cold caches need root")
    alone()
    programs = binaries(options.bin)
    own = str(programs / "headstart")
    builds = {"own": own, "other": tool(options.other, "--other FILE")}
    TwoBuilds.builds = tuple(builds.values())
    workloads = [w for w in WORKLOADS if w.name in options.workloads]
    root = image.image(options.cache, workloads, print)
    rng = random.Random(options.seed)
    for model in options.models:
        with Programs(programs / "slowdisk", model, root) as disk, contextlib.ExitStack() as stack:
            starts = {}
            for name, build in builds.items():
                starts[name] = stack.enter_context(
                    own_starts(TwoBuilds, build, options.cache / f"builds-{name}", disk))
            trace = stack.enter_context(Trace())
            for workload in workloads:
                for build in starts.values():
                    build.learn(workload)
                found = cell(starts, workload, trace, options.pairs, rng)
                print(line(found), flush=True)
                document = about("headstart/builds/1", own) | {"seed": options.seed, "cells": [found]}
                write(options.results, joined(options.results, document,
                                              lambda c: (c["workload"], c["model"])))
            TwoBuilds.wait()
    return 0


def cell(starts, workload, trace, pairs, rng):
    """What is measured on one disk."""
    disk = starts["own"].disk
    device = os.stat(disk.mount).st_dev
    device = f"{os.major(device)},{os.minor(device)}"
    times, firsts = [], []
    for _ in range(pairs):
        pair = {}
        for name in rng.sample(sorted(starts), 2):
            pair[name] = starts[name].timed(workload, helped=True)
        times.append(pair)
    for _ in range(pairs):
        pair = {}
        for name in rng.sample(sorted(starts), 2):
            trace.clear()
            starts[name].timed(workload, helped=True)
            pair[name] = trace.first_request_us(starts[name].headstart, device)
        firsts.append(pair)
    return {"workload": workload.name, "model": disk.model, "n": pairs,
            "start_s": figures(times, 4), "first_request_us": figures(firsts, 0)}


def figures(pairs, digits):
    """Medians of both builds, and of the ratio."""
    medians = {name: round(statistics.median(pair[name] for pair in pairs), digits)
               for name in ("own", "other")}
    return medians | ratio_of(pairs, "own", "other")


def line(cell):
    """A cell in one line."""
    def text(name, unit, scale):
        f = cell[name]
        return (f"{f['own'] * scale:.3f} {unit}, other {f['other'] * scale:.3f} {unit}, "
                f"{f['ratio']:.3f} [{f['low']:.3f}, {f['high']:.3f}]")
    return (f"{cell['model']:<6} {cell['workload']:<8} n={cell['n']} start {text('start_s', 's', 1)}; "
            f"first request {text('first_request_us', 'ms', 1e-3)}")


if __name__ == "__main__":
    main(compare)
