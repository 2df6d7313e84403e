#!/usr/bin/env python3
"""How often does headstart bench report a difference where there is none?

Compares a program with itself (A/A), hot, in 20 rounds, 20 times, and
counts how often the verdict is that one is faster. A verdict needs
p <= 0.01, so 0.2 of 20 are expected; the chance of more than 1 is below 2 %.
Does so for a program that takes a millisecond and for one that takes longer, on
the machine as it is and with two busy processes in the background.

Usage: bench/same.py [--repeats N] [--load N,…] [--headstart FILE] [--out FILE]
Ends with status 3 when a case has more than 1 of 20.
"""
import json

from measured import BUILT, RESULTS, about, command_line, hogs, main, run, tool, write

PROGRAMS = ("true", "python3 -c pass")
ROUNDS = 20
ALLOWED = 1 / 20


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--repeats", type=int, default=20, help="benchmarks of each case [default: 20]")
    add("--load", default="0,2", metavar="N,…",
        help="busy background processes, a case each [default: 0,2]")
    add("--headstart", default=BUILT / "headstart")
    add("--out", default=RESULTS / "same.json")
    return parser.parse_args()


def compare(headstart, program):
    """One benchmark of a program against itself."""
    document = json.loads(run(headstart, "bench", "--json", "--states", "hot", "--runs", ROUNDS,
                              "--against", f"A:={program}", "--", *program.split()))
    [found] = document["comparisons"]
    ratio, times = found["ratio"], [arm["counters"]["time_s"]["median"] for arm in document["arms"]]
    return {
        "verdict": found["verdict"]["verdict"],
        "ratio": ratio["ratio"],
        "low": ratio["interval"]["low"],
        "high": ratio["interval"]["high"],
        "p": ratio["p"],
        "median_ms": [round(1000 * time, 3) for time in times],
        "others_busy": (document["machine"]["others"] or {}).get("busy"),
    }


def case(headstart, program, load, options):
    """All repeats of one program with this many background processes."""
    repeats = []
    with hogs(load):
        for _ in range(options.repeats):
            repeats.append(compare(headstart, program))
    calls = sum(repeat["verdict"] in ("helps", "hurts") for repeat in repeats)
    found = {
        "program": program, "load": load, "n": len(repeats), "rounds": ROUNDS, "calls": calls,
        # What the 95 % intervals alone would have called.
        "intervals_without_1": sum(not r["low"] <= 1 <= r["high"] for r in repeats),
        "repeats": repeats,
    }
    ratios = sorted(repeat["ratio"] for repeat in repeats)
    print(f"{program:16} beside {load}: {calls} of {len(repeats)} call a difference; "
          f"{found['intervals_without_1']} intervals without 1; "
          f"ratios {ratios[0]:.3f} to {ratios[-1]:.3f}", flush=True)
    return found


def same():
    options = arguments()
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    result = about("headstart/same/1", headstart)
    result["cases"] = [case(headstart, program, int(load), options)
                       for load in options.load.split(",") for program in PROGRAMS]
    write(options.out, result)
    good = all(found["calls"] <= ALLOWED * found["n"] for found in result["cases"])
    return 0 if good else 3


if __name__ == "__main__":
    main(same)
