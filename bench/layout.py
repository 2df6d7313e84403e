#!/usr/bin/env python3
"""What does a layout gain on a modelled disk, and was that predicted?

Each workload is learned once, on a copy of the root image that keeps what its starts write. Of that a copy
for each disk is laid out for its pack, on that disk, and released.
Then it is started cold from either image, in random order: without headstart, with its pack prefetched,
and as a replay of its pack alone, which reads what the start reads as fast as the disk can. Nothing is learned.
An image comes up again for each of its turns, and its disk is measured. `layout plan` says in each pair, with the
model of that disk, what a layout gains: medians are told, as measurements of one disk differ. Of replays it is also
told for how long the disk was busy, which other work does not change.
With `--how prefetched,replay,hot` the lower bound in touch order is told too (doc/bench.md). `--learn N` has N
more starts learned after the layout, on its disk, as people have who go on using it: where new files go has
changed, and with that the metadata that starts read. `--in-memory` has one more start learned before the layout, after
a replay, from which `layout plan` predicts starts, too.

With `--aged` the image is aged before: it is made so small that its files fill 70 % of it (btrfs: 50 %), but not so
small that a layout has no room in the end, filled with files
of 4 to 256 KiB until nothing is free, and half of these, by chance, are removed, until 85 % are full; then each
file of the pack is written once more, as an upgrade does, into what is free. `--seed` decides what chance does there.
`--make-room` has other files moved aside.

`--kind xfs` and `--kind btrfs` copy the image to such a file system before, and `--compress` compresses
what is laid out. Of the layout is told in how many pieces a pack lies before and after.

Usage: bench/layout.py [--workloads A,B] [--models A,B] [--pairs N] [--kind KIND] [--compress[=HOW]]
                       [--how A,B] [--gaps SIZE] [--aged] [--make-room] [--learn N] [--in-memory] [--seed N]
                       [--work DIR [--prepare]] [--out FILE]
"""

import contextlib
import errno
import functools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from exact import start
from lib import image
from lib.alone import alone
from lib.bound import in_order, touches_of_hot
from lib.choice import add_choice
from lib.convert import MKFS, converted
from lib.disk import Programs
from lib.image import unmount
from lib.learn import ending, learn, learn_in_memory, learn_start
from lib.reclaim import Watch
from lib.run import run
from lib.workloads import WORKLOADS
from measured import RESULTS, about, command_line, joined, main, needs_root, write
from standing import MODELS, binaries

ARMS = ("before", "after")
HOW = ("alone", "prefetched", "replay")
# Programs are learned there: a fast disk that keeps what is written.
LEARNED = "sata-ssd"
# Hot starts whose touches tell the progress of a start.
HOT = 3
# Of an aged file system: how full it is in the end, in percent.
LEFT = 85
# How full its own files make it at most, in percent. On btrfs starts read more, and a layout needs more room.
FILES = {"ext4": 70, "xfs": 70, "btrfs": 50}
# What of the rest a layout can't have: 5 % are reserved for root, and it leaves 2 %; in percent.
KEPT = 7


def arguments():
    """The command line."""
    parser = command_line(__doc__)
    add_choice(parser, [model for model in MODELS if model != "nvme"], ["hdd"])
    add = parser.add_argument
    add("--pairs", type=int, default=10, metavar="N", help="[default: 10]")
    add("--how", default=",".join(HOW), metavar="A,B", help="of these, and hot [default: %(default)s]")
    add("--learn", type=int, default=0, metavar="N", help="starts that are learned after the layout [default: 0]")
    add("--in-memory", action="store_true", help="one more start is learned before, after a replay")
    add("--kind", choices=("ext4", *MKFS), default="ext4", help="of file system [default: %(default)s]")
    add("--compress", nargs="?", const="zstd", metavar="HOW", help="compress what is laid out")
    add("--gaps", metavar="SIZE", help="also move gaps of up to so much")
    add("--aged", action="store_true", help="on a file system that was aged")
    add("--make-room", action="store_true", help="move other files aside, if the layout lies in pieces")
    add("--image", type=Path, metavar="FILE", help="a root image [default: that of the workloads]")
    add("--work", type=Path, metavar="DIR", help="keep packs and images here, and take them from here")
    add("--prepare", action="store_true", help="only make them, and measure nothing")
    add("--seed", type=int, default=1, help="of the order of pairs, and of what ages a file system [default: 1]")
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
    root = args.image or image.image(args.cache, chosen, lambda text: print(text, file=sys.stderr))
    result = about("headstart-bench/layout/3", str(headstart)) | {"cells": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = args.work or Path(folder)
        os.environ["HEADSTART_PACKS"] = str(folder)
        for workload in chosen:
            before, pack = learned(headstart, slowdisk, workload, root, folder, args)
            for model in args.models:
                after, renewed, moved = laid_out(headstart, slowdisk, model, before, pack, workload, args)
                if args.prepare:
                    continue
                sides = {"before": ((slowdisk, model, before), pack),
                         "after": ((slowdisk, model, after), renewed)}
                cell = measure(headstart, sides, workload, args) | {"layout": moved}
                cell |= {"model": model, "aged": args.aged, "kind": args.kind, "compress": args.compress,
                         "gaps": args.gaps, "learn": args.learn, "in_memory": args.in_memory,
                         "make_room": args.make_room, "seed": args.seed}
                result["cells"].append(cell)
                write(args.out, joined(args.out, result, place))
                print(f"{model:6} {workload.name:12} " + ", ".join(
                    f"{how} {cell[how]['before']['median_s']:.3f} -> "
                    f"{cell[how]['after']['median_s']:.3f} s ({cell[how]['ratio']:.3f}), disk "
                    f"{cell[how]['before']['disk_s']:.3f} -> {cell[how]['after']['disk_s']:.3f} s"
                    for how in args.how.split(","))
                    + f"; predicted {cell['predicted']}, starts {cell['predicted_start']}", file=sys.stderr)
    return 0


def learned(headstart, slowdisk, workload, root, folder, args):
    """The image from which a workload was learned, and its pack; made unless they are there."""
    aged, kind = args.aged, args.kind
    name = "-".join([workload.name, *[kind] * (kind != "ext4"), *["aged"] * aged, *["in-memory"] * args.in_memory,
                     *[f"seed-{args.seed}"] * (aged and args.seed != 1)])
    before, pack = folder / f"{name}.img", folder / f"{name}.pack"
    if pack.exists():
        return before, pack
    root = converted(root, kind, folder / f"{kind}{'-small' * aged}.img", FILES[kind] if aged else None)
    run("cp", "--sparse=always", root, before)
    if aged:
        fresh = folder / f"{name}-fresh.pack"
        with Programs(slowdisk, LEARNED, root) as disk:
            where = disk.mount
            learn(headstart, disk, workload, fresh, exact=True)
        age(headstart, before, where, fresh, resize=kind == "ext4", chance=random.Random(args.seed + 4))
    with Programs(slowdisk, LEARNED, before, keep=True) as disk:
        learn(headstart, disk, workload, pack, exact=True)
        if args.in_memory:
            learn_in_memory(headstart, disk, workload, pack)
    return before, pack


def laid_out(headstart, slowdisk, model, before, pack, workload, args):
    """The image after a layout on a disk, the pack for it, and what was moved; made unless they are there."""
    name = f"{before.stem}-{model}" + "-compressed" * bool(args.compress) + f"-gaps-{args.gaps}" * bool(args.gaps)
    name += f"-learn-{args.learn}" * bool(args.learn) + "-room" * args.make_room
    after, told, renewed = (before.with_name(f"{name}.{end}") for end in ("img", "json", "pack"))
    if told.exists():
        return after, renewed, json.loads(told.read_text())
    run("cp", "--sparse=always", before, after)
    shutil.copy(pack, renewed)
    # Else the copy is written while the disk is measured, which then looks slower than it is.
    os.sync()
    with Programs(slowdisk, model, after, keep=True) as disk:
        run(headstart, "doctor", "--reprobe")
        moved = lay_out(headstart, disk.mount, renewed, args)
        for _ in range(args.learn):
            run(*disk.cold().split())
            learn_start(headstart, disk, workload, renewed)
    told.write_text(json.dumps(moved))
    return after, renewed, moved


def age(headstart, path, where, pack, resize, chance):
    """Ages a file system: makes it small if it was not, fills and empties it, and rewrites the files of a pack."""
    with at(path, where):
        stat = os.statvfs(where)
        used, block = (stat.f_blocks - stat.f_bfree) * stat.f_frsize, stat.f_bsize
        listed = run(headstart, "show", "--list", pack, capture=True).splitlines()
        names = [Path(line.rsplit(" ", 1)[0]) for line in listed]
        names = [name for name in names if str(name).startswith(f"{where}/") and name.is_file()]
        moved = planned(headstart, where, pack)["bytes"]
    if resize:
        # It has to be checked since it was mounted.
        run("sh", "-c", 'e2fsck -fy "$0" || test $? = 1', path)
        least = int(run("resize2fs", "-P", path, capture=True).split()[-1])
        # In the end a layout has room, with the gaps of the disk, too.
        room = (moved + (moved >> 1)) // (100 - LEFT - KEPT) * 100
        run("resize2fs", path, max(used // FILES["ext4"] * 100 // block, room // block, least))
    with at(path, where):
        filler = where / "filler"
        filler.mkdir()
        files = []
        # What is reserved for root, too: in what stays free, files would not be fragmented.
        with until_full():
            while True:
                files.append(filler / f"{len(files):06}")
                written(files[-1], chance)
        chance.shuffle(files)
        need = sum(name.stat().st_size for name in names)
        room = need + (need >> 2)
        stat = os.statvfs(where)
        # While the files are written twice there is more room than in the end.
        while files and (free(where, resize) < room or share(where, resize) > LEFT):
            files.pop().unlink(missing_ok=True)
        os.sync()
        for name in chance.sample(names, len(names)):
            new = name.with_name(name.name + ".new")
            shutil.copy2(name, new)
            os.chown(new, name.stat().st_uid, name.stat().st_gid)
            new.rename(name)
            if chance.random() < 0.2:
                run("sync", "-f", where)
        while share(where, resize) < LEFT:
            written(filler / f"more-{chance.random()}", chance)
        os.sync()


def written(path, chance):
    """Makes a file of some size. Its place does not depend on when it is written back."""
    size = 4096 * chance.randint(1, 64)
    with open(path, "wb", buffering=0) as opened:
        os.posix_fallocate(opened.fileno(), 0, size)
        opened.write(bytes(size))


@contextlib.contextmanager
def until_full():
    """Goes on after it when a file system is full."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def free(where, with_reserve):
    """What is free, in bytes; root may take what ext4 reserves, and not what btrfs has for metadata."""
    stat = os.statvfs(where)
    return (stat.f_bfree if with_reserve else stat.f_bavail) * stat.f_frsize


def share(where, with_reserve):
    """How full a file system is, in percent."""
    stat = os.statvfs(where)
    return 100 - 100 * free(where, with_reserve) / (stat.f_blocks * stat.f_frsize)


@contextlib.contextmanager
def at(path, where):
    """Mounts an image meanwhile, where packs know its files."""
    where.mkdir(parents=True, exist_ok=True)
    try:
        run("mount", "-o", "loop,noatime", path, where)
        yield
    finally:
        unmount(where)
        where.rmdir()
        where.parent.rmdir()


def place(cell):
    """What there is one cell of."""
    return (cell["model"], cell["workload"], cell.get("aged", False), cell.get("kind", "ext4"),
            cell.get("compress"), cell.get("gaps"), cell.get("learn", 0), cell.get("in_memory", False),
            cell.get("make_room", False), cell.get("seed", 1) if cell.get("aged") else 1)


def options(args):
    """Those of the layout."""
    return [*[f"--compress={args.compress}"] * bool(args.compress), *[f"--gaps={args.gaps}"] * bool(args.gaps)]


def lay_out(headstart, where, pack, args):
    """Lays a file system out for a pack; what `layout plan` said before."""
    # A start through headstart also reads some files of the machine's own disk.
    only = ["--on", where, pack]
    plan = planned(headstart, where, pack, options(args))
    room = ["--make-room"] * args.make_room
    done = run(headstart, "layout", "apply", "--force", "--json", *room, *options(args), *only, capture=True)
    told = json.loads(done)["file_systems"][0]
    aside = {what: told.get(what, 0) for what in ("aside_bytes", "relocated_bytes")}
    run(headstart, "layout", "release", where)
    # What is compressed lies in as many pieces as the kernel made of it.
    laid = None if args.compress else planned(headstart, where, pack)["gain"]["before"]
    skipped = len(plan.pop("skipped"))
    lies = {kind: {"extents": gain["extents"], "pieces": gain["jumps"] + 1}
            for kind, gain in (("before", plan["gain"]["before"]), ("after", laid)) if gain}
    kept = {key: plan[key] for key in ("files", "ranges", "bytes", "gain", "metadata")}
    return kept | {"skipped": skipped, "lies": lies} | aside


def planned(headstart, where, pack, options=()):
    """What `layout plan` says; its status says whether something is gained."""
    words = [headstart, "layout", "plan", "--json", *options, "--on", where, pack]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["file_systems"][0]


def replayed(headstart, disk, pack):
    """A replay of a pack from a cold disk, without a start."""
    disk.empty()
    disk.counted(reset=True)
    began = time.monotonic()
    run(headstart, "replay", "--quiet", "--wait", pack)
    took = time.monotonic() - began
    return {"s": took, **disk.read_since_reset()}


def measure(headstart, sides, workload, args):
    """Pairs of starts of one workload from the two images."""
    order = random.Random(f"{args.seed} {workload.name}")
    kinds = args.how.split(",")
    found = {how: {arm: [] for arm in ARMS} for how in kinds}
    predictions = {"replay_us": [], "start_us": []}
    watch = Watch("headstart-layout", headstart)
    for _ in range(args.pairs):
        for arm in order.sample(ARMS, len(ARMS)):
            place, pack = sides[arm]
            with Programs(*place) as disk, watch:
                disk.watch = watch
                # As after the first start that is learned from a device.
                run(headstart, "doctor", "--reprobe")
                if arm == "before":
                    gain = planned(headstart, disk.mount, pack, options(args))["gain"]
                    for what, pairs in predictions.items():
                        pairs.append([gain[side][what] for side in ARMS])
                for how in order.sample(kinds, len(kinds)):
                    one = functools.partial(trial, how, headstart, disk, workload, pack)
                    found[how][arm].append(watch.undisturbed(one))
    predicted, starts = (medians(pairs) for pairs in predictions.values())
    cell = {"workload": workload.name, "title": workload.title, "pairs": args.pairs,
            "load": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d", time.gmtime()), "predicted": predicted,
            "predicted_start": starts, "predictions": predictions, **watch.told()}
    with Programs(*sides["after"][0]) as disk:
        cell["bandwidth_mb_s"] = disk.bandwidth()
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
                "disk_s": round(statistics.median(one["disk_s"] for one in starts), 4),
                "s": [round(one["s"], 4) for one in starts],
            }
    if {"replay", "hot"} <= found.keys():
        touched = hot_starts(headstart, sides["after"], workload)
        for arm in ARMS:
            shown = shown_of(headstart, sides[arm][1])
            floor, hot = (cell[how][arm]["median_s"] for how in ("replay", "hot"))
            cell.setdefault("bound_s", {})[arm] = round(
                in_order(shown, floor, hot, touches_of_hot(shown, touched)), 4)
    return cell


def medians(pairs):
    """Those of both sides; None where one is not known."""
    return [None if None in side else statistics.median(side) for side in zip(*pairs, strict=True)]


def trial(how, headstart, disk, workload, pack):
    """One start of a kind, or a replay."""
    if how == "replay":
        return replayed(headstart, disk, pack)
    used = pack if how == "prefetched" else None
    if how == "hot":
        start(headstart, disk, workload, pack)
        # What the kernel reclaimed meanwhile is read by a start that is not measured.
        disk.watch.clear()
        start(headstart, disk, workload, None, cold=False)
    return start(headstart, disk, workload, used, cold=how != "hot")


def hot_starts(headstart, side, workload):
    """What hot starts touched, and when, as `show --json` prints it of their packs."""
    place, pack = side
    with tempfile.TemporaryDirectory() as folder, Programs(*place) as disk:
        start(headstart, disk, workload, pack)
        packs = [Path(folder) / f"{number}.pack" for number in range(HOT)]
        for hot in packs:
            run(headstart, "record", "--quiet", "--for", "2min", "--pack", hot, "--", *ending(disk, workload))
        return [shown_of(headstart, hot) for hot in packs]


def shown_of(headstart, pack):
    """What `show --json` prints of a pack."""
    return json.loads(run(headstart, "show", "--json", pack, capture=True))


if __name__ == "__main__":
    main(benchmark)
