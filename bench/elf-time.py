#!/usr/bin/env python3
"""How long does headstart elf repack take for a library, and what bounds it?

Times, in random order in each round: repacking without writing (reading, planning, and the
proof), with a copy in memory (tmpfs) and one on a disk (with fsync), and what cp(1) takes for the
same file, in memory and on the disk with sync(1). The file is in the page cache. Nothing is kept.

Usage: bench/elf-time.py FILE [--dir DIR] [-n ROUNDS] [--headstart FILE] [--out FILE]
"""
import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

from lib.run import Trouble
from measured import BUILT, RESULTS, about, command_line, main, spread, write


def arguments():
    parser = command_line(__doc__, "%(prog)s FILE [OPTION…]")
    add = parser.add_argument
    add("file", type=Path, help="a program or library")
    add("--dir", type=Path, default=Path("/var/tmp"), help="where the disk is")
    add("-n", type=int, default=20, help="rounds")
    add("--headstart", default=BUILT / "headstart")
    add("--out", default=RESULTS / "elf-time.json")
    return parser.parse_args()


def timed(words):
    """Seconds of a command: in all, in the program, in the kernel."""
    began = time.perf_counter()
    process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Trouble(f"{words[0]} ended with status {process.returncode}")
    return took, usage.ru_utime, usage.ru_stime


def run():
    args = arguments()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, \
            tempfile.TemporaryDirectory(dir=args.dir) as disk:
        in_memory, on_disk = Path(memory) / "new", Path(disk) / "new"
        repack = [args.headstart, "elf", "repack", "--quiet", "--packaged"]
        arms = {
            "repack, not written": [*repack, args.file],
            "repack to memory": [*repack, "-o", in_memory, args.file],
            "repack to disk": [*repack, "-o", on_disk, args.file],
            "cp to memory": ["cp", args.file, in_memory],
            "cp and sync to disk": ["sh", "-c", 'cp "$1" "$2" && sync "$2"', "sh", args.file, on_disk],
        }
        took = {name: [] for name in arms}
        for number in range(args.n + 1):
            for name in random.sample(list(arms), len(arms)):
                for left in (in_memory, on_disk):
                    left.unlink(missing_ok=True)
                found = timed(arms[name])
                # The first round fills the page cache.
                if number:
                    took[name].append(found)
    cells = [{"arm": name, **{key: spread([one[part] for one in all_of])
                              for part, key in enumerate(("seconds", "user", "kernel"))}}
             for name, all_of in took.items()]
    for cell in cells:
        shown = ", ".join(f"{key} {cell[key]['median']:.3f} [{cell[key]['min']:.3f}, {cell[key]['max']:.3f}]"
                          for key in ("seconds", "user", "kernel"))
        print(f"{cell['arm']:>22}: {shown}, n = {args.n}")
    write(args.out, about("headstart-bench/elf-time/1", args.headstart)
          | {"file": args.file.name, "bytes": args.file.stat().st_size, "cells": cells})
    return 0


if __name__ == "__main__":
    main(run)
