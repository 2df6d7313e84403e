#!/usr/bin/env python3
"""What does a layout gain of starts, and was that predicted? In virtual time; see bench/boot/README.md.

Each workload is learned, as bench/layout.py does with --in-memory, and a copy of its image is laid out for its pack
on a modelled disk. Then virtual machines replay the pack and start the program cold, some with either image. Each
measures its disk before; those without a layout also ask `layout plan` what one gains. The first start and
replay of a machine are not counted. The disk takes `--times` as long, since the CPU of such a machine is about that much slower than that
of a server.

Usage: bench/boot/starts.py [--workloads A,B] [--models A,B] [--times X] [--machines N] [--starts N] [--image FILE]
                            [--work DIR] [--headstart FILE] [--out FILE] [--smoke]
"""

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lib import image  # noqa: E402
from lib.alone import alone  # noqa: E402
from lib.choice import listed  # noqa: E402
from lib.workloads import WORKLOADS  # noqa: E402
from measured import RESULTS, about, command_line, joined, main, needs_root, write  # noqa: E402
from rig import kernel, machine, models, virtual  # noqa: E402
from rig.guest import guest  # noqa: E402
from rig.workload import VirtualWorkload  # noqa: E402

SIDES = ("before", "after")
CACHE = Path.home() / ".cache/headstart-bench"
# So much slower the CPU is than one of a server, about; `cloud` then has 32 MB/s, and devices are measured in whole ones.
TIMES = 125 / 32


def arguments():
    """The command line."""
    parser = command_line(__doc__)
    add = parser.add_argument
    ending = [w.name for w in WORKLOADS if not w.ready]
    modelled = [name for name in models.names() if models.table(name)]
    add("--workloads", type=listed(ending), default=["office"], metavar="A,B",
        help=f"{', '.join(ending)} [default: office]")
    add("--models", type=listed(modelled), default=["cloud"], metavar="A,B",
        help=f"{', '.join(modelled)} [default: cloud]")
    add("--times", type=above_zero(float), default=TIMES, metavar="X", help="how much slower the disk is [default: %(default)s]")
    add("--machines", type=above_zero(int), default=2, metavar="N", help="with either image [default: 2]")
    add("--starts", type=above_zero(int), default=6, metavar="N", help="of each machine [default: 6]")
    add("--image", type=Path, metavar="FILE", help="a root image [default: that of the workloads]")
    add("--work", type=Path, metavar="DIR", help="keep packs and images here, and take them from here, whatever image and headstart they are of")
    add("--headstart", type=Path, metavar="FILE", help="a static headstart [default: it is built]")
    add("--cache", type=Path, default=CACHE, metavar="DIR", help="for images")
    add("--out", type=Path, default=RESULTS / "starts-virtual.json")
    add("--smoke", action="store_true", help="does it work? one start of python3; keeps no results")
    return parser.parse_args()


def above_zero(kind):
    """A parser of numbers above zero."""
    def parse(text):
        number = kind(text)
        if not 0 < number < float("inf"):
            raise ValueError
        return number
    parse.__name__ = f"{kind.__name__} above zero"
    return parse


def benchmark():
    """Measures; the exit status, 3 if a layout saves no requests."""
    args = arguments()
    needs_root("Images are mounted")
    machine.needs()
    alone()
    if args.smoke:
        args.workloads, args.machines, args.starts, args.out = ["python"], 1, 1, None
    headstart = machine.static(args.headstart)
    chosen = [w for w in WORKLOADS if w.name in args.workloads]
    root = args.image or image.image(args.cache, chosen, tell)
    kit = guest(args.cache, tell).kit
    # Made before several machines want them.
    kernel.vmlinux(kit)
    kernel.module(kit)
    result = about("headstart-bench/starts-virtual/1", str(headstart)) | {"cells": []}
    with contextlib.ExitStack() as stack:
        folder = args.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="starts-", dir=args.cache)))
        folder.mkdir(parents=True, exist_ok=True)
        workloads = [VirtualWorkload(workload, folder, kit, headstart) for workload in chosen]
        with virtual.several() as pool:
            list(pool.map(lambda one: one.learn(root), workloads))
        for one in workloads:
            for model in args.models:
                cell = measured(one, model, args)
                result["cells"].append(cell)
                if args.out:
                    write(args.out, joined(args.out, result, place))
                tell(line(cell))
    worse = [cell for cell in result["cells"] if cell["after"]["requests"] >= cell["before"]["requests"]]
    for cell in worse:
        tell(f"starts.py: the layout of {cell['workload']} on {cell['model']} saves no requests")
    return 3 if worse else 0


def place(cell):
    """What there is one cell of."""
    return cell["model"], cell["workload"], cell["times"]


def measured(one, model, args):
    """The starts of a workload with either image."""
    sides = dict(zip(SIDES, (one, one.laid_out(model, args.times)), strict=True))
    with virtual.several() as pool:
        jobs = {(side, number): pool.submit(sides[side].starts, model, args.times, args.starts, number, side == "before")
                for number in range(args.machines) for side in SIDES}
        done = {key: job.result() for key, job in jobs.items()}
    cell = {"workload": one.workload.name, "title": one.workload.title, "model": model, "times": args.times,
            "machines": args.machines, "date": time.strftime("%Y-%m-%d", time.gmtime())}
    of_side = {side: [started for (its, _), started in done.items() if its == side] for side in SIDES}
    for side, machines in of_side.items():
        starts, replays = ([each for found in machines for each in getattr(found, kind)]
                           for kind in ("starts", "replays"))
        cell[side] = {
            "start_s": [each.us / 1e6 for each in starts], "replay_s": [each.us / 1e6 for each in replays],
            "requests": statistics.median(each.requests for each in replays),
            "bytes": statistics.median(each.bytes for each in replays),
            "start_requests": statistics.median(each.requests for each in starts),
        }
    for what in ("start", "replay"):
        took = [cell[side][f"{what}_s"] for side in SIDES]
        cell[f"{what}_gain_s"] = gained(*took)
        before, after = map(statistics.median, took)
        cell[f"{what}_median_gain_s"] = round(before - after, 6)
        predicted = [[found.gain[side][f"{what}_us"] for side in SIDES] for found in of_side["before"]]
        # Of a disk that was not measured nothing is predicted, and of a rotational one no start.
        cell[f"{what}_predicted_s"] = [None if None in us else statistics.median(us) / 1e6
                                       for us in zip(*predicted, strict=True)]
    return cell


def gained(before, after):
    """The difference of the means, and half its interval of 95 % (normal), as if all starts were of one machine; that
    is None of single starts."""
    gain = statistics.mean(before) - statistics.mean(after)
    if min(len(before), len(after)) < 2:
        return [round(gain, 6), None]
    error = sum(statistics.variance(side) / len(side) for side in (before, after)) ** 0.5
    return [round(gain, 6), round(1.96 * error, 6)]


def line(cell):
    """A cell in one line."""
    def part(what):
        means = (statistics.mean(cell[side][f"{what}_s"]) for side in SIDES)
        gain, error = cell[f"{what}_gain_s"]
        before, after = cell[f"{what}_predicted_s"]
        within = "" if error is None else f" ± {error:.3f}"
        predicted = "" if None in (before, after) else (
            f" of {before - after:.3f} s ({before:.3f} -> {after:.3f} s)")
        median = cell[f"{what}_median_gain_s"]
        return ("{}: {:.3f} -> {:.3f} s".format(what, *means)
                + f", gains {gain:.3f}{within} s, by medians {median:.3f} s{predicted}")
    counts = "{} -> {} requests".format(*(round(cell[side]["requests"]) for side in SIDES))
    return f"{cell['model']} {cell['workload']}: {part('replay')}, {counts}; {part('start')}"


def tell(text):
    """Says how it goes."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(benchmark)
