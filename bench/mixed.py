#!/usr/bin/env python3
"""Does the service of headstart gain what it says, in mixed use?

Replays mixed use from a seeded script on a modelled disk, with the service on: cold and hot starts of
programs of several kinds, pauses, reading of files, compiling. Each cold start is made twice in random
order, with the service and while it is paused. Compared with what the service says of itself:
  saved    the differences of the start times
  read     what the disk read more (/sys/block/…/stat)
  wasted   pages that nobody accessed, by the kernel's page flags, and that the start without the service
           does not read (lib/usage.py)
Names the programs of the machine that wasted most, as the service says.

Usage: sudo bench/mixed.py [--for TIME] [--model NAME] [--seed N] [--smoke] [OPTION…]
Ends with status 3 if the figures do not agree, or 10 % and more is wasted.
"""
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from lib import mixture, usage
from lib.alone import alone
from lib.disk import Disk
from lib.mixture import Mixture
from lib.run import Trouble, run
from measured import BUILT, RESULTS, about, command_line, main, needs_root, tool, write

TIMEOUT_S = 120
# A program that has ended is looked at once more, within five seconds.
NOTICED_S = 7
# The first start that is recorded may take 30 s.
SETTLED_S = 60
LOOK_S = 0.05
# The ratio of what the service says that it saved to the measured time that agrees.
AGREES = (0.5, 1.5)
WASTED_MOST = 0.10
# Programs that are named for what they wasted.
NAMED = 10
SECTOR = 512


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--for", dest="time", type=seconds, default=600.0, metavar="TIME",
        help="such as 20m or 1h [default: 10m]")
    add("--model", default="cloud-lazy", help="the disk [default: cloud-lazy]")
    add("--seed", type=int, default=1)
    add("--usage-every", type=int, default=3, metavar="N",
        help="look at the pages after each N-th pair [default: 3]")
    add("--ignore", action="append", default=[], metavar="DIR",
        help="programs below it are ignored: those of other work on this machine")
    add("--smoke", action="store_true", help="one program for half a minute: does it work?")
    add("--headstart", default=BUILT / "headstart")
    add("--slowdisk", default=BUILT / "slowdisk")
    add("--out", default=RESULTS / "mixed.json")
    return parser.parse_args()


def seconds(text):
    """A time as 90, 90s, 20m or 1h, in seconds."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:])
    return float(text[:-1] if unit else text) * (unit or 1)


class Mixed(Disk):
    """The disk with the programs."""

    name = "headstart-mixed"

    def device_bytes(self):
        """What the disk has read so far."""
        device = run("findmnt", "-no", "SOURCE", self.mount, capture=True).strip()
        stat = Path("/sys/block", Path(device).name, "stat").read_text().split()
        return int(stat[2]) * SECTOR

    def remount(self):
        """A cold cache for this disk alone."""
        until = time.monotonic() + SETTLED_S
        while True:
            try:
                return run(self.slowdisk, "remount", self.mount)
            except Trouble:
                # Somebody has still a file open.
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)


class Service:
    """The service, with places of its own."""

    def __init__(self, headstart, folder, ignore):
        self.headstart, self.folder = headstart, Path(folder)
        (self.folder / "conf").write_text("".join(f"ignore = {folder}\n" for folder in ignore))
        self.messages = open(self.folder / "messages", "w")
        self.running = subprocess.Popen(
            [headstart, "daemon", "run", "--config", self.folder / "conf", "--state",
             self.folder / "state", "--socket", self.folder / "socket"],
            env=os.environ | {"HEADSTART_PACKS": str(self.folder / "packs")},
            stdin=subprocess.DEVNULL, stdout=self.messages, stderr=self.messages)
        self.until(lambda: self.running.poll() is not None or (self.folder / "socket").exists(), 10)
        if self.running.poll() is not None:
            raise Trouble(f"the service ended: {(self.folder / 'messages').read_text()}")

    def ask(self, *words):
        return json.loads(run(self.headstart, "daemon", *words, "--json", "--socket",
                              self.folder / "socket", capture=True))

    def status(self):
        return self.ask("status")["status"]

    @staticmethod
    def until(condition, limit):
        """Waits for a condition; what it is, or nothing in time, in which this process was not stopped."""
        for _ in range(int(limit / LOOK_S)):
            found = condition()
            if found:
                return found
            time.sleep(LOOK_S)
        return None

    def settle(self):
        """Waits until it neither reads nor learns."""
        def is_settled():
            now = self.status()
            return now["recording"] == 0 and now["in_flight_bytes"] == 0
        if not self.until(is_settled, SETTLED_S):
            raise Trouble(f"the service does not come to rest in {SETTLED_S} s")

    def start_of(self, pid):
        """What it says of a start that has ended; nothing if it did not notice it, or skipped it."""
        def found():
            starts = self.ask("top").get("starts", [])
            return next((start for start in starts if start["pid"] == pid), None)
        return self.until(found, NOTICED_S)

    def cpu_s(self):
        user, system = Path(f"/proc/{self.running.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def rss_kb(self):
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])

    def end(self):
        self.running.terminate()
        try:
            self.running.wait(20)
        except subprocess.TimeoutExpired:
            self.running.kill()
            self.running.wait()
        self.messages.close()


class Gaps:
    """Notices when this process was stopped, as by another measurement, or got no CPU time."""

    TICK_S, GAP_S = 0.05, 0.5

    def __init__(self):
        self.count = 0
        threading.Thread(target=self.tick, daemon=True).start()

    def tick(self):
        last = time.monotonic()
        while True:
            time.sleep(self.TICK_S)
            now = time.monotonic()
            self.count += now - last > self.GAP_S
            last = now


class Use:
    """The use of the machine, one action after the other."""

    def __init__(self, disk, service, mix, options):
        self.disk, self.service, self.options = disk, service, options
        self.programs, self.environment = mix.programs(), mix.environment()
        self.order = random.Random(options.seed + 1)
        self.pairs, self.counts, self.gaps = [], {}, Gaps()
        self.scratch = tempfile.mkdtemp(prefix="headstart-mixed-")

    def start(self, command):
        """One start: its process and its time."""
        began = time.perf_counter()
        program = subprocess.Popen(command, env=self.environment, cwd="/", stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, errors = program.communicate(timeout=TIMEOUT_S)
        except BaseException:
            program.kill()
            program.wait()
            raise
        took = time.perf_counter() - began
        if program.returncode:
            raise Trouble(f"{command[0]} ended with status {program.returncode}: {errors[-300:]!r}")
        return program.pid, took

    def cold(self, name):
        """A cold start with and without the service, in random order."""
        looks = len(self.pairs) % self.options.usage_every == 0
        pair = {"program": name, "at": round(time.monotonic() - self.began, 1)}
        resident, unused = {}, {}
        for arm in self.order.sample(["with", "without"], 2):
            self.service.settle()
            self.service.ask("resume" if arm == "with" else "pause")
            self.disk.remount()
            gaps = self.gaps.count
            before = self.disk.device_bytes()
            pid, took = self.start(self.programs[name])
            found = {"s": took, "disturbed": self.gaps.count > gaps}
            if arm == "with":
                said = self.service.start_of(pid)
                self.service.settle()
                found["said"] = said
            found["device_bytes"] = self.disk.device_bytes() - before
            if looks:
                resident[arm], unused[arm] = usage.pages_of(self.disk.mount)
                found |= {"resident_pages": len(resident[arm]), "unused_pages": len(unused[arm])}
            pair[arm] = found
        if looks:
            pair["wasted_pages"] = len(unused["with"] - resident["without"])
        self.service.ask("resume")
        self.pairs.append(pair)
        said = pair["with"]["said"] or {"kind": "not noticed", "saved_us": 0}
        print(f"{pair['at']:7.0f} s  {name:18} {pair['with']['s']:.3f} s with, {pair['without']['s']:.3f} s "
              f"without; {said['kind']}, {said['saved_us'] / 1e6:.3f} s saved", flush=True)

    def hot(self, argument):
        name, times = argument
        for _ in range(times):
            self.start(self.programs[name])

    def read(self, numbers):
        for number in numbers:
            self.start(["/bin/cat", f"{self.disk.mount}/data/{number}"])

    def idle(self, pause):
        time.sleep(pause)

    def compile(self, times):
        for _ in range(times):
            for number in range(mixture.SOURCES):
                self.start(["/usr/bin/gcc", "-c", f"{self.disk.mount}/source/{number}.c", "-o",
                            f"{self.scratch}/{number}.o"])

    def go(self, until, programs):
        self.began = time.monotonic()
        for action, argument in mixture.script(self.options.seed, programs):
            if time.monotonic() >= until:
                break
            self.counts[action] = self.counts.get(action, 0) + 1
            getattr(self, action)(argument)
        shutil.rmtree(self.scratch)


def summary(pairs, seed):
    """What was measured, and what the service says of the same starts."""
    disturbed = [pair for pair in pairs if pair["with"]["disturbed"] or pair["without"]["disturbed"]]
    pairs = [pair for pair in pairs if pair not in disturbed]
    said = [(pair, pair["with"]["said"]) for pair in pairs if pair["with"]["said"]]
    read = [(pair, start) for pair, start in said if start["kind"] == "prefetched"]
    gains = [pair["without"]["s"] - pair["with"]["s"] for pair, _ in read]
    saved = sum(start["saved_us"] for _, start in read) / 1e6
    read_bytes = sum(start["read_bytes"] for _, start in said)
    more = sum(pair["with"]["device_bytes"] - pair["without"]["device_bytes"] for pair, _ in read)
    looked = [(pair, start) for pair, start in read if "wasted_pages" in pair]
    wasted = usage.PAGE * sum(pair["wasted_pages"] for pair, _ in looked)
    of = sum(start["read_bytes"] for _, start in looked)
    kinds = {}
    for pair in pairs:
        kind = pair["with"]["said"]["kind"] if pair["with"]["said"] else "not noticed"
        entry = kinds.setdefault(kind, {"starts": 0, "with_s": 0.0, "without_s": 0.0})
        entry["starts"] += 1
        entry["with_s"] += pair["with"]["s"]
        entry["without_s"] += pair["without"]["s"]
    low, high = resampled(gains, seed)
    return {
        "disturbed_pairs": len(disturbed),
        "prefetched_starts": len(read),
        "saved_s": {"measured": sum(gains), "low": low, "high": high, "said": saved,
                    "ratio": saved / sum(gains) if sum(gains) > 0 else None},
        "read_bytes": {"said": read_bytes, "device_more": more},
        "wasted": {"bytes": wasted, "of_read_bytes": of, "share": wasted / of if of else None},
        "by_kind": kinds,
        "by_program": {name: of_program(name, read) for name in sorted({p["program"] for p in pairs})},
    }


def of_program(name, read):
    """Medians of the prefetched starts of one program."""
    mine = [(pair, start) for pair, start in read if pair["program"] == name]
    if not mine:
        return None
    middle = lambda values: round(statistics.median(values), 4)
    return {"starts": len(mine), "with_s": middle([pair["with"]["s"] for pair, _ in mine]),
            "without_s": middle([pair["without"]["s"] for pair, _ in mine]),
            "said_saved_s": middle([start["saved_us"] / 1e6 for _, start in mine])}


def wasteful(programs):
    """Those of the programs in `daemon top` that wasted most."""
    most = sorted(programs, key=lambda program: program["wasted_bytes"], reverse=True)[:NAMED]
    return [{"name": program["name"], "starts": program["starts"], "read_bytes": program["read_bytes"],
             "wasted_bytes": program["wasted_bytes"], "saved_s": program["saved_us"] / 1e6}
            for program in most if program["wasted_bytes"]]


def resampled(values, seed):
    """The interval of 95 % of a sum, by resampling."""
    if len(values) < 2:
        return None, None
    draw = random.Random(seed)
    sums = sorted(sum(draw.choices(values, k=len(values))) for _ in range(2000))
    return sums[50], sums[-51]


def measure(options):
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    slowdisk = tool(options.slowdisk, "cargo build --release -p slowdisk, or --slowdisk FILE")
    result = about("headstart/mixed/1", headstart)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headstart-mixed-"))
        # The place of the disk does not depend on the image.
        mix = Mixture(folder, Path("/dev/shm") / Mixed.name / "root")
        image = mix.image()
        disk = stack.enter_context(Mixed(slowdisk, options.model, image))
        image.unlink()
        service = Service(headstart, stack.enter_context(
            tempfile.TemporaryDirectory(prefix="headstart-mixed-")), options.ignore)
        stack.callback(service.end)
        use = Use(disk, service, mix, options)
        programs = list(use.programs)
        try:
            use.go(time.monotonic() + options.time, programs[:1] if options.smoke else programs)
        finally:
            result |= {"model": options.model, "seed": options.seed, "for_s": options.time,
                       "ignored_directories": len(options.ignore),
                       "actions": use.counts, "status": service.status(),
                       "wasteful": wasteful(service.ask("top").get("programs", [])), "cpu_s": service.cpu_s(),
                       "peak_kb": service.rss_kb(), "messages": (service.folder / "messages").read_text(),
                       **summary(use.pairs, options.seed), "pairs": use.pairs}
            if not options.smoke:
                write(options.out, result)
    return result


def told(result, is_smoke):
    """The result in words; what does not agree. Half a minute says only whether it works."""
    saved, unused, week = result["saved_s"], result["wasted"], result["status"]["week"]
    between = f" [{saved['low']:.1f}, {saved['high']:.1f}]" if saved["low"] is not None else ""
    wasted = week["wasted_bytes"] / week["judged_bytes"] if week["judged_bytes"] else None
    percent = lambda share: "unknown" if share is None else f"{100 * share:.1f} %"
    print(f"{result['prefetched_starts']} prefetched starts ({result['disturbed_pairs']} pairs were disturbed): saved {saved['measured']:.1f} s{between}, as the "
          f"service says {saved['said']:.1f} s")
    print(f"this week: {week['saved_us'] / 1e6:.1f} s saved in {week['prefetched']} starts, "
          f"{week['read_bytes'] / 1e6:.0f} MB read; the disk read "
          f"{result['read_bytes']['device_more'] / 1e6:.0f} MB more in these starts than without")
    print(f"wasted: {percent(wasted)} as the service says, {percent(unused['share'])} by page flags")
    for program in result["wasteful"]:
        print(f"  {program['wasted_bytes'] / 1e6:7.1f} of {program['read_bytes'] / 1e6:7.1f} MB wasted, "
              f"{program['saved_s']:6.1f} s saved, {program['starts']:4} starts  {program['name']}")
    if not result["prefetched_starts"]:
        return ["nothing was prefetched"]
    faults = []
    if is_smoke:
        return faults
    if saved["ratio"] is None or not AGREES[0] <= saved["ratio"] <= AGREES[1]:
        faults.append(f"saved times differ: {saved['ratio']}")
    for what, share in (("service", wasted), ("page flags", unused["share"])):
        if share is not None and share >= WASTED_MOST:
            faults.append(f"{percent(share)} wasted, by {what}")
    return faults


def mixed():
    options = arguments()
    needs_root("tracing and modelled disks need root")
    mixture.needed()
    alone()
    if options.smoke:
        options.time, options.usage_every = 25.0, 1
    result = measure(options)
    faults = told(result, options.smoke)
    for fault in faults:
        print(f"FAILED: {fault}")
    return 3 if faults else 0


if __name__ == "__main__":
    main(mixed)
