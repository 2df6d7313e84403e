"""Pages that the kernel reclaims without memory pressure, and that are read again.

DAMON's proactive reclaim takes pages that it believes idle, also some that were just read
(Documentation/admin-guide/mm/damon). A start that needs one waits for the disk again, so it is no measurement of
what was changed. This finds it from trace events, not from results, and repeats the start; results tell how often.
Longer starts are repeated more often. Pages of all files count. Reclaim under memory pressure is not looked for.
"""

import json
import re
import subprocess
from pathlib import Path

from lib.run import Trouble

INSTANCES = Path("/sys/kernel/tracing/instances")
LEAVES, ENTERS = ("mm_filemap_delete_from_page_cache", "mm_filemap_add_to_page_cache")
# For each CPU; an event takes some 60 bytes.
BUFFER_KB = 16384
#  … mm_filemap_add_to_page_cache: dev 7:3 ino 1a pfn=0x100 ofs=4096 order=2
EVENT = re.compile(rf"(?P<what>{LEAVES}|{ENTERS}): dev (?P<dev>\S+) ino (?P<inode>\S+) pfn=\S+ ofs=(?P<at>\d+)"
                   r"(?: order=(?P<order>\d+))?|(?P<mark>tracing_mark_write): ")
WRITTEN = re.compile(r"entries-in-buffer/entries-written: (\d+)/(\d+)")
PAGE = 4096
# So often is measured at most.
TRIES = 6


def active(headstart):
    """Whether DAMON's proactive reclaim is on, as `headstart doctor` says it."""
    words = [headstart, "doctor", "--json"]
    # Its status says whether something else is missing.
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return any(check["id"] == "memory_reclaim" and check["state"] == "degraded"
               for check in json.loads(done.stdout)["checks"])


def read_again(trace):
    """How many pages a trace has that were reclaimed, and read again after the last mark."""
    kept, written = WRITTEN.search(trace).groups()
    events = list(EVENT.finditer(trace))
    if kept != written or (int(kept) and not events):
        raise Trouble(f"Of {written} events of the page cache {kept} are kept and {len(events)} known: the trace "
                      "buffer is too small, or this kernel has another format of them")
    reclaimed, again = set(), 0
    for event in events:
        if event["mark"]:
            again = 0
            continue
        first = int(event["at"]) // PAGE
        pages = {(event["dev"], event["inode"], page)
                 for page in range(first, first + (1 << int(event["order"] or 0)))}
        if event["what"] == LEAVES:
            reclaimed |= pages
        else:
            again += len(reclaimed & pages)
            reclaimed -= pages
    return again


class Watch:
    """A trace of what DAMON's threads reclaim and what is read, while the `with` block lasts.

    `name` is the benchmark's, of which there is one at a time. A disk that is measured has it as its `watch`: it
    clears it when its cache has been emptied, and makes a mark when its counters are reset.
    """

    def __init__(self, name, headstart):
        self.instance = INSTANCES / name
        # Without tracefs nothing is seen, and nothing measured again.
        self.watches = active(headstart) and INSTANCES.is_dir()
        # Measurements that were repeated, and those that were disturbed each time.
        self.repeated = self.disturbed = 0

    def __enter__(self):
        if self.watches:
            # One of a run that was killed is used again.
            self.instance.mkdir(exist_ok=True)
            (self.instance / "buffer_size_kb").write_text(str(BUFFER_KB))
            events = self.instance / "events/filemap"
            (events / LEAVES / "filter").write_text('comm ~ "kdamond*"')
            for event in (LEAVES, ENTERS):
                (events / event / "enable").write_text("1")
        return self

    def __exit__(self, *_):
        if self.watches:
            self.instance.rmdir()

    def clear(self):
        """Forgets what was reclaimed."""
        if self.watches:
            (self.instance / "trace").write_text("")

    def mark(self):
        """From here on counts what is read again."""
        if self.watches:
            (self.instance / "trace_marker").write_text("begin")

    def undisturbed(self, measure):
        """What `measure` returns of a time in which nothing was read again that the kernel had reclaimed; what it
        returned last, if it was disturbed each time."""
        for _ in range(TRIES):
            self.clear()
            value = measure()
            if not self.watches or not read_again((self.instance / "trace").read_text()):
                return value
            self.repeated += 1
        self.repeated -= 1
        self.disturbed += 1
        return value

    def told(self):
        """What a cell of a result says of it."""
        return {"repeated": self.repeated, "disturbed": self.disturbed}
