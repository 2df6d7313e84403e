"""A root image on another file system: made once from that on ext4, with the same files."""

import os
from pathlib import Path

from lib.image import unmount
from lib.run import run

# As few surprises as possible: the same files in one go, and no discards of what is not there.
MKFS = {
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}


def converted(root, kind, path, percent=None):
    """An image of this kind with the files of `root`; so large that they fill `percent` of it, or as large as that."""
    if kind == "ext4" or path.exists():
        return root if kind == "ext4" else path
    draft = path.with_suffix(".draft")
    points = [Path(f"{path}.{name}") for name in ("from", "to")]
    try:
        for point in points:
            point.mkdir(exist_ok=True)
        run("mount", "-o", "loop,ro,noload", root, points[0])
        stat = os.statvfs(points[0])
        used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
        size = used * 100 // percent if percent else root.stat().st_size
        run("truncate", "--size", str(size >> 20 << 20), draft)
        run(*MKFS[kind], draft)
        run("mount", "-o", "loop,noatime", draft, points[1])
        run("cp", "-a", f"{points[0]}/.", points[1])
        run("sync", "--file-system", points[1])
        for point in points:
            unmount(point)
        draft.rename(path)
    finally:
        for point in points:
            unmount(point)
            point.rmdir()
        draft.unlink(missing_ok=True)
    return path
