#!/usr/bin/env python3
"""Which kernel interface reports execs best? The figures behind doc/daemon.md.

Usage: bench/exec-sources.py [--rounds N] [--sources NAME,…] [--arms ARM;…] [--quick] [--out FILE]
For each source: what it adds to an exec and costs its reader at 10,000 execs a minute, how long
it takes until the reader knows of an exec, what is lost as fast as fork allows, and what it says
of execs in namespaces. Needs root and gcc; build first:
cargo build --release -p headstart-daemon --example exec_sources
"""
import contextlib
import json
import random
import subprocess
import tempfile
from pathlib import Path

from lib.execs import Load, added, numbers, rank
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
        self.load = Load(directory)
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
        words = [str(word).replace("LOAD", str(self.load.program)) for word in ARMS[arm]]
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

    def costs(self):
        """What an exec takes, and the reader's CPU time for it, in rounds in random order."""
        took = {arm: [] for arm in self.arms}
        cpu = {arm: [] for arm in self.arms}
        for _ in range(self.rounds):
            for arm in random.sample(self.arms, len(self.arms)):
                with self.reading(arm) as summary:
                    program = self.load.frequent if arm == "trace, ignored" else self.load.program
                    if program == self.load.frequent:
                        # Often enough, and then the reader has time to set the filter.
                        self.load.chain(70, GAP // 10, program)
                    took[arm].append(self.load.chain(self.few, GAP, program))
                cpu[arm].append(summary.get("cpu_ns", 0) / self.few / 1000)
        out = {}
        for arm in self.arms:
            pooled = [ns / 1000 for round in took[arm] for ns in round]
            out[arm] = {"execs": len(pooled), "reader_us": middle(cpu[arm], 2),
                        "exec_us": {"p50": rank(pooled, 0.5), "p99": rank(pooled, 0.99)},
                        "added_us": added(took[arm], took["none"])}
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
                    called, _ = self.load.called(5 * self.few, GAP)
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
                called, seconds = self.load.called(self.many)
            seen = {pid for pid, _, _ in summary.pop("seen", ())}
            out[arm] = {"execs_a_second": round(len(called) / seconds), "execs": len(called),
                        "not_seen": len({pid for _, pid in called} - seen) if ARMS[arm] else None, **summary}
        return out

    def namespaces(self):
        """Execs in a PID and mount namespace, and on an overlay: which PIDs are reported?"""
        lower, upper, work, merged = (self.directory / name for name in ("l", "u", "w", "m"))
        script = (f"mount -t overlay -o lowerdir={lower},upperdir={upper},workdir={work} x {merged}"
                  f" && exec chroot {merged} /{self.load.program.name} storm 5 1000000")
        out = {}
        for arm in [arm for arm in self.arms if arm in ("trace", "connector", "fanotify")]:
            for part in (lower, upper, work, merged):
                part.mkdir(exist_ok=True)
            run("cp", self.load.program, lower)
            with self.reading(arm) as summary:
                unshare = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script]
                inside = numbers(subprocess.run(unshare, stdout=subprocess.PIPE, check=True).stdout, 2)
            after = [pid for pid, at, _ in summary["seen"] if at >= inside[0][0]]
            out[arm] = {"inside": [pid for _, pid in inside], "reported": after}
        return out


PARTS = (("p50", 0.5), ("p99", 0.99), ("max", 1))


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
