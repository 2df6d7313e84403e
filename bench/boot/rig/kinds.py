"""The kinds of root file systems that are booted: how a guest's files are changed for each,
how its file system is made, and what a boot from it must prefetch. Boots nothing."""

import contextlib
import shutil
from dataclasses import dataclass
from typing import Callable

from lib.run import Trouble, run

from rig import distro, login
from rig.machine import mounted

MIB = 1 << 20
# The root file system, and another one if there is one.
SYSTEM, OTHER = 2048 * MIB, 512 * MIB
KEY = "etc/keys/root.key"
# Where packs of an image are in it, and how many may be there; the phases of each boot.
SHIPPED = "usr/lib/headstart/boot"
PLACES = 16
PHASES = ("initramfs", "mounts", "system")


def ext4(tree, path):
    """A file system with these files on it."""
    run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", path)
    with mounted(path) as there:
        run("cp", "--archive", f"{tree}/.", there)


def btrfs(tree, path):
    """The same, in a subvolume."""
    run("mkfs.btrfs", "--quiet", path)
    with mounted(path) as there:
        run("btrfs", "subvolume", "create", there / "@")
        run("cp", "--archive", f"{tree}/.", there / "@")


def luks(tree, path):
    """An encrypted ext4."""
    with scratch(path) as plain:
        ext4(tree, plain)
        encrypt(tree, plain, path)


def lvm(tree, path):
    """An ext4 in a logical volume of an encrypted disk, as Debian's installer makes it. The
    tools are the guest's, and no device mapper takes part: the volume lies behind a MiB of
    metadata, in one piece."""
    settings = ("devices{obtain_device_list_from_udev=0} backup{backup=0 archive=0} "
                "activation{udev_sync=0 udev_rules=0}")
    with scratch(path) as plain:
        with looped(plain) as device, distro.furnished(tree):
            for words in (("pvcreate", "--dataalignment", "1m", device),
                          ("vgcreate", "vg", device),
                          ("lvcreate", "--name", "root", "--extents", "100%FREE",
                           "--activate", "n", "--zero", "n", "--wipesignatures", "n", "vg")):
                run("chroot", tree, "lvm", words[0], "--driverloaded", "n",
                    "--config", settings, *words[1:])
        volume = path.with_suffix(".volume")
        try:
            # Extents have 4 MiB; the first MiB and what is less than one at the end is left.
            run("truncate", "--size", plain.stat().st_size - 8 * MIB, volume)
            ext4(tree, volume)
            put(volume, plain, MIB)
        finally:
            volume.unlink(missing_ok=True)
        encrypt(tree, plain, path)


def squashfs(tree, path):
    """A compressed file system that can't be written."""
    if not shutil.which("mksquashfs"):
        raise Trouble("mksquashfs is missing; apt-get install squashfs-tools")
    run("mksquashfs", tree, path, "-noappend", "-quiet", "-no-progress", "-comp", "zstd")
    run("truncate", "--size", SYSTEM, path)


@contextlib.contextmanager
def scratch(path):
    """A file for what is to be encrypted to this path, while the block lasts."""
    plain = path.with_suffix(".plain")
    try:
        # The header takes the rest.
        run("truncate", "--size", path.stat().st_size - 16 * MIB, plain)
        yield plain
    finally:
        plain.unlink(missing_ok=True)


def encrypt(tree, plain, path):
    """Makes LUKS of an image, without a device mapper."""
    if not shutil.which("qemu-img"):
        raise Trouble("qemu-img is missing; apt-get install qemu-utils")
    run("qemu-img", "convert", "-f", "raw", "-O", "luks",
        "--object", f"secret,id=key,file={tree / KEY}",
        "-o", "key-secret=key,iter-time=10", plain, path)
    run("truncate", "--size", SYSTEM, path)


@contextlib.contextmanager
def looped(path):
    """A file as a device, so that what is on it is found by its UUID."""
    device = run("losetup", "--find", "--show", path, capture=True).strip()
    try:
        yield device
    finally:
        run("losetup", "--detach", device)


def put(part, whole, at):
    """Copies an image into another one."""
    run("dd", f"if={part}", f"of={whole}", "bs=1M", "conv=notrunc,sparse", f"seek={at // MIB}")


def fstab(tree, *more):
    """Says what is mounted."""
    lines = ["/dev/root / auto noatime 0 0", *more]
    (tree / "etc/fstab").write_text("\n".join(lines) + "\n")


def with_var(tree):
    """/var is a file system of its own."""
    fstab(tree, "/dev/mapper/other /var ext4 noatime 0 2")


def with_overlay(tree):
    """Nothing is written to the root; what headstart learns is on a file system of its own."""
    (tree / "etc/fstab").write_text("/dev/mapper/other /var/lib/headstart ext4 noatime 0 2\n")
    (tree / "var/lib/headstart").mkdir(parents=True, exist_ok=True)


def with_packs(tree):
    """The same, and packs come with the image. Their places are taken before: with more files
    each of the image would get another inode number."""
    with_overlay(tree)
    (tree / SHIPPED).mkdir(parents=True)
    fill_places(tree / SHIPPED)


def fill_places(folder):
    """Lets there be as many files as packs have places; what they are called does not matter
    for the numbers of others."""
    for number in range(PLACES - len(list(folder.iterdir()))):
        (folder / f"place-{number}").touch()


def read_only(tree):
    """Nothing is written to the root, and nothing lies over it; /var is a file system of its
    own."""
    (tree / "etc/fstab").write_text("/dev/root / auto ro,noatime 0 0\n"
                                    "/dev/mapper/other /var ext4 noatime 0 2\n"
                                    "tmp /tmp tmpfs nosuid,nodev 0 0\n")


def with_login(tree):
    """A user logs in."""
    fstab(tree)
    login.install(tree)


def with_luks(tree):
    """The key is in the initramfs."""
    (tree / KEY).parent.mkdir(parents=True)
    (tree / KEY).write_text("a key of a benchmark, known to all")
    (tree / "etc/crypttab").write_text(f"luks /dev/mapper/system /{KEY} luks,initramfs\n")
    with open(tree / "etc/cryptsetup-initramfs/conf-hook", "a") as hook:
        hook.write("CRYPTSETUP=y\nKEYFILE_PATTERN=/etc/keys/*.key\n")


@dataclass(frozen=True)
class Root:
    """A kind of root."""

    name: str
    maker: str = "initramfs-tools"
    # Changes the guest's files, and makes the file system of them.
    prepare: Callable = fstab
    make: Callable = ext4
    # A directory of the guest that is on a file system of its own.
    other: str | None = None
    device: str = "/dev/mapper/system"
    words: tuple = ("ro",)
    # Which phases the last boot must prefetch.
    phases: tuple = PHASES
    # Whether the initramfs can prefetch.
    early: bool = True
    # Whether the packs that were learned become a part of the image, and are forgotten else.
    ships: bool = False
    # Whether a user logs in.
    login: bool = False


ROOTS = (
    Root("initramfs-tools"),
    Root("dracut", maker="dracut"),
    Root("btrfs", make=btrfs, words=("ro", "rootfstype=btrfs", "rootflags=subvol=@")),
    Root("var", prepare=with_var, other="var"),
    Root("read-only", prepare=read_only, other="var", early=False, phases=("mounts", "system")),
    Root("overlay", prepare=with_overlay, other="var/lib/headstart",
         words=("ro", "boot.overlay=seen"), early=False, phases=("mounts", "system")),
    Root("overlay-hidden", prepare=with_overlay, other="var/lib/headstart",
         words=("ro", "boot.overlay=hidden"), early=False, phases=("mounts", "system")),
    Root("live", prepare=with_packs, make=squashfs, other="var/lib/headstart",
         words=("ro", "boot.overlay=seen"), ships=True),
    Root("luks", prepare=with_luks, make=luks, device="/dev/mapper/luks"),
    Root("lvm", prepare=with_luks, make=lvm, device="/dev/mapper/vg-root"),
    Root("login", prepare=with_login, phases=(*PHASES, "session"), login=True),
)
