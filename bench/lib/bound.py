"""The lower bound of a prefetched start in touch order, as `headstart bench` has it (doc/bench.md)."""


def in_order(shown, floor, hot, lasted):
    """The bound, in seconds: the most of what takes its share of the floor to arrive, and the hot start's share of
    what is then left to compute.

    `shown` is what `headstart show --json` prints of a pack; its touches are of a start that was over,
    or ready, after `lasted` seconds.
    """
    touches = sorted((part["first_touch_ms"] / 1000 / lasted, part["length"])
                     for file in shown["files"] for part in file["ranges"])
    metadata = sum(part["length"] for part in shown["metadata"])
    needed = [touch for touch in touches if touch[0] < 1]
    every = metadata + sum(length for _, length in touches)
    used, bound = metadata, max(floor, hot)
    for computed, length in [(0, 0), *needed]:
        used += length
        bound = max(bound, floor * used / max(every, 1) + hot * (1 - computed))
    return bound
