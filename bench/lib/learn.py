"""Has headstart learn a workload, as people would, from cold starts on a disk."""

import os

from lib.run import run

STARTS = 4
# How long a server runs before it is stopped: longer than until it has answered after a
# cold start from the slowest disk, 19 s.
SERVER_S = 30


def ending(disk, workload):
    """The command of a start that ends, of a server after a while."""
    server = ["timeout", "--preserve-status", "--signal", "INT", str(SERVER_S)]
    return [*(server if workload.ready else []), *disk.command(workload.start)]


def learn(headstart, disk, workload, pack, exact):
    """Learns a pack in four starts; with `exact`, the first is one of `record --exact`."""
    command = ending(disk, workload)
    environment = os.environ | {"HEADSTART_PACKS": str(pack.parent)}
    pack.unlink(missing_ok=True)
    for number in range(STARTS):
        run(*disk.cold().split())
        if exact and number == 0:
            # From a rotational disk a cold start takes longer than the default of --for.
            through = ["record", "--quiet", "--exact", "--for", "2min", "--pack", pack]
        else:
            # With figures it waits until it has learned.
            through = ["run", "--always", "--pack", pack, "--json", pack.with_suffix(".figures")]
        run(headstart, *through, "--", *command, env=environment)
