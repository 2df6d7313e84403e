#!/usr/bin/env python3
"""What does a layout gain on a modelled hard disk?

Each workload is learned once, on nvme. A copy of the root image is laid out for its pack and released.
Then it is started cold from either image, without headstart and with its pack prefetched, in random
order; nothing is learned. An image comes up again for each of its turns.

Usage: bench/layout.py [--workloads A,B] [--models A,B] [--pairs N] [--out FILE]
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from exact import start
from lib import image
from lib.alone import alone
from lib.choice import add_choice
from lib.disk import Programs
from lib.image import unmount
from lib.learn import learn
from lib.run import run
from lib.workloads import WORKLOADS
from measured import RESULTS, about, command_line, joined, main, needs_root, write
from standing import MODELS, binaries

ARMS = ("before", "after")
HOW = ("alone", "prefetched")


def arguments():
    """The command line."""
    parser = command_line(__doc__)
    add_choice(parser, [model for model in MODELS if model != "nvme"], ["hdd"])
    add = parser.add_argument
    add("--pairs", type=int, default=10, metavar="N", help="[default: 10]")
    add("--seed", type=int, default=1)
    add("--out", type=Path, default=RESULTS / "layout.json")
    return parser.parse_args()


def benchmark():
    """Measures; the exit status."""
    args = arguments()
    needs_root("Modelled disks and cold caches need root")
    alone()
    programs = binaries(args.bin)
    headstart, slowdisk = programs / "headstart", programs / "slowdisk"
    chosen = [w for w in WORKLOADS if w.name in args.workloads]
    root = image.image(args.cache, chosen, lambda text: print(text, file=sys.stderr))
    result = about("headstart-bench/layout/1", str(headstart)) | {"cells": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HEADSTART_PACKS"] = folder
        for workload in chosen:
            pack = Path(folder) / f"{workload.name}.pack"
            with Programs(slowdisk, "nvme", root) as disk:
                learn(headstart, disk, workload, pack, exact=True)
                where = disk.mount
            laid = Path(folder) / "laid.img"
            run("cp", "--sparse=always", root, laid)
            moved = lay_out(headstart, laid, where, pack)
            for model in args.models:
                disks = {arm: (slowdisk, model, path)
                         for arm, path in zip(ARMS, (root, laid), strict=True)}
                cell = measure(headstart, disks, workload, pack, args) | {"layout": moved}
                result["cells"].append(cell | {"model": model})
                write(args.out, joined(args.out, result, place))
                print(f"{model:6} {workload.name:12} " + ", ".join(
                    f"{how} {cell[how]['before']['median_s']:.3f} -> "
                    f"{cell[how]['after']['median_s']:.3f} s ({cell[how]['ratio']:.3f})"
                    for how in HOW), file=sys.stderr)
    return 0


def place(cell):
    """What there is one cell of."""
    return cell["model"], cell["workload"]


def lay_out(headstart, path, where, pack):
    """Lays an image out for a pack, where the pack knows its files; what `layout plan` said before."""
    where.mkdir(parents=True)
    try:
        run("mount", "-o", "loop,noatime", path, where)
        # A start through headstart also reads some files of the machine's own disk.
        only = ["--on", where, pack]
        words = [headstart, "layout", "plan", "--json", *only]
        # Without a model of this device no gain is expected.
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        plan = json.loads(done.stdout)["file_systems"][0]
        run(headstart, "layout", "apply", "--force", *only)
        run(headstart, "layout", "release", where)
    finally:
        unmount(where)
        where.rmdir()
        where.parent.rmdir()
    skipped = len(plan.pop("skipped"))
    return {key: plan[key] for key in ("files", "ranges", "bytes", "gain")} | {"skipped": skipped}


def measure(headstart, disks, workload, pack, args):
    """Pairs of starts of one workload from the two images."""
    order = random.Random(f"{args.seed} {workload.name}")
    found = {how: {arm: [] for arm in ARMS} for how in HOW}
    for _ in range(args.pairs):
        for arm in order.sample(ARMS, len(ARMS)):
            with Programs(*disks[arm]) as disk:
                # As after the first start that is learned from a device.
                run(headstart, "doctor", "--reprobe")
                for how in order.sample(HOW, len(HOW)):
                    used = pack if how == "prefetched" else None
                    found[how][arm].append(start(headstart, disk, workload, used))
    cell = {"workload": workload.name, "title": workload.title, "pairs": args.pairs,
            "load": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d", time.gmtime())}
    for how, arms in found.items():
        ratios = sorted(a["s"] / b["s"]
                        for b, a in zip(arms["before"], arms["after"], strict=True))
        cell[how] = {"ratio": round(statistics.median(ratios), 4),
                     "least": round(ratios[0], 4), "most": round(ratios[-1], 4)}
        for arm, starts in arms.items():
            cell[how][arm] = {
                "median_s": round(statistics.median(one["s"] for one in starts), 4),
                "read_bytes": statistics.median(one["bytes"] for one in starts),
                "read_requests": statistics.median(one["requests"] for one in starts),
            }
    return cell


if __name__ == "__main__":
    main(benchmark)
