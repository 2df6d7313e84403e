#!/usr/bin/env python3
"""Which kernel interface reports execs best? The figures behind doc/daemon.md.

Usage: bench/exec-sources.py [--rounds N] [--sources NAME,…] [--arms ARM;…] [--quick] [--out FILE]
For each source: what it adds to an exec and costs its reader at 10,000 execs a minute, how long
it takes until the reader knows of an exec, what is lost as fast as fork allows, and what it says
of execs in namespaces. Needs root and gcc; build first:
cargo build --release -p headstart-daemon --example exec_sources
"""
import array
import contextlib
import json
import os
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

from lib.run import Trouble
from measured import BUILT, RESULTS, about, command_line, main, middle, needs_root, run, tool, write

# 10,000 a minute.
GAP = 6_000_000
# Name: source, check, pause in µs, marks of fanotify. LOAD stands for the program that is executed.
ARMS = {
    "none": None,
    "none again": None,
    "trace": ("trace", "none", 0),
    "trace, pause": ("trace", "none", 1000),
    "trace, stat": ("trace", "stat", 0),
    "trace, read": ("trace", "read", 0),
    "trace, ignored": ("trace", "none", 0),
    "connector": ("connector", "none", 0),
    "connector, stat": ("connector", "stat", 0),
    "connector, not filtered": ("connector-all", "none", 0),
    "fanotify": ("fanotify", "none", 0, "+LOAD"),
    "fanotify, stat": ("fanotify", "stat", 0, "+LOAD"),
    "fanotify, descriptors": ("fanotify-fd", "none", 0, "+LOAD"),
    "fanotify, ignored": ("fanotify", "none", 0, "+LOAD", "-LOAD"),
}
ALONE = [arm for arm, words in ARMS.items() if not words or words[1:3] == ("none", 0)]


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=60, help="rounds in random order [default: 60]")
    add("--arms", help="measure the costs of these only, separated by semicolons")
    add("--sources", default="trace,connector,fanotify", help="which [default: all]")
    add("--quick", action="store_true", help="one round, and a small storm: does it work?")
    add("--reader", default=BUILT / "examples" / "exec_sources")
    add("--out", default=RESULTS / "exec-sources.json")
    return parser.parse_args()


class Bench:
    def __init__(self, options, directory):
        self.directory = Path(directory)
        self.reader = tool(options.reader, "cargo build --release -p headstart-daemon --example exec_sources")
        # The comma keeps it out of the filter for names that are executed often.
        self.load = self.directory / "exec,load"
        self.frequent = self.directory / "exec-load"
        run("gcc", "-O2", "-static", "-nostdlib", "-fno-stack-protector", "-fno-pie", "-no-pie",
            "-o", self.load, Path(__file__).parent / "lib" / "exec-load.c")
        self.frequent.symlink_to(self.load.name)
        known = options.sources.split(",") + ["none"]
        self.arms = [arm for arm in ARMS if arm.split(",")[0].split(" ")[0] in known]
        if options.arms:
            self.arms = ["none", *options.arms.split(";")]
        self.rounds = 1 if options.quick else options.rounds
        self.few = 50
        self.many = 500 if options.quick else 10_000

    @contextlib.contextmanager
    def reading(self, arm):
        """Reads execs meanwhile; the summary is filled at the end."""
        summary = {}
        if ARMS[arm] is None:
            yield summary
            return
        words = [str(word).replace("LOAD", str(self.load)) for word in ARMS[arm]]
        seen = self.directory / "seen"
        command = [self.reader, *words[:3], seen, *words[3:]]
        reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if reader.stdout.readline() != "ready\n":
                raise Trouble(f"{arm} can't be used here")
            yield summary
            reader.stdin.close()
            summary.update(json.loads(reader.stdout.readline()))
            summary["seen"] = numbers(seen.read_bytes(), 3)
        finally:
            # It removes its trace instance first, which would go on recording after a kill.
            reader.stdin.close()
            reader.wait()

    def run_load(self, *words, load=None):
        words = [load or self.load, *map(str, words)]
        return subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout

    def costs(self):
        """What an exec takes, and the reader's CPU time for it, in rounds in random order."""
        took = {arm: [] for arm in self.arms}
        cpu = {arm: [] for arm in self.arms}
        for _ in range(self.rounds):
            for arm in random.sample(self.arms, len(self.arms)):
                with self.reading(arm) as summary:
                    load = self.frequent if arm == "trace, ignored" else self.load
                    if load == self.frequent:
                        # Often enough, and then the reader has time to set the filter.
                        self.run_load("chain", 70, GAP // 10, load=load)
                    found = numbers(self.run_load("chain", self.few, GAP, load=load), 1)
                    took[arm].append([ns for (ns,) in found])
                cpu[arm].append(summary.get("cpu_ns", 0) / self.few / 1000)
        out = {}
        for arm in self.arms:
            pooled = [ns / 1000 for round in took[arm] for ns in round]
            out[arm] = {"execs": len(pooled), "reader_us": middle(cpu[arm], 2),
                        "exec_us": {"p50": rank(pooled, 0.5), "p99": rank(pooled, 0.99)},
                        "added_us": {name: added(took[arm], took["none"], at)
                                     for name, at in (("p50", 0.5), ("p99", 0.99))}}
        return out

    def latency(self):
        """From the call of exec to the reader, by PID."""
        out = {}
        for arm in self.arms:
            if ARMS[arm] is None or arm not in ALONE or "ignored" in arm:
                continue
            waits, reported = [], []
            for _ in range(1 if self.rounds == 1 else 4):
                with self.reading(arm) as summary:
                    called = numbers(self.run_load("storm", 5 * self.few, GAP), 2)
                at = {pid: (at, seen) for pid, at, seen in summary["seen"]}
                for called_at, pid in called:
                    if pid in at:
                        waits.append((at[pid][1] - called_at) / 1000)
                        reported.append((at[pid][1] - at[pid][0]) / 1000)
            out[arm] = {"execs": len(waits), "from_call_us": {p: rank(waits, q) for p, q in PARTS},
                        "from_event_us": {p: rank(reported, q) for p, q in PARTS}}
        return out

    def storm(self):
        """Two processes start programs as fast as they can."""
        out = {}
        for arm in [arm for arm in self.arms if arm in ALONE or "stat" in arm or "read" in arm]:
            with self.reading(arm) as summary:
                command = [self.load, "storm", str(self.many // 2), "0"]
                began = os.times().elapsed
                both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
                called = [pid for one in both for _, pid in numbers(one.communicate()[0], 2)]
                seconds = os.times().elapsed - began
            seen = {pid for pid, _, _ in summary.pop("seen", ())}
            out[arm] = {"execs_a_second": round(len(called) / seconds), "execs": len(called),
                        "not_seen": len(set(called) - seen) if ARMS[arm] else None, **summary}
        return out

    def namespaces(self):
        """Execs in a PID and mount namespace, and on an overlay: which PIDs are reported?"""
        lower, upper, work, merged = (self.directory / name for name in ("l", "u", "w", "m"))
        script = (f"mount -t overlay -o lowerdir={lower},upperdir={upper},workdir={work} x {merged}"
                  f" && exec chroot {merged} /{self.load.name} storm 5 1000000")
        out = {}
        for arm in [arm for arm in self.arms if arm in ("trace", "connector", "fanotify")]:
            for part in (lower, upper, work, merged):
                part.mkdir(exist_ok=True)
            run("cp", self.load, lower)
            with self.reading(arm) as summary:
                unshare = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script]
                inside = numbers(subprocess.run(unshare, stdout=subprocess.PIPE, check=True).stdout, 2)
            after = [pid for pid, at, _ in summary["seen"] if at >= inside[0][0]]
            out[arm] = {"inside": [pid for _, pid in inside], "reported": after}
        return out


def added(these, others, part):
    """By how much a quantile of all execs is above that without a reader, in µs, with an interval of
    95 % by resampling rounds (bootstrap)."""
    def difference(rounds):
        both = [[ns for at in rounds for ns in arm[at]] for arm in (these, others)]
        return (rank(both[0], part) - rank(both[1], part)) / 1000
    every = range(len(these))
    found = sorted(difference(random.choices(every, k=len(these))) for _ in range(400))
    return [round(value, 1) for value in (difference(every), found[9], found[-10])]


PARTS = (("p50", 0.5), ("p99", 0.99), ("max", 1))


def numbers(data, width):
    """Records of so many 64-bit numbers."""
    flat = array.array("Q", data[:len(data) // (8 * width) * 8 * width])
    return list(zip(*[iter(flat)] * width))


def rank(values, part):
    """The value below which this part of them is."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 2) if ordered else None


def bench():
    options = arguments()
    needs_root("sources of execs need root")
    result = about("headstart/exec-sources/1", options.reader)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        measured = Bench(options, directory)
        if not options.arms:
            result["namespaces"] = measured.namespaces()
            result["latency"] = measured.latency()
            result["storm"] = measured.storm()
        result["costs"] = measured.costs()
    for arm, found in result["costs"].items():
        print(f"{arm:26} exec {found['exec_us']} added {found['added_us']} reader {found['reader_us']}")
    for part in ("latency", "storm", "namespaces"):
        for arm, found in result.get(part, {}).items():
            print(f"{part} {arm:26} {found}")
    write(options.out, result)
    return 0


if __name__ == "__main__":
    main(bench)
