#!/usr/bin/env python3
"""Boots of a whole Debian in virtual time; see bench/boot/README.md.

    virtual.py build                            builds the guest and all that it needs
    virtual.py boot --model hdd --arm headstart one boot of a machine that remembers
    virtual.py bench                            all arms on four disks, a quarter of an hour
    virtual.py hardship                         upgrades, power cuts, broken machines
    virtual.py roots                            other root file systems and initramfs makers
    virtual.py --smoke                          is the same boot as long twice?

Needs root for the images.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lib.alone import alone  # noqa: E402
from lib.run import Trouble  # noqa: E402
from measured import RESULTS, about, joined, main, needs_root, write  # noqa: E402
from rig import hardship, kernel, machine, matrix, models, roots, virtual  # noqa: E402
from rig.guest import guest  # noqa: E402

SCHEMA = "headstart-bench/boot-virtual/1"
ARMS = ("none", "headstart", "no-delay")
CACHE = Path.home() / ".cache/headstart-bench"


def boots():
    """Does what the command line says; the exit status."""
    args = arguments()
    needs_root("Images are mounted")
    machine.needs()
    alone()
    args.cache.mkdir(parents=True, exist_ok=True)
    if args.smoke:
        return smoke(args)
    return {"build": built, "boot": boot, "bench": bench,
            "hardship": endure, "roots": rooted}[args.verb](args)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("verb", nargs="?", choices=("build", "boot", "bench", "hardship", "roots"),
        help="what to do")
    add("--smoke", action="store_true", help="boot twice and compare; keeps no results")
    add("--model", default="hdd", choices=models.names(), help="the disk [default: hdd]")
    add("--arm", default="none", choices=ARMS,
        help="without headstart, with it, or without it from a disk without delay")
    add("--machine", metavar="NAME",
        help="which machine boots; it is made if it does not exist [default: one for each arm, "
             "for hardship one that is forgotten]")
    add("--fresh", action="store_true", help="forget that machine first")
    add("--discard", action="store_true", help="let the machine forget this boot")
    add("--prepare", metavar="SH", help="a command for the root directory of a new machine")
    add("--append", action="append", default=[], metavar="WORD",
        help="an additional word of the kernel's command line")
    add("--headstart", type=Path, metavar="FILE",
        help="a static headstart [default: it is built]")
    add("--console", type=Path, metavar="FILE",
        help="write what the console said; for roots a directory")
    add("--json", action="store_true", help="print all figures as JSON")
    add("--models", default="hdd,cloud-lazy,emmc,sata-ssd", metavar="A,B",
        help="for bench: %(default)s")
    add("--boots", type=int, default=3, metavar="N", help="for bench: of each arm [default: 3]")
    add("--only", metavar="A,B",
        help=f"for hardship: {','.join(hardship.PARTS)}; for roots: {','.join(roots.names())}")
    add("--out", type=Path, metavar="FILE",
        help="for bench, hardship and roots [default: in bench/results]")
    add("--cache", type=Path, default=CACHE, metavar="DIR", help="for images")
    args = parser.parse_args()
    if not args.smoke and not args.verb:
        parser.error("say build, boot, bench or --smoke")
    return args


def built(args):
    """Builds everything a boot needs."""
    found = guest(args.cache, tell)
    for path in (found.image, kernel.vmlinux(found.kit), kernel.module(found.kit)):
        print(path)
    return 0


def boot(args):
    """One boot."""
    headstart = machine.static(args.headstart) if args.arm == "headstart" else None
    name = args.machine or args.arm
    one = machine.Machine(guest(args.cache, tell), args.cache, name, headstart)
    if args.fresh:
        one.forget()
    one.create(args.prepare)
    booted = one.boot(None if args.arm == "no-delay" else args.model, args.append,
                      not args.discard)
    if args.console:
        args.console.write_text(booted.console)
    if args.json:
        json.dump({"schema": "headstart-bench/boot/1", "model": args.model, "arm": args.arm,
                   "wall_s": round(booted.wall_s, 1)} | asdict(booted.report), sys.stdout, indent=1)
        print()
    else:
        print(line(args.model, args.arm, booted))
    return 0


def bench(args):
    """All arms on all disks."""
    headstart = machine.static(args.headstart)
    found = matrix.measure(
        guest(args.cache, tell), args.cache, headstart, args.models.split(","), args.boots, tell)
    out = args.out or RESULTS / "boot-virtual.json"
    document = joined(out, about(SCHEMA, headstart) | found, lambda cell: cell["model"])
    write(out, document | {"bootperf": matrix.chart(document["cells"])})
    return 0


def endure(args):
    """Fault injection; 3 when a condition does not hold."""
    only = chosen(args.only, hardship.PARTS)
    headstart = machine.static(args.headstart)
    found = hardship.measure(guest(args.cache, tell), args.cache, headstart, args.model, only,
                              args.machine, tell)
    write(args.out or RESULTS / "boot-hardship.json",
          about("headstart-bench/boot-hardship/1", headstart) | found)
    wrong = list(hardship.wrong(found))
    for what in wrong:
        tell(f"virtual.py: {what}")
    return 3 if wrong else 0


def rooted(args):
    """Boots from other roots; 3 when one is not learned, not prefetched, or slower with it."""
    only = chosen(args.only, roots.names())
    headstart = machine.static(args.headstart)
    if args.console:
        args.console.mkdir(exist_ok=True)
    cells = roots.measure(guest(args.cache, tell), args.cache, headstart, args.model, only,
                          args.console, tell)
    out = args.out or RESULTS / "boot-roots.json"
    found = about("headstart-bench/boot-roots/1", headstart) | {
        "cells": [{"model": args.model} | cell for cell in cells]}
    write(out, joined(out, found, lambda cell: (cell["model"], cell["root"])))
    return 3 if any(cell["wrong"] for cell in cells) else 0


def chosen(only, names):
    """Which of these are wanted; all unless it is said."""
    wanted = only.split(",") if only else list(names)
    if unknown := set(wanted) - set(names):
        raise Trouble(f"there is no {unknown.pop()}; there are {', '.join(names)}")
    return wanted


def smoke(args):
    """Boots twice from a slow disk, which must take as long to the microsecond."""
    found = guest(args.cache, tell)
    kernel.module(found.kit)
    kernel.vmlinux(found.kit)
    one = machine.Machine(found, args.cache, "smoke")
    one.image = found.image
    with virtual.several() as pool:
        boots = list(pool.map(lambda _: one.boot("emmc", keep=False), range(2)))
    for booted in boots:
        print(line("emmc", "none", booted))
        if booted.report.failed:
            raise Trouble(f"these units failed: {' '.join(booted.report.failed)}")
        if booted.report.disk.get("requests", 0) < 1000:
            raise Trouble("the boot hardly read anything from the modelled disk: "
                          f"{booted.report.disk}")
    first, second = (booted.report for booted in boots)
    if first != second:
        raise Trouble(f"the same boot was not the same twice: {first}, {second}")
    return 0


def line(model, arm, booted):
    """A boot in one line."""
    r = booted.report
    requests = f"{r.disk.get('requests', 0)} requests, {r.disk.get('bytes', 0) / 1e6:.1f} MB"
    return (f"{model} {arm}: multi-user {r.multi_user_us} us after the kernel's start, "
            f"userspace at {r.userspace_us} us; {requests if r.disk.get('requests') else 'no delay'}; "
            f"{r.state}; {booted.wall_s:.0f} s of real time")


def tell(text):
    """Says how it goes."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(boots)
