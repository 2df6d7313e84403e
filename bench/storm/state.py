"""What headstart may leave behind: in the store of packs, in the kernel, as processes."""
import contextlib
import os
import subprocess
import time
from pathlib import Path

INSTANCES = Path("/sys/kernel/tracing/instances")
# Settings of the kernel that headstart changes while it works, as globs below /sys.
SETTINGS = ("kernel/debug/fault_around_bytes", "kernel/tracing/tracing_on", "kernel/tracing/set_event",
            "kernel/tracing/set_event_pid", "kernel/tracing/current_tracer", "kernel/tracing/trace_clock",
            "kernel/tracing/buffer_size_kb", "kernel/tracing/options/*", "block/*/queue/read_ahead_kb",
            "class/bdi/*/read_ahead_kb", "kernel/mm/transparent_hugepage/*", "../proc/sys/vm/*")
# The kernel removes a trace instance in the background, and a helper learns after the end.
PATIENCE_S = 40


def settings():
    """The kernel settings as they are."""
    found = {}
    for pattern in SETTINGS:
        for path in sorted(Path("/sys").glob(pattern)):
            with contextlib.suppress(OSError):
                found[str(path)] = path.read_text()
    return found


def instances():
    """The trace instances of headstart."""
    with contextlib.suppress(OSError):
        return [path.name for path in INSTANCES.iterdir() if path.name.startswith("headstart-")]
    return []


def processes(headstart):
    """The numbers of processes of this executable, but zombies that others have to reap."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "exe") == str(headstart):
                found.append(int(entry.name))
    return found


def settled(headstart, patience=PATIENCE_S):
    """Waits until no process and no trace instance is left; returns those that stay."""
    until = time.monotonic() + patience
    while (left := processes(headstart) + instances()) and time.monotonic() < until:
        time.sleep(0.002)
    return left


def leftovers(store):
    """Files in the store that are neither packs nor kept beside them."""
    kept = (".pack", ".pack.last", ".json", ".lock")
    return [path.name for path in Path(store).rglob("*")
            if path.is_file() and not path.name.endswith(kept)]


def damaged(headstart, store):
    """Packs that headstart does not decode, with what it says."""
    found = []
    for pack in sorted(Path(store).rglob("*.pack")):
        shown = subprocess.run([headstart, "show", "--json", pack], capture_output=True, text=True)
        if shown.returncode:
            found.append(f"{pack.name}: {shown.stderr.strip()}")
    return found
