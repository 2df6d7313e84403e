"""Boots a guest as a container: its own systemd, this machine's kernel."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from lib.run import Trouble

from rig import report

LIMIT_S = 120
# It needs no systemd outside: no registration, no unit, no network of its own.
NSPAWN = ("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit",
          "--private-network", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
          "--console=read-only")


def command(root, reports):
    """The command that boots what is in a directory, and gets its report in another."""
    return [*NSPAWN, f"--directory={root}", f"--bind={reports}:/run/boot-report",
            "systemd.unit=multi-user.target"]


def boot(root, before=(), env=None, keep=None):
    """Boots what is in a directory and waits until it has turned itself off.

    `before` are words in front of the command, of what starts it. Times in the
    report count from the moment when the command was started: a container counts
    by this machine's clock. What the guest reports is copied to the directory `keep`.
    """
    with tempfile.TemporaryDirectory(prefix="boot-report-") as reports, \
            tempfile.TemporaryFile() as console:
        words = [*map(str, before), *command(root, reports)]
        began_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=console,
                                 stderr=console, env=env, start_new_session=True)
        try:
            child.wait(LIMIT_S)
        except BaseException as why:
            end(child)
            if isinstance(why, subprocess.TimeoutExpired):
                raise Trouble(f"the container did not end in {LIMIT_S} s: {tail(text(console))}") from None
            raise
        if keep:
            shutil.copytree(reports, keep, dirs_exist_ok=True)
        said = Path(reports) / "report"
        found = report.parse(said.read_text()) if said.exists() else None
        if found is None:
            raise Trouble(f"the container ended with status {child.returncode} and reached no "
                          f"multi-user.target: {tail(text(console))}")
    return report.Report(found.state, found.userspace_us - began_us, found.finish_us - began_us,
                         {name: at - began_us for name, at in found.reached_us.items()},
                         found.failed)


def end(child):
    """Ends a container, and waits until nothing of it is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def text(console):
    """What a console has been given."""
    console.seek(0)
    return console.read().decode(errors="replace")


def tail(said):
    """The end of it, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return " / ".join(lines[-4:]) or "it said nothing"
