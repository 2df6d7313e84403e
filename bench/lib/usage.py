"""Which pages of files are resident, and which of them nobody has accessed, as the kernel's own flags say.

A page that was read into the page cache and never accessed has neither of the flags `referenced` and
`active` (Documentation/admin-guide/mm/pagemap.rst). read(2) sets one at once, a mapping when it ends: so
this is right once the programs that use the files have ended. Fault-around pages count as accessed. A page
that a private mapping copies, as of an executable's data, does not: only what a start without headstart
does not read at all is certainly unused. It asks neither headstart nor its trace events. Needs root.
"""

import array
import ctypes
import mmap
import os
from pathlib import Path

PAGE = mmap.PAGESIZE
REFERENCED, ACTIVE = 1 << 2, 1 << 6
PRESENT, FRAME = 1 << 63, (1 << 55) - 1
PROT_READ, MAP_SHARED, MADV_RANDOM = 1, 1, 1

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def pages_of(root):
    """The resident pages of the files below a directory, and those of them without an access: sets of
    (path, number)."""
    resident, unused = set(), set()
    with open("/proc/self/pagemap", "rb", buffering=0) as frames, \
            open("/proc/kpageflags", "rb", buffering=0) as flags:
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder) / name
                if path.is_symlink() or not path.is_file():
                    continue
                for number, used in _pages(path, frames, flags):
                    resident.add((path, number))
                    if not used:
                        unused.add((path, number))
    return resident, unused


def _pages(path, frames, flags):
    """Each resident page of a file, and whether it was accessed."""
    file = os.open(path, os.O_RDONLY | os.O_NOATIME | os.O_CLOEXEC)
    length = os.fstat(file).st_size
    start = libc.mmap(None, length, PROT_READ, MAP_SHARED, file, 0) if length else None
    os.close(file)
    if not start:
        return []
    try:
        # A touch below shall bring nothing in.
        libc.madvise(start, length, MADV_RANDOM)
        count = -(-length // PAGE)
        there = ctypes.create_string_buffer(count)
        if libc.mincore(start, length, there):
            return []
        found = []
        for number, is_there in enumerate(there.raw[:count]):
            if is_there & 1:
                ctypes.string_at(start + number * PAGE, 1)
                entry = _entry(frames, (start // PAGE) + number)
                if entry & PRESENT:
                    found.append((number, bool(_entry(flags, entry & FRAME) & (REFERENCED | ACTIVE))))
        return found
    finally:
        libc.munmap(start, length)


def _entry(file, number):
    return array.array("Q", os.pread(file.fileno(), 8, 8 * number))[0]
