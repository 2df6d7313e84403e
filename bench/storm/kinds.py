"""File systems of `layout.py`: how each is made and checked, and what is done on it."""
import os
import subprocess
from dataclasses import dataclass

from measured import run

APPLY = ("apply", "--force", "PACK")
ASIDE = ("apply", "--force", "--make-room", "PACK")
COMPRESS = ("apply", "--force", "--compress", "PACK")
UNDO, RELEASE = ("undo", "MOUNT"), ("release", "MOUNT")


@dataclass(frozen=True)
class Scenario:
    """What is done while the log is written; `before` is done earlier."""

    steps: tuple
    before: tuple = ()
    mkfs: tuple = ()
    options: str = "noatime"
    # Size of the file system, unless it is that of its kind.
    mib: int = 0
    # What others do meanwhile: "commit" their files, "write" to those that are laid out, "fill" the disk, or
    # make "snapshots".
    meanwhile: str = ""
    # Bytes of free space in each hole, if it is in pieces.
    holes: int = 0
    # Whether other files lie between the holes, which can be moved aside.
    others: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of file system."""

    mib: int
    mkfs: tuple
    check: tuple
    # Options of the mount in which files are written, so that they are fragmented.
    fills: str
    scenarios: dict

    def make(self, path, scenario):
        """Makes one in an image."""
        with open(path, "wb") as file:
            file.truncate((scenario.mib or self.mib) << 20)
        # xfs smaller than 300 MiB are for tests of xfs alone (xfsprogs 5.19).
        small = os.environ | {"TEST_DIR": "/", "TEST_DEV": "/", "QA_CHECK_FS": "true"}
        run(*self.mkfs, *scenario.mkfs, path, env=small)

    def wrong(self, path):
        """What its checker finds in an image that is not mounted; None if that is nothing."""
        done = subprocess.run([*self.check, path], capture_output=True, text=True, check=False)
        return f"{self.check[0]} {done.returncode}: {done.stdout}{done.stderr}" if done.returncode else None


BOTH = (APPLY, UNDO)
PIECES = {"holes": 80 << 10, "others": True, "mib": 24}
GROUPS = PIECES | {"mib": 128}
PIECES_OF_XFS = PIECES | {"mib": 64}
# What is done on each kind.
COMMON = {
    "apply": Scenario((APPLY,)),
    "undo": Scenario((UNDO,), before=(APPLY,)),
    "release": Scenario((RELEASE,), before=(APPLY,)),
    "apply, undo, apply": Scenario((*BOTH, APPLY)),
    "others commit": Scenario(BOTH, meanwhile="commit"),
    "others write": Scenario(BOTH, meanwhile="write"),
    "free space in pieces": Scenario(BOTH, holes=64 << 10),
    "discard": Scenario((APPLY, RELEASE), options="noatime,discard"),
}

KINDS = {
    "ext4": Kind(
        40, ("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-N", "2048", "-E",
             "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
        ("e2fsck", "-fn"), "noatime", COMMON | {
            "the disk fills": Scenario(BOTH, meanwhile="fill", mib=24),
            "blocks of 1 KiB": Scenario(BOTH, mkfs=("-b", "1024")),
            "data=writeback": Scenario(BOTH, options="noatime,data=writeback"),
            "no checksums": Scenario(BOTH, mkfs=("-O", "^metadata_csum,^64bit")),
            "others aside": Scenario((ASIDE, UNDO), **PIECES),
            "others aside, data=writeback": Scenario((ASIDE, UNDO), options="noatime,data=writeback", **PIECES),
            "others aside, undo": Scenario((UNDO,), before=(ASIDE,), **PIECES),
            "others aside, others commit": Scenario((ASIDE, UNDO), meanwhile="commit", **PIECES),
            "others aside, others write": Scenario((ASIDE, UNDO), meanwhile="write", **PIECES),
            "others aside, the disk fills": Scenario((ASIDE, UNDO), meanwhile="fill", **PIECES),
        }),
    "xfs": Kind(
        64, ("mkfs.xfs", "-q", "-f", "-K"), ("xfs_repair", "-n"), "noatime,allocsize=4k", COMMON | {
            "the disk fills": Scenario(BOTH, meanwhile="fill", mib=40),
            "blocks of 1 KiB": Scenario(BOTH, mkfs=("-b", "size=1024")),
            "reverse map": Scenario(BOTH, mkfs=("-m", "rmapbt=1")),
            "wsync": Scenario(BOTH, options="noatime,logbsize=32k,wsync"),
            "others aside": Scenario((ASIDE, UNDO), **PIECES_OF_XFS),
            "others aside, others commit": Scenario((ASIDE, UNDO), meanwhile="commit", **PIECES_OF_XFS),
            "others aside, others write": Scenario((ASIDE, UNDO), meanwhile="write", **PIECES_OF_XFS),
        }),
    "btrfs": Kind(
        128, ("mkfs.btrfs", "-q", "-f", "-K"), ("btrfs", "check", "--readonly", "--check-data-csum"),
        "noatime", COMMON | {
            "the disk fills": Scenario(BOTH, meanwhile="fill"),
            "snapshots": Scenario(BOTH, meanwhile="snapshots"),
            "flushoncommit": Scenario(BOTH, options="noatime,flushoncommit,commit=1"),
            "data and metadata mixed": Scenario(BOTH, mkfs=("-M",)),
            "compressed": Scenario((COMPRESS, UNDO)),
            "compressed, others write": Scenario((COMPRESS, UNDO), meanwhile="write"),
            "compressed, released": Scenario((COMPRESS, RELEASE), meanwhile="commit"),
            "block groups moved": Scenario((ASIDE, UNDO), **GROUPS),
            "block groups moved, others commit": Scenario((ASIDE, UNDO), meanwhile="commit", **GROUPS),
            "block groups moved, others write": Scenario((ASIDE, UNDO), meanwhile="write", **GROUPS),
        }),
}
