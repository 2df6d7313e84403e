"""A modelled disk with a root image on it, and starts of programs from there."""

import contextlib
import fcntl
import json
import os
import shutil
import statistics
import time
from pathlib import Path

from lib.image import unmount
from lib.run import Trouble, run

HERE = Path(__file__).resolve().parent.parent
# How a disk's bandwidth is measured.
TRIALS, SEQUENCE_MIB = 3, 128


class Disk:
    """A disk that is up while the `with` block lasts, whatever ends that.

    `name` is the benchmark's, of which there is one at a time. With `keep` the image itself is written to.
    """

    name = "headstart-disk"
    # Where it is mounted in its folder.
    point = "root"
    # What looks for pages that the kernel reclaims, if anything does (lib/reclaim.py).
    watch = None

    def __init__(self, slowdisk, model, image, keep=False):
        self.slowdisk, self.model, self.image = slowdisk, model, image
        self.options = ["--keep-writes"] if keep else []

    def __enter__(self):
        # In memory, so that starting a program touches no other disk; and always
        # the same, because a pack that was learned on one disk is read on others.
        self.folder = Path("/dev/shm") / self.name
        self.mount = self.folder / self.point
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self.lock)
            raise Trouble(f"{self.folder} is in use: wait for the other benchmark") from None
        try:
            self.mount.mkdir(exist_ok=True)
            with contextlib.suppress(Trouble):  # Of a run that was killed, if any.
                run(self.slowdisk, "down", self.mount)
            run(self.slowdisk, "up", "--model", self.model, "--image", self.image,
                "--mount", self.mount, "--options", "noatime", *self.options)
            self.furnish()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if os.path.ismount(self.mount):
            run(self.slowdisk, "down", self.mount)
        # What a killed `up` left; a file system that is busy stays, and is named.
        unmount(self.mount)
        shutil.rmtree(self.folder)
        os.close(self.lock)

    def furnish(self):
        """Prepares what starts need in addition to the disk."""

    def cold(self):
        """The command that empties this disk's cache."""
        return f"{self.slowdisk} remount {self.mount}"

    def empty(self):
        """Empties this disk's cache."""
        run(*self.cold().split())
        if self.watch:
            self.watch.clear()

    def bandwidth(self):
        """What a program reads from the disk in sequence, in MB a second: the median of some trials."""
        device = run("findmnt", "--noheadings", "--output", "SOURCE", self.mount, capture=True).strip()
        found = []
        for _ in range(TRIALS):
            self.empty()
            began = time.monotonic()
            with open(device, "rb", buffering=0) as opened:
                bytes_read = sum(len(opened.read(1 << 20)) for _ in range(SEQUENCE_MIB))
            found.append(bytes_read / 1e6 / (time.monotonic() - began))
        return round(statistics.median(found), 1)

    def counted(self, reset=False):
        """What passed through the disk since that was last reset."""
        if reset and self.watch:
            self.watch.mark()
        words = ["--reset"] if reset else []
        return json.loads(run(self.slowdisk, "stats", "--json", *words, self.mount, capture=True))

    def read_since_reset(self):
        """The bytes and requests that were read since the counters were reset, and for how long the disk was busy."""
        counted = self.counted()
        reads = counted["reads"]
        return {"bytes": reads["bytes"], "requests": reads["requests"],
                "disk_s": sum(counted.get("depth_ns", [])[1:]) / 1e9}


class Programs(Disk):
    """A disk that programs are started from."""

    name = "headstart-standing"

    def furnish(self):
        shutil.copy(HERE / "enter.sh", self.folder)
        shutil.copy(self.mount / "bin/busybox", self.folder)

    def command(self, words):
        """The command that starts a program on this disk."""
        busybox = self.folder / "busybox"
        return [busybox, "unshare", "--mount", "--propagation", "private",
                busybox, "sh", self.folder / "enter.sh", self.mount, *words]
