"""The options that benchmarks of workloads on modelled disks share."""

import argparse
from pathlib import Path

from lib.workloads import WORKLOADS


def add_choice(parser, models, default, workloads=None):
    """What is measured on what, where images are kept, and where the programs are."""
    names = [w.name for w in WORKLOADS]
    add = parser.add_argument
    standing = [w.name for w in WORKLOADS if w.is_standing]
    add("--workloads", type=listed(names), default=workloads or standing, metavar="A,B",
        help=", ".join(names))
    add("--models", type=listed(models), default=default, metavar="A,B",
        help=f"{', '.join(models)} [default: {', '.join(default)}]")
    add("--cache", type=Path, default=Path.home() / ".cache/headstart-bench", metavar="DIR",
        help="for images and whole results")
    add("--bin", type=Path, metavar="DIR",
        help="where headstart and slowdisk are [default: they are built]")


def listed(allowed):
    """A parser of comma-separated names."""
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r}: there are {', '.join(allowed)}")
        return [name for name in allowed if name in names]
    return parse
