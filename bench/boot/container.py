#!/usr/bin/env python3
"""How long does a container's systemd take to multi-user.target, from a slow disk?

Boots a Debian with NetworkManager, nginx, CUPS, Avahi, sshd and rsyslog in
systemd-nspawn, at native speed: cold, cold with headstart in front of systemd-nspawn,
and hot, in random order; see bench/boot/README.md. Needs root.

With --other, instead of that, boots through this build of headstart and another one, in
random order in each pair. With --layout the image is laid out for what its boots read before.
"""

import argparse
import functools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lib.alone import alone  # noqa: E402
from lib.bound import in_order, touches  # noqa: E402
from lib.disk import Disk  # noqa: E402
from lib.reclaim import Watch  # noqa: E402
from lib.run import Trouble, run  # noqa: E402
from measured import (BUILT, RESULTS, about, joined, main, needs_root, ratio_of,  # noqa: E402
                      spread, tool, write)
from rig import bootperf, container  # noqa: E402
from rig.guest import guest  # noqa: E402

SCHEMA = "headstart-bench/boot-container/1"
MODELS = ("hdd", "cloud-lazy", "emmc", "sata-ssd")
ARMS = ("cold", "headstart", "hot", "floor")
# Starts that are learned before anything is measured.
LEARNED = 2
# A fast disk that keeps what is written, where an image is learned before it is laid out.
FAST = "sata-ssd"
# A boot that reads less than that was not cold.
COLD_REQUESTS = 800


class Containers(Disk):
    """A disk that containers are booted from."""

    name = "headstart-containers"


def containers():
    """Runs the benchmark."""
    args = arguments()
    needs_root("Modelled disks and containers need root")
    alone()
    document = about(SCHEMA, args.bin / "headstart") | {"cells": []}
    image = guest(args.cache, tell).image
    for model in args.models:
        cell = (compare if args.other else measure)(args, model, image)
        document["cells"].append(cell)
        if not args.smoke:
            found = joined(args.out, document, lambda cell: (cell["model"], cell.get("layout", False)))
            write(args.out, found if args.other else found | {"bootperf": chart(found["cells"])})


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--models", default=",".join(MODELS), metavar="A,B", help=", ".join(MODELS))
    add("--rounds", type=int, default=10, metavar="N", help="boots of each arm [default: 10]")
    add("--smoke", action="store_true",
        help="two rounds on two disks, to see that it works; keeps no results")
    add("--other", metavar="FILE", help="compare with this build; results are in boot-builds.json")
    add("--details", type=Path, metavar="DIR",
        help="keep packs, and what headstart says of each boot, there")
    add("--layout", action="store_true", help="lay the image out for its boots before")
    add("--options", default="", metavar="WORDS", help="for `headstart run`, in addition to its own")
    add("--bin", type=Path, default=BUILT, help="where headstart and slowdisk are")
    add("--cache", type=Path, default=Path.home() / ".cache/headstart-bench", metavar="DIR",
        help="for images")
    add("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.models = args.models.split(",")
    args.out = args.out or RESULTS / f"boot-{'builds' if args.other else 'container'}.json"
    if args.smoke:
        args.models, args.rounds = ["emmc", "cloud-lazy"], 2
    for name in ("headstart", "slowdisk"):
        if not (args.bin / name).exists():
            parser.error(f"{args.bin / name} is missing; run ./build.sh")
    if args.other:
        args.other = tool(args.other, "--other FILE")
    return args


def measure(args, model, image):
    """Boots from a disk of this model; the figures of its arms."""
    with tempfile.TemporaryDirectory(prefix="boot-container-") as scratch:
        folder = (args.details or Path(scratch)) / model
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if args.layout:
            image = laid_out(args, model, image, folder)
        return booted_from(args, model, image, folder)


def laid_out(args, model, image, folder):
    """A copy of the image that is laid out for its boots, and released; the pack is in the folder."""
    headstart, after = args.bin / "headstart", folder / "image"
    run("cp", "--sparse=always", image, after)
    with Containers(args.bin / "slowdisk", FAST, after, keep=True) as disk:
        bench = Boots(headstart, args.options.split(), disk, folder)
        for number in range(LEARNED):
            bench.headstart(f"before-{number + 1}")
    with Containers(args.bin / "slowdisk", model, after, keep=True) as disk:
        packs = {"HEADSTART_PACKS": str(folder)}
        run(headstart, "doctor", "--reprobe", env=os.environ | packs)
        run(headstart, "layout", "apply", "--force", "--on", disk.mount, next(folder.glob("*.pack")),
            env=os.environ | packs)
        run(headstart, "layout", "release", disk.mount)
    return after


def booted_from(args, model, image, folder):
    """The figures of boots from this image."""
    watch = Watch(Containers.name, args.bin / "headstart")
    with Containers(args.bin / "slowdisk", model, image) as disk, watch as disk.watch:
        bench = Boots(args.bin / "headstart", args.options.split(), disk, folder)
        for number in range(LEARNED):
            last = bench.headstart(f"learn-{number + 1}")
        found = {arm: [] for arm in ARMS}
        for number in range(args.rounds):
            order = random.sample(ARMS, len(ARMS))
            for arm in order:
                boot = functools.partial(getattr(bench, arm), f"{arm}-{number + 1}")
                # A cold boot takes so long that many would be repeated, and the journal grows by each.
                found[arm].append(boot() if arm == "cold" else disk.watch.undisturbed(boot))
                if arm == "headstart" and "--no-learn" not in bench.options:
                    last = found[arm][-1]
        cell = {"model": model, "rounds": args.rounds, "learned": LEARNED, "layout": args.layout,
                **disk.watch.told(), "arms": {arm: figures(runs) for arm, runs in found.items()}}
        cell["bound_s"] = round(bench.bound(cell["arms"], last["seconds"]), 4)
        cell["bandwidth_mb_s"] = disk.bandwidth()
        tell(line(cell))
        check(cell)
        return cell


def compare(args, model, image):
    """Boots through two builds, each with what it learned itself; their ratio."""
    watch = Watch(Containers.name, args.bin / "headstart")
    with Containers(args.bin / "slowdisk", model, image) as disk, watch as disk.watch, \
            tempfile.TemporaryDirectory(prefix="boot-container-") as scratch:
        builds, pairs = {}, []
        for name, program in (("own", args.bin / "headstart"), ("other", args.other)):
            folder = Path(scratch) / name
            folder.mkdir()
            builds[name] = Boots(program, args.options.split(), disk, folder)
            for number in range(LEARNED):
                builds[name].headstart(f"learn-{number + 1}")
        for number in range(args.rounds):
            boots = {name: functools.partial(build.headstart, f"{number + 1}") for name, build in builds.items()}
            pairs.append({name: disk.watch.undisturbed(boots[name])["seconds"]
                          for name in random.sample(sorted(builds), 2)})
    medians = {name: statistics.median(pair[name] for pair in pairs) for name in builds}
    cell = {"model": model, "n": len(pairs), **disk.watch.told(), "own_s": round(medians["own"], 4),
            "other_s": round(medians["other"], 4), **ratio_of(pairs, "own", "other")}
    tell(f"{model:<10} n={cell['n']}: {cell['own_s']:.3f} s, other {cell['other_s']:.3f} s, "
         f"{cell['ratio']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]")
    return cell


class Boots:
    """The arms on one disk. Each returns the seconds and what was read."""

    def __init__(self, headstart, options, disk, folder):
        self.program, self.disk, self.folder = headstart, disk, folder
        self.options = options
        self.env = os.environ | {"HEADSTART_PACKS": str(folder)}

    def cold(self, _name):
        """Without headstart."""
        self.forget()
        return self.booted()

    def headstart(self, name):
        """With headstart, which goes on learning."""
        self.forget()
        return self.booted([self.program, "run", "--for", "60s", "--json",
                            self.folder / f"{name}.json", *self.options, "--"])

    def hot(self, _name):
        """A hot boot: a boot after a boot."""
        container.boot(self.disk.mount)
        self.disk.counted(reset=True)
        return self.booted()

    def floor(self, _name):
        """The replay alone."""
        pack = next(self.folder.glob("*.pack"))
        self.forget()
        began = time.monotonic()
        # With the model of the disk, which is beside the packs.
        run(self.program, "replay", "--quiet", "--wait", pack, env=self.env)
        return self.counts(time.monotonic() - began)

    def bound(self, arms, learned_s):
        """The lower bound in touch order, by the touches of the boot that was learned last."""
        pack = next(self.folder.glob("*.pack"))
        shown = json.loads(run(self.program, "show", "--json", pack, capture=True))
        floor, hot = (arms[arm]["seconds"]["median"] for arm in ("floor", "hot"))
        return in_order(shown, floor, hot, touches(shown, learned_s))

    def booted(self, before=()):
        """Boots, and says how long multi-user.target took."""
        return self.counts(container.boot(self.disk.mount, before, self.env).multi_user_us / 1e6)

    def forget(self):
        """Empties the disk's cache and its counters."""
        self.disk.empty()
        self.disk.counted(reset=True)

    def counts(self, seconds):
        """The figures of a boot."""
        return {"seconds": seconds} | self.disk.read_since_reset()


def figures(runs):
    """What is said of the runs of an arm."""
    return {"seconds": spread([r["seconds"] for r in runs])
            | {"values": [round(r["seconds"], 4) for r in runs]},
            "read_requests": spread([r["requests"] for r in runs]),
            "read_bytes": spread([r["bytes"] for r in runs]),
            # Of a boot that is until the container has turned itself off.
            "disk_s": spread([round(r["disk_s"], 4) for r in runs])}


def check(cell):
    """What must hold, or nothing was measured."""
    arms = cell["arms"]
    for claim, holds in (
        ("a cold boot reads", arms["cold"]["read_requests"]["min"] > COLD_REQUESTS),
        ("a boot with headstart reads as much",
         arms["headstart"]["read_bytes"]["min"] > 0.8 * arms["cold"]["read_bytes"]["median"]),
        ("a hot boot does not",
         arms["hot"]["read_bytes"]["max"] < 0.05 * arms["cold"]["read_bytes"]["median"]),
        ("headstart makes a boot faster",
         arms["headstart"]["seconds"]["median"] < arms["cold"]["seconds"]["median"]),
    ):
        if not holds:
            raise Trouble(f"on {cell['model']} it should hold that {claim}; it does not: {arms}")


def line(cell):
    """A cell in one line."""
    parts = [f"{arm} {cell['arms'][arm]['seconds']['median']:.3f} s" for arm in ARMS]
    floor = cell["arms"]["floor"]
    bytes_s = floor["read_bytes"]["median"] / 1e6 / cell["bandwidth_mb_s"]
    parts.append(f"its disk time {floor['disk_s']['median']:.3f} s, {floor['disk_s']['median'] / bytes_s:.3f} times "
                 f"its bytes at {cell['bandwidth_mb_s']} MB/s")
    cold = cell["arms"]["cold"]
    return (f"{cell['model']:<10} n={cell['rounds']}: {', '.join(parts)}, bound "
            f"{cell['bound_s']:.3f} s; cold reads "
            f"{cold['read_requests']['median']:.0f} requests, "
            f"{cold['read_bytes']['median'] / 1e6:.1f} MB")


def chart(cells):
    """The times in the form of other boot benchmarks."""
    return bootperf.chart({"seconds_start_to_multi_user": {
        f"{cell['model']}-{arm}": cell["arms"][arm]["seconds"]["values"]
        for cell in cells for arm in ARMS if arm != "floor" and not cell.get("layout")}})


def tell(text):
    """Says how it goes."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(containers)
