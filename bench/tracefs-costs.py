#!/usr/bin/env python3
"""What the steps of arming a trace instance cost: the figures behind doc/recording.md.

Usage: bench/tracefs-costs.py [ROUNDS]   (root; default 20 rounds)
Prints the median, minimum and maximum of each step in milliseconds.
"""
import os
import statistics
import sys
import time

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
INSTANCE = f"/sys/kernel/tracing/instances/costs-{os.getpid()}"
EVENTS = [
    "filemap/mm_filemap_add_to_page_cache",
    "filemap/mm_filemap_get_pages",
    "filemap/mm_filemap_map_pages",
    "filemap/mm_filemap_fault",
    "block/block_touch_buffer",
]
times = {}


def step(name, action):
    begin = time.perf_counter()
    action()
    times.setdefault(name, []).append((time.perf_counter() - begin) * 1000)


def write(file, text):
    fd = os.open(f"{INSTANCE}/{file}", os.O_WRONLY)
    os.write(fd, text.encode())
    os.close(fd)


def enable():
    for event in EVENTS:
        write(f"events/{event}/enable", "1")


for _ in range(ROUNDS):
    step("create the instance", lambda: os.mkdir(INSTANCE))
    step("follow a process (set_event_pid)", lambda: write("set_event_pid", str(os.getpid())))
    step("follow its children (event-fork)", lambda: write("options/event-fork", "1"))
    step("enable five events", enable)
    step("stop", lambda: write("tracing_on", "0"))
    step("not done: another clock (mono)", lambda: write("trace_clock", "mono"))
    step("not done: a buffer of 4 MiB", lambda: write("buffer_size_kb", "4096"))
    step("remove the instance", lambda: os.rmdir(INSTANCE))

print(f"{'step':36} {'median':>8} {'min':>8} {'max':>8}   ms, n = {ROUNDS}")
for name, values in times.items():
    print(f"{name:36} {statistics.median(values):8.2f} {min(values):8.2f} {max(values):8.2f}")
