"""A load of execs: programs of some microseconds, as fast as fork allows or at a rate."""

import array
import contextlib
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
        """Two processes start programs; all of them have to end well. At a rate there is one."""
        starters = 1 if gap_ns else 2
        words = [str(program or self.program), "storm", str(execs // starters), str(gap_ns)]
        began = time.monotonic()
        both = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(starters)]
        records = [one.communicate()[0] for one in both]
        seconds = time.monotonic() - began
        if any(one.returncode for one in both):
            raise Trouble("a process that starts programs failed")
        # Of each two numbers, when it was called and its PID.
        ended = sum(len(array.array("Q", data)) // 2 for data in records)
        if ended != starters * (execs // starters):
            raise Trouble(f"{ended} of {execs} programs ran")
        return {"execs": ended, "seconds": round(seconds, 2), "execs_a_second": round(ended / seconds)}

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
