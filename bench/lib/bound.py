"""The lower bound of a prefetched start in touch order, as `headstart bench` has it (doc/bench.md).

`shown` is what `headstart show --json` prints of a pack.
"""

import statistics

PAGE = 4096


def touches(shown, lasted):
    """The share of its start that had passed at the first touch of each range, and its bytes, by the last learned
    start, which was over, or ready, after `lasted` seconds."""
    return [(part["first_touch_ms"] / 1000 / lasted, part["length"]) for part in _parts(shown)]


def touches_of_hot(shown, hot):
    """The same of each page, by the packs of hot starts, in the middle of these. A page that one did not touch has
    the time of the last learned start."""
    hot = [_pages(one) for one in hot]
    return [(statistics.median_high([pages.get(page, learned) for pages in hot]), PAGE)
            for page, learned in _pages(shown).items()]


def in_order(shown, floor, hot, touched):
    """The bound, in seconds: the most of what takes its share of the floor to arrive, and the hot start's share of
    what is then left to compute."""
    metadata = sum(part["length"] for part in shown["metadata"])
    every = metadata + sum(length for _, length in touched)
    used, bound = metadata, max(floor, hot)
    needed = [touch for touch in sorted(touched) if touch[0] < 1]
    for computed, length in [(0, 0), *needed]:
        used += length
        bound = max(bound, floor * used / max(every, 1) + hot * (1 - computed))
    return bound


def _parts(shown):
    return [part for _, part in _named_parts(shown)]


def _named_parts(shown):
    return [(file["path"], part) for file in shown["files"] for part in file["ranges"]
            if set(part["how"]) - {"written", "appended"}]


def _pages(shown):
    """The share of its start that had passed at the first touch of each page."""
    lasted_ms = max([shown["origin"]["duration_us"] / 1000, *(part["first_touch_ms"] for part in _parts(shown))])
    return {(path, part["offset"] + at): part["first_touch_ms"] / lasted_ms
            for path, part in _named_parts(shown) for at in range(0, part["length"], PAGE)}
