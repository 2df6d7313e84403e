"""A mount namespace of our own."""

import os
import sys


# Says that this process is in one already.
MARKER = "HEADSTART_BENCH_ALONE"


def alone():
    """Continues in a mount namespace of its own.

    A namespace that somebody else makes meanwhile, for a container or a service,
    would have a copy of our mounts, and keep a disk that we unmount in memory. What is
    unmounted outside is unmounted here too, for the same reason.
    """
    if os.environ.pop(MARKER, None) != str(os.getpid()):
        os.environ[MARKER] = str(os.getpid())
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "slave",
                              sys.executable, *sys.argv])
