#!/usr/bin/env python3
"""Do large folios make a hot start faster?

Records the program, then fills the cache with its pack with and without large folios, in random order in
each round, and starts the program after each once unmeasured and then three times:
  plain   headstart replay --wait
  large   headstart replay --wait --large-folios
A round's figure is the median of the three; the ratio is large to plain of one round.

Usage: bench/large-folios.py [--rounds N] [--name NAME] [--headstart FILE] [--out FILE] -- CMD…
"""
import json
import random
import resource
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from measured import (BUILT, RESULTS, Trouble, about, command_line, interval, main, run, spread,
                      tool, write)

FILLS = {"plain": [], "large": ["--large-folios"]}
STARTS = 3


def arguments():
    parser = command_line(__doc__, usage="%(prog)s [OPTION…] -- CMD…")
    add = parser.add_argument
    add("--rounds", type=int, default=20, help="[default: 20]")
    add("--name", help="what the result is called [default: the command's first word]")
    add("--headstart", default=BUILT / "headstart")
    add("--out", default=RESULTS / "large-folios.json", help="results join it by name")
    add("command", nargs="+", metavar="CMD", help="the program")
    return parser.parse_args()


def start(command):
    """One start: milliseconds and minor faults."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    ms = 1000 * (time.perf_counter() - began)
    if done.returncode:
        raise Trouble(f"{command[0]} ended with status {done.returncode}")
    return ms, resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before.ru_minflt


def large_folios():
    options = arguments()
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    result = about("headstart/large-folios/1", headstart)
    command, found = options.command, {fill: [] for fill in FILLS}
    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder) / "pack"
        for _ in range(2):
            run(headstart, "record", "--quiet", "--pack", pack, "--", *command)
        for _ in range(options.rounds):
            for fill in random.sample(list(FILLS), len(FILLS)):
                # Ends with a status of its own where a file is in use.
                subprocess.run([headstart, "evict", pack], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, check=False)
                filled = json.loads(run(headstart, "replay", "--wait", "--json", *FILLS[fill], pack))
                start(command)
                starts = [start(command) for _ in range(STARTS)]
                found[fill].append({
                    "ms": statistics.median(ms for ms, _ in starts),
                    "minor_faults": statistics.median(faults for _, faults in starts),
                    "parts": filled.get("large_folios"),
                })
    ratios = [large["ms"] / plain["ms"] for plain, large in zip(found["plain"], found["large"])]
    ratio = statistics.median(ratios)
    low, high, confidence = interval(sorted(ratios))
    if confidence < 0.95:
        low = high = None
    for fill, rounds in found.items():
        result[fill] = {figure: spread([one[figure] for one in rounds])
                       for figure in ("ms", "minor_faults")}
        print(f"{fill:6} {result[fill]['ms']['median']:9.1f} ms "
              f"{result[fill]['minor_faults']['median']:9.0f} minor faults")
    result |= {"command": shlex.join(command), "rounds": options.rounds,
               "ratio": {"median": ratio, "low": low, "high": high},
               "parts": found["large"][-1]["parts"]}
    between = f" [{low:.3f}, {high:.3f}]" if low else ""
    print(f"large to plain {ratio:.3f}{between}, n = {options.rounds}; {result['parts']}")
    out = Path(options.out)
    results = json.loads(out.read_text()) if out.exists() else {}
    write(out, results | {options.name or Path(command[0]).name: result})
    return 0


if __name__ == "__main__":
    main(large_folios)
