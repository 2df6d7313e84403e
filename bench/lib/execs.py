"""A load of execs: programs of some microseconds, as fast as fork allows or at a rate; and what is added to
an exec by who looks at it."""

import array
import contextlib
import random
import subprocess
import time
from pathlib import Path

from lib.run import Trouble
from measured import run

HERE = Path(__file__).resolve().parent


class Load:
    """The program of exec-load.c, built in a directory."""

    def __init__(self, directory):
        # The comma keeps it out of the filter for names that are executed often.
        self.program = Path(directory) / "exec,load"
        self.frequent = Path(directory) / "exec-load"
        run("gcc", "-O2", "-static", "-nostdlib", "-fno-stack-protector", "-fno-pie", "-no-pie",
            "-o", self.program, HERE / "exec-load.c")
        self.frequent.symlink_to(self.program.name)

    def storm(self, execs, gap_ns=0, program=None):
        """How fast they are started."""
        called, seconds = self.called(execs, gap_ns, program)
        return {"execs": len(called), "seconds": round(seconds, 2), "execs_a_second": round(len(called) / seconds)}

    def called(self, execs, gap_ns=0, program=None):
        """When each program was executed, with its PID; and the seconds of all. Two processes start them, at a
        rate there is one. All of them have to end well."""
        starters = 1 if gap_ns else 2
        words = [str(program or self.program), "storm", str(execs // starters), str(gap_ns)]
        began = time.monotonic()
        both = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(starters)]
        records = [one.communicate()[0] for one in both]
        seconds = time.monotonic() - began
        if any(one.returncode for one in both):
            raise Trouble("a process that starts programs failed")
        called = [call for data in records for call in numbers(data, 2)]
        if len(called) != starters * (execs // starters):
            raise Trouble(f"{len(called)} of {execs} programs ran")
        return called, seconds

    def chain(self, execs, gap_ns, program=None):
        """One process executes itself again and again; the ns that each exec took."""
        words = [program or self.program, "chain", str(execs), str(gap_ns)]
        data = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
        return [ns for (ns,) in numbers(data, 1)]

    @contextlib.contextmanager
    def running(self):
        """Programs start meanwhile."""
        words = [str(self.program), "storm", "1000000", "200000"]
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            child.kill()
            child.wait()


def numbers(data, width):
    """Records of so many 64-bit numbers."""
    flat = array.array("Q", data[:len(data) // (8 * width) * 8 * width])
    return list(zip(*[iter(flat)] * width))


def rank(values, part):
    """The value below which this part of them is."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 2) if ordered else None


def added(these, others):
    """By how much the median and p99 of all execs are above those of others, in µs, with an interval of 95 %
    by resampling rounds (bootstrap)."""
    return {name: above(these, others, at) for name, at in (("p50", 0.5), ("p99", 0.99))}


def above(these, others, part):
    def difference(rounds):
        both = [[ns for at in rounds for ns in arm[at]] for arm in (these, others)]
        return (rank(both[0], part) - rank(both[1], part)) / 1000
    every = range(len(these))
    found = sorted(difference(random.choices(every, k=len(these))) for _ in range(400))
    return [round(value, 1) for value in (difference(every), found[9], found[-10])]
