"""How much longer a boot from a disk takes than one that nothing delays, at least, however
well it is read ahead. Pure.

What a boot needs until some moment has to be read before it gets there, and then it still
computes what it computes after that moment. So for each moment t since the disk can be read
it is later by what reading the blocks needed until t takes, less t. That is a bound from
below, for a boot that does things in the same order: no block is read in vain, each run of
blocks is reached in the shortest way there is to it, and the first one without any.
"""

import bisect
from itertools import accumulate
from math import sqrt

from rig.touches import BLOCK


def unavoidable(model, capacity, needed):
    """The longest such delay with a disk of these numbers (`models.table`) and so many
    bytes, in µs, and where it is; `needed` as `touches.of_boot` has it."""
    begin = min(needed.values(), default=0)
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
    request = max(gap, latency / depth)
    holes = [(after[0] - before[1]) * ps_per_byte / 1000
             for before, after in zip(wanted, wanted[1:])]
    transfer = sum(end - first for first, end in wanted) * ps_per_byte / 1000
    if depth == 1:
        # A hole is read, or another request begins behind it.
        between = [min(hole, request + move)
                   for hole, move in zip(holes, shortest_moves(moves, capacity, wanted))]
        return (latency + transfer + sum(between)) / 1000
    # Requests and bytes go on beside each other. The smallest holes are read.
    read = [transfer, *(transfer + more for more in accumulate(sorted(holes)))]
    return (latency + min(max(lasts, request * (len(wanted) - number))
                          for number, lasts in enumerate(read))) / 1000


def shortest_moves(moves, capacity, wanted):
    """The shortest movement of the head to each run but the first, in ns: from the run
    before it, or back from the one behind it."""
    settle, full_stroke, half_turn, window = moves
    if not window:
        return [0] * (len(wanted) - 1)
    behind = [after[0] - run[0] for run, after in zip(wanted[1:], wanted[2:])] + [capacity]
    ahead = [after[0] - before[1] for before, after in zip(wanted, wanted[1:])]
    return [settle + (full_stroke - settle) * sqrt(min(both) / capacity) + half_turn
            for both in zip(ahead, behind)]
