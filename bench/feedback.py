#!/usr/bin/env python3
"""How well does prefetching match a start after three learned ones?

Each workload is learned on a modelled disk in three cold starts, the second and third
of them prefetched. The pages of the next ones are classified:
  late     in the pack, but touched before they were requested, of those touched
  missing  touched, not in the pack, and not resident, of those touched
  wasted   prefetched and not touched, in bytes, of all that was prefetched; with gaps
           also what lies between touched pages and was read to save a request

Usage: bench/feedback.py [--workloads A,B] [--models A,B] [--starts N] [--out FILE]
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lib import image
from lib.alone import alone
from lib.choice import add_choice
from lib.disk import Programs
from lib.learn import ending
from lib.run import run
from lib.workloads import WORKLOADS
from measured import RESULTS, Trouble, about, command_line, main, write
from standing import MODELS, binaries

LEARNED = 3
PAGE = os.sysconf("SC_PAGE_SIZE")


def arguments():
    """The command line."""
    parser = command_line(__doc__)
    add_choice(parser, MODELS, ["emmc"])
    add = parser.add_argument
    add("--starts", type=int, default=3, metavar="N", help="starts that count [default: 3]")
    add("--out", type=Path, default=RESULTS / "feedback.json")
    return parser.parse_args()


def feedback():
    """Measures; the exit status."""
    options = arguments()
    alone()
    programs = binaries(options.bin)
    root = image.image(options.cache, list(WORKLOADS), lambda text: print(text, file=sys.stderr))
    result = about("headstart-bench/feedback/1", str(programs / "headstart"))
    result |= {"learned": LEARNED, "starts": options.starts, "cells": []}
    for model in options.models:
        with tempfile.TemporaryDirectory() as packs, \
                Programs(programs / "slowdisk", model, root) as disk:
            os.environ["HEADSTART_PACKS"] = packs
            for workload in (w for w in WORKLOADS if w.name in options.workloads):
                result["cells"].append(measure(programs, disk, workload, options.starts, packs))
                write(options.out, result)
    return 0


def measure(programs, disk, workload, starts, packs):
    """One workload on one disk."""
    pack, figures = Path(packs) / f"{workload.name}.pack", Path(packs) / "figures"
    command = ending(disk, workload)
    learned, found = 0, []
    for _ in range(3 * (LEARNED + starts)):
        run("sh", "-c", disk.cold())
        time.sleep(0.15)
        run(programs / "headstart", "run", "--pack", pack, "--json", figures,
            "--", *command)
        figured = json.loads(figures.read_text())
        if not figured["touched"]:
            continue  # The trace of the last start was still being removed.
        learned += 1
        if learned > LEARNED:
            shown = run(programs / "headstart", "show", "--last-run", "--json", pack, capture=True)
            found.append(shares(figured, json.loads(shown)["totals"]))
        if len(found) == starts:
            break
    else:
        raise Trouble(f"{workload.name}: of {3 * (LEARNED + starts)} starts only {learned} were learned")
    cell = {"workload": workload.name, "title": workload.title, "model": disk.model}
    for name in found[0]:
        values = [one[name] for one in found]
        cell[name] = {"median": statistics.median(values), "max": max(values)}
    print(f"{disk.model:10} {workload.name:12} " + "  ".join(
        f"{name} {cell[name]['median']:.4g}" for name in found[0]), file=sys.stderr)
    return cell


def shares(figures, totals):
    """The classification of the pages of one start; shares in percent."""
    touched, ahead = figures["touched"], figures["prefetch"]
    late, missing = touched["late_pages"], touched["missing_pages"]
    read = max(ahead["bytes"], 1)
    in_pack = totals["wasted"] - totals["gaps"]
    return {
        "touched_pages": touched["touched_pages"],
        "late_percent": 100 * late / max(touched["touched_pages"], 1),
        "missing_pages": missing,
        "metadata_pages": touched["late_metadata_pages"] + touched["missing_metadata_pages"],
        "read_bytes": ahead["bytes"],
        "wasted_percent": 100 * in_pack * PAGE / read,
        "wasted_with_gaps_percent": 100 * totals["wasted"] * PAGE / read,
        "major_faults": figures["major_faults"],
        "wall_ms": figures["wall_ms"],
    }


if __name__ == "__main__":
    main(feedback)
