"""A virtual machine that is kept: an image of its own that remembers its boots.

What headstart learns in a boot is there in the next, as on a machine that is used.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from lib.image import unmount
from lib.run import Trouble, run
from measured import BUILT, REPOSITORY

from rig import kernel, models, virtual

# Where headstart is in the guest.
INSTALLED = "usr/bin/headstart"


class Machine:
    """A guest's copy in the cache, under a name.

    With headstart, a static one, it is installed in the guest and enabled there.
    """

    def __init__(self, guest, cache, name, headstart=None):
        self.guest, self.name, self.headstart = guest, name, headstart
        self.image = cache / f"machine-{name}-{guest.image.stem.removeprefix('boot-')}.img"
        # What headstart wants on the kernel's command line.
        self.words = self.image.with_suffix(".words")

    def create(self, prepare=None):
        """Makes the copy, unless it is there.

        `prepare` is a shell command that runs in the guest's root directory.
        """
        if self.image.exists():
            return
        draft = self.image.with_suffix(".draft")
        try:
            run("cp", "--sparse=always", self.guest.image, draft)
            with mounted(draft) as root:
                if self.headstart is not None:
                    run("install", "-m", "755", self.headstart, root / INSTALLED)
                    self.words.write_text(" ".join(enable(self.headstart, root)))
                if prepare:
                    run("sh", "-ec", prepare, cwd=root)
            draft.rename(self.image)
        finally:
            draft.unlink(missing_ok=True)

    def twin(self, name, headstart=True):
        """Another machine with all that this one has, or the same without headstart."""
        other = Machine(self.guest, self.image.parent, name, self.headstart if headstart else None)
        other.forget()
        try:
            run("cp", "--sparse=always", self.image, other.image)
            if headstart:
                shutil.copy(self.words, other.words)
            elif self.headstart is not None:
                with mounted(other.image) as root:
                    run(self.headstart, "boot", "disable", "--root", root)
        except BaseException:
            other.forget()
            raise
        return other

    @contextlib.contextmanager
    def booting(self, model, append=(), extra=()):
        """What `virtual.boot` takes of it first; None is a disk that delays nothing.

        `extra` are more files of the initramfs, as of `kernel.initramfs`.
        """
        numbers = [] if model is None else models.table(model)
        kit = self.guest.kit
        line = list(append)
        if self.headstart is not None:
            line += self.words.read_text().split()
        with tempfile.TemporaryDirectory(prefix="boot-virtual-") as folder:
            initramfs = kernel.initramfs(kit, Path(folder) / "initramfs", self.headstart, extra)
            yield kernel.vmlinux(kit), initramfs, self.image, numbers, line

    def boot(self, model, append=(), keep=True, extra=()):
        """Boots it from a disk of that model; None is one that delays nothing."""
        with self.booting(model, append, extra) as words:
            return virtual.boot(*words, keep)

    def forget(self):
        """Removes it with all that it learned."""
        self.image.unlink(missing_ok=True)
        self.words.unlink(missing_ok=True)


def enable(headstart, root):
    """Enables headstart in a guest; the words that the kernel should get."""
    said = run(headstart, "boot", "enable", "--root", root, capture=True)
    return [word for word in said.split() if word.startswith("trace_")]


@contextlib.contextmanager
def mounted(image, offset=0, size=0):
    """An image, or such a part of it, mounted while the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="boot-machine-"))
    try:
        run("mount", "-o", f"loop,noatime,offset={offset},sizelimit={size}", image, folder)
        yield folder
    finally:
        unmount(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()


def needs():
    """Says which tool is missing, if any."""
    for tool, package in (("qemu-system-x86_64", "qemu-system-x86"), ("debootstrap", "debootstrap"),
                          ("systemd-nspawn", "systemd-container"), ("zstd", "zstd"), ("losetup", "mount"),
                          ("make", "make"), ("gcc", "gcc")):
        if not shutil.which(tool):
            raise Trouble(f"{tool} is missing; apt-get install {package}")


def static(given):
    """A static headstart, built from this checkout unless one is given."""
    if given is None:
        given = BUILT / "headstart"
        # It is built there, whatever the environment says.
        run(REPOSITORY / "build.sh", "--quiet", env=os.environ | {"CARGO_TARGET_DIR": str(BUILT.parent)})
    if not given.exists():
        raise Trouble(f"{given} is missing")
    return given.resolve()
