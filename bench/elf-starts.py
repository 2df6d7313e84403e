#!/usr/bin/env python3
"""How much sooner do programs start whose relocations are packed?

Takes the image of the workloads, and a copy of it in which `headstart elf repack` packed the
relocations of all programs and libraries. Each is on a modelled disk of its own. Starts from
both, in random order in each pair:

    cold       without headstart, from a cold cache
    headstart  the same through `headstart run`, with packs of its own for either image
    hot        with all that the start reads in memory

For each it tells the medians, the ratio of the pairs with the interval of its median, of 95 %,
and the bytes and requests that a start reads. A hot start reads no disk, so the first model is
the only one with hot starts.

Usage: sudo bench/elf-starts.py [--workloads A,B] [--models A,B] [--arms A,B] [--pairs N] [OPTION…]
"""
import contextlib
import random
import statistics
from pathlib import Path

from harm import Starts, own_starts
from lib import image
from lib.alone import alone
from lib.choice import add_choice, listed
from lib.disk import Programs
from lib.run import run
from lib.workloads import WORKLOADS
from measured import RESULTS, about, command_line, joined, main, needs_root, ratio_of, write
from standing import binaries

ARMS = ("cold", "headstart", "hot")
IMAGES = ("plain", "packed")


class PlainPrograms(Programs):
    """The disk of the image as it was installed."""

    name = "headstart-elf-plain"


class PackedPrograms(Programs):
    """The disk of the image with packed relocations."""

    name = "headstart-elf-packed"


def arguments():
    parser = command_line(__doc__)
    add_choice(parser, ("cloud", "hdd", "cloud-lazy", "emmc", "nvme"), ["cloud", "hdd"],
               workloads=["chromium", "clang"])
    add = parser.add_argument
    add("--arms", type=listed(ARMS), default=list(ARMS), metavar="A,B", help=", ".join(ARMS))
    add("--pairs", type=int, default=20, metavar="N")
    add("--seed", type=int, default=1)
    add("--results", type=Path, default=RESULTS / "elf-starts.json", metavar="FILE")
    return parser.parse_args()


def packed_image(plain, headstart):
    """A copy of an image whose programs and libraries are repacked; made unless it is there."""
    path = plain.with_name(f"{plain.stem}-packed.img")
    if path.exists():
        return path
    draft, root = path.with_suffix(".draft"), path.with_suffix(".root")
    root.mkdir()
    try:
        run("cp", "--sparse=always", plain, draft)
        run("mount", "-o", "loop,noatime", draft, root)
        said = run(headstart, "elf", "repack", "--system", "--in-place", "--packaged",
                   "--root", root, capture=True)
        print(said.strip().splitlines()[-1], flush=True)
        image.unmount(root)
        draft.rename(path)
    finally:
        image.unmount(root)
        draft.unlink(missing_ok=True)
        root.rmdir()
    return path


def compare():
    options = arguments()
    needs_root("Modelled disks and cold caches need root")
    alone()
    programs = binaries(options.bin)
    headstart = programs / "headstart"
    workloads = [w for w in WORKLOADS if w.name in options.workloads]
    plain = image.image(options.cache, workloads, lambda text: print(text, flush=True))
    images = dict(zip(IMAGES, (plain, packed_image(plain, headstart)), strict=True))
    for model in options.models:
        with contextlib.ExitStack() as stack:
            starts = {}
            for name, kind in zip(IMAGES, (PlainPrograms, PackedPrograms), strict=True):
                disk = stack.enter_context(kind(programs / "slowdisk", model, images[name]))
                starts[name] = stack.enter_context(
                    own_starts(Starts, headstart, options.cache / f"elf-starts-{name}", disk))
            for workload in workloads:
                if "headstart" in options.arms:
                    for each in starts.values():
                        each.learn(workload)
                for arm in options.arms:
                    if arm == "hot" and model != options.models[0]:
                        continue
                    rng = random.Random(f"{options.seed} {model} {workload.name} {arm}")
                    cell = measured(starts, workload, arm, options.pairs, rng)
                    print(line(cell), flush=True)
                    document = about("headstart/elf-starts/1", headstart) | {"cells": [cell]}
                    write(options.results, joined(
                        options.results, document, lambda c: (c["workload"], c["model"], c["arm"])))
    return 0


def measured(starts, workload, arm, pairs, rng):
    """One arm of a workload on both disks."""
    times, reads = [], {name: [] for name in starts}
    if arm == "hot":
        for each in starts.values():
            each.timed(workload, helped=False)
            each.timed(workload, helped=False, cold=False)
    for _ in range(pairs):
        pair = {}
        for name in rng.sample(IMAGES, 2):
            each = starts[name]
            if arm != "hot":
                each.cool()
                each.disk.counted(reset=True)
            pair[name] = each.timed(workload, helped=arm == "headstart", cold=False)
            if arm != "hot":
                reads[name].append(each.disk.counted()["reads"])
        times.append(pair)
    cell = {"workload": workload.name, "model": starts["plain"].disk.model, "arm": arm,
            "n": pairs, **ratio_of(times, "packed", "plain"),
            "pairs": [[round(pair[name], 4) for name in IMAGES] for pair in times]}
    for name in IMAGES:
        cell[name] = {"s": round(statistics.median(pair[name] for pair in times), 4)}
        for count in ("bytes", "requests") if arm != "hot" else ():
            cell[name][count] = round(statistics.median(read[count] for read in reads[name]))
    return cell


def line(cell):
    """A cell in one line."""
    def text(name):
        found = cell[name]
        read = f" ({found['bytes'] / 1e6:.1f} MB, {found['requests']} requests)" if "bytes" in found else ""
        return f"{name} {found['s']:.3f} s{read}"
    return (f"{cell['model']:<6} {cell['workload']:<8} {cell['arm']:<9} n={cell['n']} "
            f"{text('plain')}, {text('packed')}: {cell['ratio']:.3f} "
            f"[{cell['low']:.3f}, {cell['high']:.3f}]")


if __name__ == "__main__":
    main(compare)
