"""A mount namespace of our own."""

import os
import sys


def alone(marker):
    """Goes on in a mount namespace of its own; `marker` is a variable for that.

    A namespace that somebody else makes meanwhile, for a container or a service,
    would have a copy of our mounts, and keep a disk that we unmount in memory.
    """
    if os.environ.pop(marker, None) != str(os.getpid()):
        os.environ[marker] = str(os.getpid())
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private",
                              sys.executable, *sys.argv])
