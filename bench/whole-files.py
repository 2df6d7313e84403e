"""Prefetches whole files, as readahead lists do: requests them in order, waits for none.

Usage: whole-files.py LIST          (paths that end with a zero byte)

The kernel cuts each request to what the device takes at a time, so a file is
requested in pieces of 128 KiB.
"""

import os
import sys

PIECE = 128 * 1024

with open(sys.argv[1], "rb") as paths:
    names = paths.read().split(b"\0")[:-1]
for name in names:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOATIME | os.O_NONBLOCK)
    except OSError:
        continue  # A file of an earlier start that is gone.
    for offset in range(0, os.fstat(file).st_size, PIECE):
        os.posix_fadvise(file, offset, PIECE, os.POSIX_FADV_WILLNEED)
    os.close(file)
