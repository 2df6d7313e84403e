"""When a boot first touched which blocks of its disk, from the kernel's trace of a boot
without headstart that nothing delays.

Only what is certainly requested counts: pages that are read or faulted in, the inodes of
these files and of the directories above them, and the first block of each such directory.
What the kernel reads around them does not, nor do files that boots change. Of ext4.
"""

import array
import fcntl
import os
import re
import struct
from datetime import datetime

from lib.run import Trouble, run

from rig.machine import mounted
from rig.virtual import CLOCK

BLOCK = 4096
# Files with a later change are of boots.
WRITTEN_FROM = datetime.fromisoformat(CLOCK).timestamp()
INSTANCE = "touches"
EVENTS = ("filemap:mm_filemap_get_pages", "filemap:mm_filemap_fault",
          "filemap:mm_filemap_add_to_page_cache")
# For the kernel's command line.
WORDS = (f"trace_instance={INSTANCE},{','.join(EVENTS)}", "trace_buf_size=4M")
KEPT = "var/lib/touches"
# For the root directory of a machine: a part of its report that keeps the trace.
PREPARE = f"""mkdir -p etc/boot-report.d
cat >etc/boot-report.d/touches <<'end'
#!/bin/sh
cd /sys/kernel/tracing/instances/{INSTANCE} || exit 1
cat per_cpu/cpu*/stats trace >/{KEPT}
end
chmod +x etc/boot-report.d/touches
"""
TOUCH = re.compile(r" (\d+)\.(\d{6}): mm_filemap_(?:get_pages|fault): "
                   r"dev=(\d+:\d+) ino=([0-9a-f]+) ofs=(\d+)(?:-(\d+))?")
# Of a block device, which the kernel reads for a file system's own needs.
MOUNT = re.compile(r"^ +mount-\d+ .* (\d+)\.(\d{6}): mm_filemap_add_to_page_cache: dev 0:3 ", re.M)
LOST = re.compile(r"^(?:overrun|dropped events): ([1-9]\d*)$", re.M)
# linux/fiemap.h
FIEMAP = 0xC020660B
UNWRITTEN = 0x800
HEAD, EXTENT = struct.Struct("=QQLLLL"), struct.Struct("=QQQ16xL12x")
EXTENTS, LAST = 256, 1


def of_boot(image):
    """The microsecond in which files could be read, and block numbers of the image with
    that in which each was first needed, of a machine that was prepared, and booted with
    these words."""
    with mounted(image) as root:
        trace = (root / KEPT).read_text()
        touched = parse(trace)
        return mounted_at(trace, touched[0][0]), blocks(root, touched, inode_tables(image))


def mounted_at(trace, first):
    """When mounting the root file system read the last of what it needs, before the `first`
    touch of a file: until then none can be read."""
    found = [int(s) * 1_000_000 + int(us) for s, us in MOUNT.findall(trace)]
    before = [at for at in found if at <= first]
    if not before:
        raise Trouble("the boot mounted nothing that it had to read")
    return before[-1]


def parse(trace):
    """(µs, inode number, first byte, end) of each touch of a file of the root file system,
    which is that of the first program from a disk."""
    if lost := LOST.search(trace):
        raise Trouble(f"the kernel lost {lost[1]} events of the boot; make its buffer larger")
    found = [(int(s) * 1_000_000 + int(us), dev, int(ino, 16), int(first), int(last or first) + 1)
             for s, us, dev, ino, first, last in TOUCH.findall(trace)]
    devices = [dev for _, dev, *_ in found if not dev.startswith("0:")]
    if not devices:
        raise Trouble("the boot touched no file of a disk")
    return [(us, *place) for us, dev, *place in found if dev == devices[0]]


def blocks(root, touched, inode_block):
    """The blocks that these touches need."""
    paths, places, needed = names(root), {}, {}

    def need(path, first, end, at):
        if path not in places:
            places[path] = list(extents(path))
        for logical, physical, length in places[path]:
            begin = max(logical, first // BLOCK * BLOCK)
            for byte in range(begin, min(logical + length, end), BLOCK):
                needed.setdefault((physical + byte - logical) // BLOCK, at)

    seen = set()
    for at, ino, first, end in touched:
        # What is gone by now was written, not read.
        path = paths.get(ino)
        if path and os.lstat(path).st_ctime < WRITTEN_FROM:
            need(path, first, end, at)
            while path not in seen:
                seen.add(path)
                if path == str(root):
                    # The mount has read it.
                    break
                needed.setdefault(inode_block(os.lstat(path).st_ino), at)
                path = os.path.dirname(path)
                need(path, 0, 1, at)
    return needed


def names(root):
    """A path of each inode."""
    found = {os.lstat(root).st_ino: str(root)}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            found.setdefault(os.lstat(path).st_ino, path)
    return found


def extents(path):
    """(logical, physical, length) of each extent, in bytes."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        start, flags = 0, 0
        while not flags & LAST:
            buffer = array.array("B", bytes(HEAD.size + EXTENTS * EXTENT.size))
            HEAD.pack_into(buffer, 0, start, 2**64 - 1 - start, 0, 0, EXTENTS, 0)
            fcntl.ioctl(file, FIEMAP, buffer)
            count = HEAD.unpack_from(buffer)[3]
            if count == 0:
                return
            for number in range(count):
                *extent, flags = EXTENT.unpack_from(buffer, HEAD.size + number * EXTENT.size)
                if not flags & UNWRITTEN:
                    yield tuple(extent)
            start = extent[0] + extent[2]
    finally:
        os.close(file)


def inode_tables(image):
    """Tells of an inode number in which block the inode is."""
    said = run("dumpe2fs", image, capture=True)
    per_group, size = (int(re.search(rf"^{name}:\s+(\d+)$", said, re.M)[1])
                       for name in ("Inodes per group", "Inode size"))
    tables = [int(block) for block in re.findall(r"Inode table at (\d+)", said)]

    def block(ino):
        group, index = divmod(ino - 1, per_group)
        return tables[group] + index * size // BLOCK
    return block
