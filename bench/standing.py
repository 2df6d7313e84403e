#!/usr/bin/env python3
"""The standing benchmark: starts of real programs from modelled disks.

Measures each workload on each disk cold, with headstart, hot and at the floor, and
with every installed peer, all in the same rounds; see bench/README.md. Needs
root. Condensed results go to bench/results/standing.json after each cell, where each
replaces that of an earlier run on this machine, so that it can be run in parts;
bench/tables.py makes the tables of doc/performance.md from them.
"""

import argparse
import datetime
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lib import image, peers
from lib.alone import alone
from lib.cell import Bench, measure
from lib.choice import add_choice
from lib.disk import Programs
from lib.run import Trouble, run
from lib.workloads import WORKLOADS
from measured import main, needs_root

HERE = Path(__file__).resolve().parent
SCHEMA = "headstart-bench/standing/2"
# The disks and their shares of the time. Programs are learned on the fastest. Then the
# slowest come first: what they take beyond that is known while there is time left.
MODELS = {"nvme": 0.4, "hdd": 1.5, "cloud-lazy": 1.6, "cloud": 1, "emmc": 0.8, "sata-ssd": 0.5}
SMOKE_MODELS = ("emmc", "cloud-lazy")
# Cells of machines that differ in these can't stand in one table.
MACHINE = ("schema", "kernel", "cpu", "cpus", "memory_bytes")


def benchmark():
    """Runs the benchmark."""
    args = arguments()
    needs_root("Modelled disks and cold caches need root")
    alone()
    if args.build:
        image.image(args.cache, chosen(args), tell)
        return
    with tempfile.TemporaryDirectory(prefix="headstart-smoke-") as scratch:
        if args.smoke:
            args.results = Path(scratch) / "standing.json"
        document = standing(args)
        if args.smoke:
            check_sanity(document)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_choice(parser, MODELS, list(MODELS))
    add = parser.add_argument
    add("--rounds", type=int, default=20, metavar="N", help="rounds of a cell at most")
    add("--minutes", type=float, default=75, metavar="M",
        help="to aim at for everything, the image included; at least 3 rounds are made of "
             "each cell, 2 where one takes a minute")
    add("--no-peers", action="store_true", help="headstart alone")
    add("--against", action="append", default=[], type=peers.named, metavar="NAME=CMD",
        help="one more peer; NAME&=CMD runs in parallel with the program; {list} {list0} {mount} {pack}")
    add("--resume", action="store_true",
        help="do not measure again what was at this commit")
    add("--smoke", action="store_true",
        help="python on two disks, to see that it works; keeps no results")
    add("--build", action="store_true", help="build the image and measure nothing")
    add("--results", type=Path, default=HERE / "results/standing.json", metavar="FILE")
    args = parser.parse_args()
    if args.smoke:
        args.workloads, args.models, args.rounds, args.minutes = ["python"], SMOKE_MODELS, 2, 1
    return args


def chosen(args):
    """The workloads to measure."""
    return [w for w in WORKLOADS if w.name in args.workloads]


def standing(args):
    """Measures all cells; the document with the results."""
    began = time.monotonic()
    programs = binaries(args.bin)
    workloads = chosen(args)
    folder = args.cache / ("smoke" if args.smoke else "runs")
    folder.mkdir(parents=True, exist_ok=True)
    rivals = args.against if args.no_peers else (args.against + peers.standing(tell))
    if args.smoke:
        rivals = [peer for peer in rivals if peer.how == "before"]
    document = about(workloads, args.models, rivals)
    if args.results.exists():
        take_over(document, json.loads(args.results.read_text()))
    done = {key(cell) for cell in document["cells"]
            if args.resume and cell["commit"] == commit()}
    if not done:
        for old in folder.glob("*.pack"):
            old.unlink()
    root = image.image(args.cache, workloads, tell)
    bench = Bench(programs / "headstart", folder, rivals, args.rounds)
    todo = [(m, w) for m in args.models for w in workloads if (m, w.name) not in done]
    for model in args.models:
        mine = [w for m, w in todo if m == model]
        if not mine:
            continue
        with Programs(programs / "slowdisk", model, root) as disk:
            for workload in mine:
                left = 60 * args.minutes - (time.monotonic() - began)
                shares = sum(MODELS[m] for m, _ in todo)
                cell = measure(bench, disk, workload, left * MODELS[model] / shares)
                todo.remove((model, workload))
                cell |= {"commit": commit(), "date": today()}
                document["cells"] = [c for c in document["cells"] if key(c) != key(cell)] + [cell]
                keep(document, args.results)
                tell(line(cell))
    tell(f"{len(document['cells'])} cells, {(time.monotonic() - began) / 60:.0f} minutes: "
         f"{args.results}")
    return document


def take_over(document, old):
    """Takes over the cells of an earlier run on this machine, and what they are about."""
    if any(old.get(what) != document[what] for what in MACHINE):
        return
    document["cells"] = old["cells"]
    for what, order in (("workloads", [w.name for w in WORKLOADS]), ("models", list(MODELS))):
        name = (lambda entry: entry["name"]) if what == "workloads" else str
        known = {name(entry): entry for entry in old[what] + document[what]}
        document[what] = [known[n] for n in order if n in known]
    peers = {peer["name"]: peer for peer in old["peers"] + document["peers"]}
    document["peers"] = list(peers.values())


def key(cell):
    """What there is one cell of."""
    return cell["model"], cell["workload"]


def binaries(given):
    """The directory with headstart and slowdisk, built from what is here."""
    if given is None:
        given = HERE.parent / "target/release"
        if shutil.which("cargo"):
            run(HERE.parent / "build.sh", "--quiet")
            run("cargo", "build", "--quiet", "--release", "--locked", "-p", "slowdisk",
                cwd=HERE.parent)
    for name in ("headstart", "slowdisk"):
        if not (given / name).exists():
            raise Trouble(f"{given / name} is missing; ./build.sh, or give --bin")
    return given.resolve()


def about(chosen, models, rivals):
    """What is known before anything is measured."""
    cpu = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    return {
        "schema": SCHEMA,
        "kernel": platform.release(),
        "cpu": cpu[0] if cpu else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "models": list(models),
        "workloads": [{"name": w.name, "title": w.title} for w in chosen],
        "peers": [{"name": p.name, "how": p.how} for p in rivals],
        "cells": [],
    }


def today():
    """The date."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


@functools.cache
def commit():
    """The commit that is measured; ends with -dirty when what it builds from differs."""
    def git(*words):
        done = subprocess.run(["git", "-c", "safe.directory=*", *words], cwd=HERE,
                              capture_output=True, text=True, check=False)
        return done.stdout.strip()
    if not shutil.which("git"):
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--",
                  "../crates", "../Cargo.lock", ".", ":!results")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-dirty" if changed else "")


def keep(document, path):
    """Writes the results, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(path)


def line(cell):
    """A cell in one line."""
    def seconds(name):
        arm = cell["arms"].get(name)
        return f"{name} {arm['median_s']:.3g} s" if arm else f"{name} –"
    parts = [seconds(name) for name in ("cold", "prefetched", "hot", "floor")]
    if cell["limit"]:
        parts.append(f"{cell['limit']['ratio']:.2f} x limit")
    rivals = {name: arm for name, arm in cell["arms"].items()
              if name not in ("cold", "prefetched", "hot", "floor")}
    if rivals:
        best = min(rivals, key=lambda name: rivals[name]["median_s"])
        parts.append(f"best peer {best} {rivals[best]['median_s']:.3g} s")
    return (f"{cell['model']:<10} {cell['workload']:<11} n={cell['rounds']:<2} "
            + "; ".join(parts) + f" ({cell['took_s']:.0f} s)")


def check_sanity(document):
    """What must hold of any result, or nothing was measured."""
    for cell in document["cells"]:
        where, arms = f"{cell['workload']} on {cell['model']}", cell["arms"]
        cold, ahead, hot = arms["cold"], arms["prefetched"], arms["hot"]
        for claim, holds in (
            ("each state has all rounds", {a["n"] for a in arms.values()} == {cell["rounds"]}),
            ("a cold start reads", cold["read_requests"] > 50),
            ("a hot start does not", hot["read_bytes"] < 0.05 * cold["read_bytes"]),
            ("headstart is faster than a cold start", ahead["median_s"] < cold["median_s"]),
            ("it leaves fewer major faults", ahead["major_faults"] < cold["major_faults"]),
        ):
            if not holds:
                raise Trouble(f"{where}: it should hold that {claim}; it does not: {arms}")


def tell(text):
    """Says how it goes."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(benchmark, "; --resume goes on from here")
