"""Other tools that prefetch files, as `headstart bench --against` takes them.

A command may name {list}, a file of the paths that the start touches, one a line;
{list0}, the same with a NUL byte after each; {mount}, where the disk is mounted;
{pack}, headstart's pack.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Peer:
    """A peer: what the results call it, how it takes part, and its command."""

    name: str
    how: str  # "before" the program, or in "parallel" with it
    command: str

    def argument(self, names):
        """What follows --against, with the names of files put in."""
        command = self.command
        for name, value in names.items():
            command = command.replace("{" + name + "}", str(value))
        return f"{self.name}{'&' if self.how == 'beside' else ''}={command}"


def standing(tell):
    """The peers that are always there, and vmtouch where it is installed.

    Those that did best in trials first: on slow disks there may not be the time for
    all.
    """
    found = [Peer("whole-files", "beside",
                  f"{sys.executable} {HERE / 'whole-files.py'} {{list0}}")]
    if shutil.which("vmtouch"):
        found.append(Peer("vmtouch-beside", "beside", "vmtouch -t -q -0 -b {list0}"))
        found.append(Peer("vmtouch", "before", "vmtouch -t -q -0 -b {list0}"))
    else:
        tell("without vmtouch, which is not installed: apt-get install vmtouch")
    found.append(Peer("cat", "before", "xargs -0 -a {list0} cat"))
    return found


def named(text):
    """A peer of the caller's: NAME=CMD runs before the program, NAME&=CMD in parallel."""
    name, separator, command = text.partition("=")
    beside = name.endswith("&")
    name = name.removesuffix("&")
    if not (separator and name and command):
        raise ValueError(f"{text!r} is no peer; write NAME=CMD or NAME&=CMD")
    return Peer(name, "beside" if beside else "before", command)
