#!/usr/bin/env python3
"""Does the explanation of a start add up?

Starts programs from modelled disks: cold, with headstart (`run --no-learn`) and hot. Some starts are timed
only; others are recorded by `headstart faults --waits`, in rounds that have one of each, in random order,
each hot one right after a cold one of its kind. For cold − hot and headstart − hot it tells

    measured   the difference of the starts that were not recorded
    parts      the difference of the recorded ones: of CPU time, the run queue, and each kind of waits with
               its files, along what the end of the program depended on (doc/faults.md)
    ratio      parts ÷ measured, with the interval of 95 % of 2,000 resamplings of the rounds; it should be
               within 10 % of 1
    recording  how much longer recorded starts take. It takes CPU time, in which a disk that has been asked
               to prefetch works on: so it makes a prefetched start longer by less than a hot one, and the
               parts are smaller than the measured difference by what that is

and the first table of the recorded start in the middle, as it is printed. A program is learned once, on
nvme; --learn does it again. --pictures draws the last recorded start of each kind.

Usage: sudo bench/explain.py [--workloads A,B] [--models A,B] [--rounds N] [OPTION…]
"""
import collections
import json
import os
import random
import select
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from harm import TIMEOUT_S, Starts
from lib import image
from lib.alone import alone
from lib.choice import add_choice
from lib.disk import Programs
from lib.learn import learn
from lib.run import Trouble, run
from lib.workloads import WORKLOADS
from measured import RESULTS, about, command_line, joined, main, needs_root, write
from standing import MODELS, binaries

ARMS = ("cold", "headstart", "hot")
# How far the sum of the parts may be from the measured difference.
ALLOWED = 0.1
RESAMPLINGS = 2000
# Of each kind of waits so many causes are kept, and so many are printed.
KEPT, PRINTED = 6, 3
PROMPT = "headstart: "


class Recorded(Starts):
    """Starts that are timed, or recorded too, until the program itself ends."""

    # Where pictures are written, if anywhere.
    pictures = None

    def pictured(self, workload, arm):
        """Options that draw a start."""
        name = f"{workload.name}-{self.disk.model}-{arm}"
        return ["--picture", self.pictures / f"{name}.svg"] if self.pictures else []

    def once(self, workload, arm, is_recorded):
        """The seconds of a start, and what was recorded."""
        command = self.disk.command(workload.start)
        if arm == "headstart":
            command = [*self.through(self.pack(workload)), *command]
        document = self.folder / "faults.json"
        if is_recorded:
            command = [self.headstart, "faults", "--waits", "--json", document,
                       *self.pictured(workload, arm), "--", *command]
        if arm != "hot":
            self.cool()
        document.unlink(missing_ok=True)
        with open(self.folder / "messages", "w+b") as messages:
            began = time.monotonic()
            child = subprocess.Popen(
                [str(word) for word in command], env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages)
            has_ended(child)
            took = time.monotonic() - began
            status = child.wait()
            messages.seek(0)
            said = messages.read().decode(errors="replace").splitlines()
        if status:
            raise Trouble(f"{workload.name} ended with status {status}: {' / '.join(said[-3:])}")
        if not is_recorded:
            return {"s": took}
        recorded = json.loads(document.read_text())
        if lost := recorded["unlisted"]["lost_records"]:
            raise Trouble(f"{workload.name}: {lost} records were lost")
        path = recorded["waits"]["path"]
        return {"s": path["total_ns"] / 1e9, "parts": parts(path), "screen": first_table(said)}


def has_ended(child):
    """Waits for the end of a process: wait(timeout=…) looks every 50 ms only."""
    pidfd = os.pidfd_open(child.pid)
    try:
        if not select.select([pidfd], [], [], TIMEOUT_S)[0]:
            child.kill()
            raise Trouble(f"a start takes longer than {TIMEOUT_S} s")
    finally:
        os.close(pidfd)


def parts(path):
    """Seconds by kind and what was waited for; they add up to the time of the start."""
    found = collections.Counter()
    for row in path["cpu"]:
        found["CPU", row["program"]] += row["time_ns"] / 1e9
    for row in path["causes"]:
        # Threads of one name are one.
        name = row.get("name", "").split(" (")[0]
        found[row["kind"], row.get("path") or name] += row["time_ns"] / 1e9
    return found


def first_table(said):
    """The lines of headstart's first table."""
    table = []
    for line in said:
        if table and line.strip() == PROMPT.strip():
            break
        if line.startswith(PROMPT) and (table or "TO THE END" in line):
            table.append(line.removeprefix(PROMPT).rstrip())
        elif table:
            break
    return table


def arguments():
    parser = command_line(__doc__)
    add_choice(parser, list(MODELS), ["cloud"], workloads=["python", "clang", "office", "chromium"])
    add = parser.add_argument
    add("--rounds", type=int, default=10, metavar="N", help="[default: 10]")
    add("--seed", type=int, default=1)
    add("--learn", action="store_true", help="learn again")
    add("--pictures", type=Path, metavar="DIR", help="draw the last recorded start of each kind")
    add("--results", type=Path, default=RESULTS / "explain.json", metavar="FILE")
    return parser.parse_args()


def explain():
    options = arguments()
    needs_root("Modelled disks, cold caches and waits need root")
    alone()
    programs = binaries(options.bin)
    headstart = programs / "headstart"
    folder = options.cache / "explain"
    folder.mkdir(parents=True, exist_ok=True)
    workloads = [w for w in WORKLOADS if w.name in options.workloads]
    root = image.image(options.cache, workloads, print)
    unlearned = [w for w in workloads if options.learn or not (folder / f"{w.name}.pack").exists()]
    if unlearned:
        with Programs(programs / "slowdisk", "nvme", root) as disk:
            for workload in unlearned:
                learn(headstart, disk, workload, folder / f"{workload.name}.pack", exact=True)
    misses = 0
    for model in options.models:
        with Programs(programs / "slowdisk", model, root) as disk:
            starts = Recorded(headstart, folder, disk, ["--no-learn", "--always"])
            starts.pictures = options.pictures
            for workload in workloads:
                probed(starts, workload)
                rng = random.Random(f"{options.seed} {model} {workload.name}")
                cell = measured(starts, workload, options.rounds, rng)
                print("\n".join(lines(cell)), flush=True)
                misses += sum(not found["holds"] for found in cell["differences"].values())
                document = about("headstart/explain/1", headstart) | {"cells": [cell]}
                write(options.results, joined(
                    options.results, document, lambda c: (c["workload"], c["model"])))
    return 3 if misses else 0


def probed(starts, workload):
    """Has headstart probe the disk, which it does after a start that it learns."""
    pack = starts.folder / "probe.pack"
    shutil.copy(starts.pack(workload), pack)
    starts.cool()
    run(starts.headstart, "run", "--always", "--json", starts.folder / "figures", "--pack", pack,
        "--", *starts.disk.command(workload.start), env=starts.environment())


def measured(starts, workload, rounds, rng):
    """All starts of a workload on a disk, and what they tell."""
    timed, recorded = ({arm: [] for arm in ARMS} for _ in range(2))
    for _ in range(rounds):
        turns = [(arms, is_recorded) for arms in (("cold", "hot"), ("headstart",))
                 for is_recorded in (False, True)]
        for arms, is_recorded in rng.sample(turns, len(turns)):
            for arm in arms:
                (recorded if is_recorded else timed)[arm].append(starts.once(workload, arm, is_recorded))
    cell = {"workload": workload.name, "model": starts.disk.model, "n": rounds}
    for name, group in (("timed_s", timed), ("recorded_s", recorded)):
        cell[name] = {arm: [round(start["s"], 4) for start in group[arm]] for arm in ARMS}
    cell["screens"] = {arm: sorted(recorded[arm], key=lambda start: start["s"])[rounds // 2]["screen"]
                       for arm in ARMS}
    cell["differences"] = {arm: difference(timed, recorded, arm, rng) for arm in ARMS[:-1]}
    return cell


def difference(timed, recorded, arm, rng):
    """How much longer an arm takes than hot starts, measured and by parts."""
    def less_hot(group):
        return [one["s"] - hot["s"] for one, hot in zip(group[arm], group["hot"], strict=True)]
    seconds, by_parts = less_hot(timed), less_hot(recorded)
    count = len(seconds)
    ratios = []
    for _ in range(RESAMPLINGS):
        one, other = (rng.choices(each, k=count) for each in (by_parts, seconds))
        ratios.append(sum(one) / sum(other) if sum(other) else 0)
    ratios.sort()
    low, high = ratios[RESAMPLINGS // 40], ratios[-RESAMPLINGS // 40]
    ratio = sum(by_parts) / sum(seconds)
    causes = collections.Counter()
    for group, sign in ((recorded[arm], 1), (recorded["hot"], -1)):
        for start in group:
            for cause, part in start["parts"].items():
                causes[cause] += sign * part / count
    kinds = collections.defaultdict(list)
    for (kind, name), part in causes.items():
        kinds[kind].append((part, name))
    kinds = [kind_of(kind, rows) for kind, rows in kinds.items()]
    kinds.sort(key=lambda kind: -kind["s"])
    slower = {one: statistics.mean(start["s"] for start in recorded[one])
              - statistics.mean(start["s"] for start in timed[one]) for one in (arm, "hot")}
    return {
        "recording_s": {one: round(s, 4) for one, s in slower.items()},
        "measured_s": round(statistics.mean(seconds), 4), "parts_s": round(statistics.mean(by_parts), 4),
        "ratio": round(ratio, 4), "low": round(low, 4), "high": round(high, 4),
        "holds": abs(ratio - 1) <= ALLOWED,
        "kinds": kinds,
    }


def kind_of(kind, rows):
    """The difference in a kind of waits, with what made most of it."""
    rows.sort(key=lambda row: -abs(row[0]))
    return {"kind": kind, "s": round(sum(part for part, _ in rows), 4), "causes": len(rows),
            "most": [[name, round(part, 4)] for part, name in rows[:KEPT]]}


def lines(cell):
    """A cell as text."""
    medians = {arm: statistics.median(cell["timed_s"][arm]) for arm in ARMS}
    yield (f"{cell['workload']} on {cell['model']}, n = {cell['n']}: "
           + ", ".join(f"{arm} {s:.3f} s" for arm, s in medians.items()))
    for arm, found in cell["differences"].items():
        yield (f"  {arm} − hot: {found['measured_s']:.3f} s measured, {found['parts_s']:.3f} s by parts: "
               f"{found['ratio']:.3f} [{found['low']:.3f}, {found['high']:.3f}], recording adds "
               + " and ".join(f"{1000 * s:.0f} ms ({one})" for one, s in found["recording_s"].items())
               + ("" if found["holds"] else f", not within {ALLOWED:.0%}"))
        for kind in found["kinds"]:
            if abs(kind["s"]) < 0.01 * abs(found["parts_s"]):
                continue
            most = [f"{name or 'not known'} {s:.3f}" for name, s in kind["most"][:PRINTED]]
            if (more := kind["causes"] - len(most)) > 0:
                most.append(f"{more} more")
            yield f"    {kind['s']:7.3f} s {kind['kind']:<11} {', '.join(most)}"


if __name__ == "__main__":
    main(explain)
