"""Has headstart learn a workload, as people would, from cold starts on a disk."""

import json
import os

from lib.run import Trouble, run

STARTS = 4
# How many starts may be needed until one is learned.
TRIALS = 5
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
            run(headstart, *through, "--", *command, env=environment)
        else:
            learn_start(headstart, disk, workload, pack)


def learn_start(headstart, disk, workload, pack):
    """Learns one start, with what is in memory there; whether it was learned."""
    # With figures it waits until it has learned.
    figures = pack.with_suffix(".figures")
    through = ["run", "--always", "--pack", pack, "--json", figures, "--force"]
    run(headstart, *through, "--", *ending(disk, workload), env=os.environ | {"HEADSTART_PACKS": str(pack.parent)})
    return json.loads(figures.read_text())["learned"] is not None


def learn_in_memory(headstart, disk, workload, pack):
    """Learns one start from a cold disk, all of whose pack was read before."""
    for _ in range(TRIALS):
        run(*disk.cold().split())
        run(headstart, "replay", "--quiet", "--wait", pack)
        if learn_start(headstart, disk, workload, pack):
            return
    raise Trouble(f"no start of {workload.name} was learned from memory; {pack.with_suffix('.figures')} tells why")
