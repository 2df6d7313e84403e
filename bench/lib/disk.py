"""A modelled disk with the root image on it, and starts from there."""

import os
import shutil
import tempfile
from pathlib import Path

from lib.image import unmount
from lib.run import run

HERE = Path(__file__).resolve().parent.parent


class Disk:
    """A disk that is up while the `with` block lasts, whatever ends that."""

    def __init__(self, slowdisk, model, image):
        self.slowdisk, self.model, self.image = slowdisk, model, image

    def __enter__(self):
        # In memory, so that starting a program touches no other disk.
        memory = "/dev/shm" if os.path.ismount("/dev/shm") else None
        self.folder = Path(tempfile.mkdtemp(prefix="headstart-standing-", dir=memory))
        self.mount = self.folder / "root"
        try:
            self.mount.mkdir()
            shutil.copy(HERE / "enter.sh", self.folder)
            run(self.slowdisk, "up", "--model", self.model, "--image", self.image,
                "--mount", self.mount, "--options", "noatime")
            shutil.copy(self.mount / "bin/busybox", self.folder)
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

    def command(self, words):
        """The command that starts a program on this disk."""
        busybox = self.folder / "busybox"
        return [busybox, "unshare", "--mount", "--propagation", "private",
                busybox, "sh", self.folder / "enter.sh", self.mount, *words]

    def cold(self):
        """The command that empties this disk's cache."""
        return f"{self.slowdisk} remount {self.mount}"
