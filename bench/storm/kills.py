#!/usr/bin/env python3
"""Does headstart leave anything behind that the next start does not clean, when it is killed?

Starts `run`, `run -v`, `record`, `record --exact`, `replay`, `boot record`, `pack renew`, `unit`,
`unit --remove` and `bench` in turn, kills one of its processes (the one that was started, a helper, or all of them) by SIGKILL at a
random moment, and starts a program through headstart. Looked at then: that start's output and
status, the packs, other files in the store, trace instances, processes, and the kernel settings
that headstart changes; nothing else may use headstart meanwhile. A kill that came after the end does not count.

Usage: bench/storm/kills.py [-n N] [--seed N] [--headstart FILE] [--out FILE] [--smoke]
Ends with status 3 if anything was left behind.
"""
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from measured import about, main, needs_root, run, tool, write  # noqa: E402
from options import drawn  # noqa: E402
from state import damaged, leftovers, processes, settings, settled  # noqa: E402

VICTIMS = ("the process", "the helpers", "all")
# Packs are decoded after so many kills, which takes longer than a start.
BATCH = 20


class Rig:
    """Commands to be killed, and a store of packs."""

    def __init__(self, headstart, place):
        self.headstart = headstart
        self.place = Path(place)
        self.store = self.place / "packs"
        self.root = self.place / "root"
        for name, content in (("etc/systemd/system/web.service", "[Service]\nExecStart=/bin/web\n"),
                              ("usr/bin/headstart", "")):
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        files = self.place / "files"
        files.mkdir()
        for number in range(200):
            (files / f"{number:03}").write_bytes(os.urandom(40_000))
        self.program = self.place / "program"
        self.program.write_text(f"#!/bin/sh\ncat {files}/* | wc -c\n")
        self.program.chmod(0o755)
        # What is learned of boots is not this machine's.
        self.hidden = ["unshare", "--mount", "sh", "-c",
                       "for d in /var/lib/headstart /run/headstart; do"
                       " mkdir -p $d && mount -t tmpfs none $d || exit; done; exec \"$0\" \"$@\""]
        self.environment = os.environ | {"HEADSTART_PACKS": str(self.store)}
        program = str(self.program)
        self.commands = {
            "run": ["run", "--always", "--", program],
            "run -v": ["run", "-v", "--always", "--", program],
            "record": ["record", "--", program],
            "record --exact": ["record", "--exact", "--", program],
            "replay": ["replay", "--wait", "program"],
            "boot record": ["boot", "record", "--timeout", "1s", "--instance", "headstart-storm"],
            "pack renew": ["pack", "renew"],
            "unit": ["unit", "--root", str(self.root), "web"],
            "unit --remove": ["unit", "--root", str(self.root), "--remove", "web"],
            "bench": ["bench", "--runs", "2", "--states", "hot,prefetched", "--", program],
        }

    def popen(self, words):
        before = self.hidden if words[0] in ("boot", "pack") else []
        return subprocess.Popen([*before, self.headstart, *words], stdin=subprocess.DEVNULL, env=self.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True)

    def duration(self, name):
        """How long a command takes, in seconds, until no process of it is left."""
        self.evict()
        began = time.monotonic()
        self.popen(self.commands[name]).wait()
        while processes(self.headstart):
            time.sleep(0.001)
        return time.monotonic() - began

    def evict(self):
        """What the program reads has to come from the disk."""
        run(self.headstart, "evict", "--quiet", self.place / "files")


def shoot(rig, name, after, victim):
    """Starts a command and kills a part of it; returns whether there was one to kill."""
    running = rig.popen(rig.commands[name])
    time.sleep(after)
    hit = False
    with contextlib.suppress(ProcessLookupError):
        if victim == "the process":
            hit = running.poll() is None
            running.send_signal(signal.SIGKILL)
        else:
            if victim == "all" and running.poll() is None:
                hit = True
                os.killpg(running.pid, signal.SIGKILL)
            for pid in processes(rig.headstart):
                if pid != running.pid:
                    hit = True
                    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        # A program whose parent was killed goes on, as without headstart.
        running.wait(60)
        os.killpg(running.pid, signal.SIGKILL)
    return hit


def next_start(rig, verb="run"):
    """What is wrong with a start after a kill, or nothing."""
    options = ["--always"] if verb == "run" else ["--quiet"]
    done = subprocess.run([rig.headstart, verb, *options, "--", rig.program],
                          env=rig.environment, capture_output=True, text=True, timeout=120)
    if (done.returncode, done.stdout, done.stderr) != (0, "8000000\n", ""):
        return f"next start: status {done.returncode}, {done.stdout!r}, {done.stderr!r}"
    return None


def kills():
    parser = drawn(__doc__, "kills", "8 kills", 1000, "kills")
    parser.add_argument("--commands", metavar="NAME,…", help="only these [default: all]")
    options = parser.parse_args()
    needs_root("Recording is a part of it")
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    result = about("headstart/storm-kills/1", headstart) | {"seed": options.seed}
    chance = random.Random(options.seed)
    count = 8 if options.smoke else options.n
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        rig = Rig(headstart, place)
        if options.commands:
            rig.commands = {name: rig.commands[name] for name in options.commands.split(",")}
        next_start(rig)
        settled(headstart)
        durations = {name: rig.duration(name) for name in rig.commands}
        before, bad = settings(), []
        tally = collections.Counter()
        hits = starts = later = 0
        while hits < count:
            name = list(rig.commands)[starts % len(rig.commands)]
            victim = chance.choice(VICTIMS)
            after = chance.uniform(0, durations[name])
            starts += 1
            rig.evict()
            if not shoot(rig, name, after, victim):
                continue
            hits += 1
            tally[f"{name}: {victim}"] += 1
            wrong = [next_start(rig)]
            left = settled(headstart)
            if left or leftovers(rig.store):
                # A well known program is not learned while the kernel removes the trace of the
                # killed start, or its last thread holds the lock of it; the next one that is
                # learned cleans.
                later += 1
                wrong += [next_start(rig, "record")]
                left = settled(headstart)
            wrong += [f"in the store: {files}" if (files := leftovers(rig.store)) else None]
            wrong += [f"left: {left}"] if left else []
            changed = [path for path, value in settings().items() if before.get(path) != value]
            wrong += [f"changed: {changed}"] if changed else []
            if hits % BATCH == 0 or hits == count:
                wrong += damaged(headstart, rig.store)
            wrong = [what for what in wrong if what]
            if wrong:
                bad.append({"number": hits, "command": name, "victim": victim,
                            "after_s": round(after, 4), "wrong": wrong})
                print(f"{hits}: {name}, {victim} after {after:.3f} s: {wrong}", flush=True)
    result |= {"kills": hits, "starts": starts, "cleaned_later": later, "durations_s": durations, "tally": tally, "bad": bad}
    print(f"{hits} kills in {starts} starts; {len(bad)} left something behind, {later} until the next "
          "start that was learned")
    if not options.smoke:
        write(options.out, result)
    return 3 if bad else 0


if __name__ == "__main__":
    main(kills)
