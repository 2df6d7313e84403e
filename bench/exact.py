#!/usr/bin/env python3
"""What do exact packs gain, which have no fault-around pages?

Each workload is learned twice in four cold starts: by `headstart run` alone, and with the
first of them by `headstart record --exact`. Then it is started cold with either pack
prefetched, in pairs in random order, and nothing is learned. Packs are learned on nvme.

Usage: bench/exact.py [--workloads A,B] [--models A,B] [--pairs N] [--out FILE]
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from lib import image
from lib.alone import alone
from lib.choice import add_choice
from lib.disk import Programs
from lib.learn import learn
from lib.run import Trouble, run, wait_for_helpers
from lib.workloads import WORKLOADS
from measured import RESULTS, about, command_line, joined, main, needs_root, write
from standing import MODELS, binaries

ARMS = ("plain", "exact")
TIMEOUT_S = 180


def arguments():
    """The command line."""
    parser = command_line(__doc__)
    # Of nvme, a plain loop device, nobody counts the requests.
    models = [model for model in MODELS if model != "nvme"]
    add_choice(parser, models, ["cloud", "emmc", "sata-ssd", "hdd"])
    add = parser.add_argument
    add("--pairs", type=int, default=6, metavar="N", help="[default: 6]")
    add("--seed", type=int, default=1)
    add("--out", type=Path, default=RESULTS / "exact.json")
    return parser.parse_args()


def benchmark():
    """Measures; the exit status."""
    args = arguments()
    needs_root("Modelled disks and cold caches need root")
    alone()
    programs = binaries(args.bin)
    chosen = [w for w in WORKLOADS if w.name in args.workloads]
    root = image.image(args.cache, chosen, lambda text: print(text, file=sys.stderr))
    result = about("headstart-bench/exact/1", str(programs / "headstart")) | {"cells": []}
    with tempfile.TemporaryDirectory() as folder:
        packs = {(w.name, arm): Path(folder) / f"{w.name}-{arm}.pack"
                 for w in chosen for arm in ARMS}
        os.environ["HEADSTART_PACKS"] = folder
        with Programs(programs / "slowdisk", "nvme", root) as disk:
            for workload in chosen:
                for arm in ARMS:
                    learn(programs / "headstart", disk, workload, packs[workload.name, arm],
                          arm == "exact")
        for model in args.models:
            with Programs(programs / "slowdisk", model, root) as disk:
                # As after the first start that is learned from a device.
                run(programs / "headstart", "doctor", "--reprobe")
                for workload in chosen:
                    mine = {arm: packs[workload.name, arm] for arm in ARMS}
                    cell = measure(programs / "headstart", disk, workload, mine, args)
                    result["cells"].append(cell)
                    write(args.out, joined(args.out, result, place))
                    print(f"{model:10} {workload.name:12} {cell['plain']['median_s']:.3f} s, "
                          f"{cell['exact']['median_s']:.3f} s: {cell['ratio']:.3f}",
                          file=sys.stderr)
    return 0


def place(cell):
    """What there is one cell of."""
    return cell["model"], cell["workload"]


def measure(headstart, disk, workload, packs, args):
    """Pairs of starts of one workload on one disk."""
    order = random.Random(f"{args.seed} {workload.name} {disk.model}")
    found = {arm: [] for arm in ARMS}
    for _ in range(args.pairs):
        for arm in order.sample(ARMS, len(ARMS)):
            found[arm].append(start(headstart, disk, workload, packs[arm]))
    ratios = sorted(e["s"] / p["s"] for p, e in zip(found["plain"], found["exact"], strict=True))
    cell = {"workload": workload.name, "title": workload.title, "model": disk.model,
            "pairs": args.pairs, "ratio": round(statistics.median(ratios), 4),
            "least": round(ratios[0], 4), "most": round(ratios[-1], 4)}
    for arm in ARMS:
        shown = json.loads(run(headstart, "show", "--json", packs[arm], capture=True))
        cell[arm] = {
            "median_s": round(statistics.median(one["s"] for one in found[arm]), 4),
            "read_bytes": statistics.median(one["bytes"] for one in found[arm]),
            "read_requests": statistics.median(one["requests"] for one in found[arm]),
            "pack_bytes": sum(r["length"] for file in shown["files"] for r in file["ranges"]),
        }
    return cell


def start(headstart, disk, workload, pack, cold=True):
    """One start, without headstart if there is no pack, and what was read from the disk."""
    wait_for_helpers(headstart)
    if cold:
        disk.empty()
    disk.counted(reset=True)
    through = [headstart, "run", "--no-learn", "--pack", pack, "--"] if pack else []
    command = [*through, *disk.command(workload.start)]
    began = time.monotonic()
    child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    # A start that hangs ends, and is Trouble then.
    late = threading.Timer(TIMEOUT_S, child.kill)
    late.start()
    try:
        ready = workload.ready.partition(":")[2]
        if ready:
            if not any(ready in line for line in child.stdout):
                raise Trouble(f"{workload.name} ended before it was ready")
            took = time.monotonic() - began
            child.terminate()
        child.communicate()
        if not ready:
            took = time.monotonic() - began
            if child.returncode:
                raise Trouble(f"{workload.name} ended with status {child.returncode}")
    finally:
        late.cancel()
        if child.poll() is None:
            child.terminate()
            child.wait()
    return {"s": took, **disk.read_since_reset()}


if __name__ == "__main__":
    main(benchmark)
