"""A lower bound for how much longer a boot from a disk takes than one without delay, for any
prefetch order. Pure.

What a boot needs until a moment t must be read before t, and the CPU work after t remains. So
for each t since files can be read, the boot is late by the time to read the blocks needed until
t, less t. That is a lower bound for a boot with the same order of touches: no block is wasted,
the head passes each gap between runs of blocks once, and begins at the first of them.
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
    """(first byte, end) of contiguous blocks."""
    found = []
    for block in known:
        if found and found[-1][1] == block * BLOCK:
            found[-1][1] += BLOCK
        else:
            found.append([block * BLOCK, (block + 1) * BLOCK])
    return found


def reading_us(model, capacity, wanted):
    """The least time to read these runs, in µs, with the numbers of dm-slow."""
    depth, latency, _, ps_per_byte, gap, *seeks = model
    gaps = [after[0] - before[1] for before, after in zip(wanted, wanted[1:])]
    transfer = sum(end - first for first, end in wanted) * ps_per_byte / 1000
    if depth == 1:
        # A gap is read, or another request begins behind it. In any order of the runs the
        # head passes each gap.
        between = [min(width * ps_per_byte / 1000, latency + seek(seeks, width / capacity))
                   for width in gaps]
        return (latency + transfer + sum(between)) / 1000
    # Requests and bytes run in parallel. The smallest gaps are read.
    read = accumulate(sorted(gaps), lambda sum_, width: sum_ + width * ps_per_byte / 1000,
                      initial=transfer)
    return min(max(latency + lasts, latency + gap * (requests - 1),
                   latency * ceil(requests / depth))
               for requests, lasts in zip(range(len(wanted), 0, -1), read)) / 1000


def seek(seeks, share):
    """The time of a seek over this share of the disk, in ns."""
    settle, full_stroke, half_turn, window = seeks
    return settle + (full_stroke - settle) * sqrt(share) + half_turn if window else 0
