"""Others who use a file system while it is laid out."""
import contextlib
import os
import random
import threading
import time

from lib.run import Trouble
from measured import run


@contextlib.contextmanager
def meanwhile(what, rig):
    """Others use the file system meanwhile."""
    if not what:
        yield
        return
    stop = threading.Event()
    act = {"commit": commit, "write": rewrite, "fill": fill, "snapshots": snapshots}[what]
    given = rig.all() if what == "write" else rig.mount
    thread = threading.Thread(target=act, args=(given, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def commit(mount, stop):
    """Makes the file system commit all the time, by files that come and go."""
    chance, number = random.Random(3), 0
    with contextlib.suppress(OSError):
        while not stop.is_set():
            path = mount / f"other{number % 7}"
            with open(path, "wb", buffering=0) as file:
                file.write(bytes(chance.randrange(1, 60_000)))
                os.fsync(file.fileno())
            if number % 3 == 0:
                path.unlink()
            number += 1


def rewrite(paths, stop):
    """Writes the same bytes to files that are laid out or moved aside, through names of their own."""
    chance = random.Random(4)
    with contextlib.suppress(OSError):
        while not stop.is_set():
            path = chance.choice(paths)
            at = chance.randrange(0, path.stat().st_size - 500)
            with open(path, "r+b", buffering=0) as file:
                same = os.pread(file.fileno(), 500, at)
                os.pwrite(file.fileno(), same, at)
                if chance.random() < 0.3:
                    os.fsync(file.fileno())
            time.sleep(0.002)


def begun(mount, stop):
    """Waits until a layout has begun: it does not on a full disk, and with files that snapshots share."""
    while not stop.is_set() and not (mount / ".headstart-layout/journal").exists():
        time.sleep(0.001)


def fill(mount, stop):
    """Fills the disk again and again."""
    number = 0
    begun(mount, stop)
    while not stop.is_set():
        with contextlib.suppress(OSError), open(mount / "fill", "wb", buffering=0) as file:
            while not stop.is_set():
                file.write(bytes(64 << 10))
        with contextlib.suppress(OSError):
            if number % 2:
                (mount / "fill").unlink()
        number += 1
        time.sleep(0.01)


def snapshots(mount, stop):
    """Makes and removes snapshots of a btrfs."""
    number = 0
    begun(mount, stop)
    while not stop.is_set():
        path = mount / f"snapshot{number % 3}"
        with contextlib.suppress(Trouble):
            if path.exists():
                run("btrfs", "subvolume", "delete", path)
            run("btrfs", "subvolume", "snapshot", mount, path)
        number += 1
        time.sleep(0.01)
