"""Starts commands. Knows nothing of what they are for."""

import os
import signal
import subprocess
import time
from pathlib import Path

# How long a command may take to clean up when it is stopped.
GRACE_S = 60


class Trouble(Exception):
    """Something went wrong; the text says what, and what to do."""


def run(*words, capture=False, **options):
    """Runs a command to its end and returns what it printed, if asked to.

    A command that fails is Trouble with its last lines. When this script is
    interrupted, the command gets the time to clean up: subprocess.run would
    kill it, and leave its mounts and processes behind.
    """
    words = [str(word) for word in words]
    stdout = subprocess.PIPE if capture else subprocess.DEVNULL
    child = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
        text=True, errors="replace", **options,
    )
    try:
        out, messages = child.communicate()
    except BaseException:
        child.send_signal(signal.SIGINT)
        try:
            child.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
        raise
    if child.returncode:
        last = [line for line in messages.splitlines() if line.strip()][-5:]
        raise Trouble(f"{' '.join(words[:6])} … ended with status {child.returncode}: "
                      + " / ".join(last))
    return out


def mounted_under(directory):
    """The mount points at and below a directory, the deepest first."""
    directory = str(Path(directory).resolve())
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].replace("\\040", " ")
        if point == directory or point.startswith(directory + "/"):
            points.append(point)
    return sorted(points, key=len, reverse=True)


def wait_for_helpers(headstart):
    """Waits until no helper process of `headstart run` is left: it learns after the program."""
    binary = os.path.realpath(headstart)
    while any(_executable(process) == binary for process in Path("/proc").glob("[0-9]*")):
        time.sleep(0.01)


def _executable(process):
    try:
        return os.readlink(process / "exe")
    except OSError:
        return None
