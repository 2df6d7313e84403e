"""How much longer a boot from a disk takes than one that nothing delays, at least, however
well it is read ahead. Pure.

What a boot needs until some moment has to be read before it gets there, and then it still
computes what it computes after that moment. So for each moment t since files can be read
it is later by what reading the blocks needed until t takes, less t. That is a bound from
below, for a boot that does things in the same order: no block is read in vain, the head
passes each hole between runs of blocks once, and it begins at the first of them.
"""

import bisect
from itertools import accumulate
from math import ceil, sqrt

from rig.touches import BLOCK


def unavoidable(model, capacity, begin, needed):
    """The longest such delay with a disk of these numbers (`models.table`) and so many
    bytes, in µs, and where it is; `begin` and `needed` as `touches.of_boot` has them."""
    known, worst = [], {"delay_us": 0}
    if not model:
        return worst
    by_time = sorted((at, block) for block, at in needed.items())
    for number, (at, block) in enumerate(by_time):
        bisect.insort(known, block)
        if number + 1 < len(by_time) and by_time[number + 1][0] == at:
            continue
        read = reading_us(model, capacity, runs(known))
        if read - (at - begin) > worst["delay_us"]:
            worst = {"delay_us": round(read - (at - begin)), "after_us": at - begin,
                     "bytes": len(known) * BLOCK, "runs": len(runs(known)),
                     "reading_us": round(read)}
    return worst


def runs(known):
    """(first byte, end) of blocks that lie one behind the other."""
    found = []
    for block in known:
        if found and found[-1][1] == block * BLOCK:
            found[-1][1] += BLOCK
        else:
            found.append([block * BLOCK, (block + 1) * BLOCK])
    return found


def reading_us(model, capacity, wanted):
    """How long reading these runs takes at least, in µs, with the numbers of dm-slow."""
    depth, latency, _, ps_per_byte, gap, *moves = model
    holes = [after[0] - before[1] for before, after in zip(wanted, wanted[1:])]
    transfer = sum(end - first for first, end in wanted) * ps_per_byte / 1000
    if depth == 1:
        # A hole is read, or another request begins behind it. In whatever order the runs are
        # read, some way of the head goes over each hole.
        between = [min(hole * ps_per_byte / 1000, latency + moved(moves, hole / capacity))
                   for hole in holes]
        return (latency + transfer + sum(between)) / 1000
    # Requests and bytes go on beside each other. The smallest holes are read.
    read = accumulate(sorted(holes), lambda sum_, hole: sum_ + hole * ps_per_byte / 1000,
                      initial=transfer)
    return min(max(latency + lasts, latency + gap * (requests - 1),
                   latency * ceil(requests / depth))
               for requests, lasts in zip(range(len(wanted), 0, -1), read)) / 1000


def moved(moves, share):
    """How long the head moves over such a share of the disk, in ns."""
    settle, full_stroke, half_turn, window = moves
    return settle + (full_stroke - settle) * sqrt(share) + half_turn if window else 0
