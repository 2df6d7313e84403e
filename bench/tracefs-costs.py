#!/usr/bin/env python3
"""What do the steps of setting up a trace instance cost? The figures behind doc/recording.md.

Usage: bench/tracefs-costs.py [--rounds N] [--headstart FILE] [--out FILE]
Writes the median, minimum and maximum of each step in milliseconds.
"""
import os
import time

from measured import BUILT, RESULTS, about, command_line, main, spread, tool, write

INSTANCE = f"/sys/kernel/tracing/instances/costs-{os.getpid()}"
EVENTS = [
    "filemap/mm_filemap_add_to_page_cache",
    "filemap/mm_filemap_get_pages",
    "filemap/mm_filemap_map_pages",
    "filemap/mm_filemap_fault",
    "block/block_touch_buffer",
    "ext4/ext4_allocate_blocks",
]


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=20, help="times that each step is made [default: 20]")
    add("--headstart", default=BUILT / "headstart")
    add("--out", default=RESULTS / "tracefs-costs.json")
    return parser.parse_args()


def set_to(file, text):
    """Writes into a file of the instance."""
    fd = os.open(f"{INSTANCE}/{file}", os.O_WRONLY)
    os.write(fd, text.encode())
    os.close(fd)


def enable():
    for event in EVENTS:
        set_to(f"events/{event}/enable", "1")


STEPS = {
    "create the instance": lambda: os.mkdir(INSTANCE),
    "follow a process (set_event_pid)": lambda: set_to("set_event_pid", str(os.getpid())),
    "follow its children (event-fork)": lambda: set_to("options/event-fork", "1"),
    "enable six events": enable,
    "stop": lambda: set_to("tracing_on", "0"),
    "not done: another clock (mono)": lambda: set_to("trace_clock", "mono"),
    "not done: a buffer of 4 MiB": lambda: set_to("buffer_size_kb", "4096"),
    "remove the instance": lambda: os.rmdir(INSTANCE),
}


def costs():
    options = arguments()
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    result = about("headstart/tracefs-costs/1", headstart)
    times = {name: [] for name in STEPS}
    try:
        for _ in range(options.rounds):
            for name, step in STEPS.items():
                began = time.perf_counter()
                step()
                times[name].append(round(1000 * (time.perf_counter() - began), 3))
    finally:
        if os.path.isdir(INSTANCE):
            os.rmdir(INSTANCE)
    result["steps_ms"] = {name: spread(values) for name, values in times.items()}
    print(f"{'step':36} {'median':>8} {'min':>8} {'max':>8}   ms, n = {options.rounds}")
    for name, found in result["steps_ms"].items():
        print(f"{name:36} {found['median']:8.2f} {found['min']:8.2f} {found['max']:8.2f}")
    write(options.out, result)
    return 0


if __name__ == "__main__":
    main(costs)
