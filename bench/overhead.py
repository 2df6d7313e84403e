#!/usr/bin/env python3
"""What does learning add to a hot start: time, events, bytes?

Starts a program alone and through headstart, in random order in each round, with a hot
cache:
  bare      the program alone
  through   headstart run --no-learn --no-replay
  learning  headstart run --no-replay
  full      headstart run

With --other, the same through another build with packs of its own, in the same rounds, and the
ratio of each arm to that of the other build. Intervals are those of the median by order, of 95 %.

Usage: bench/overhead.py [--rounds N] [--headstart FILE] [--other FILE] [--out FILE] [-- CMD…]
"""
import json
import os
import shlex
import statistics
import tempfile
from pathlib import Path

from measured import (BUILT, RESULTS, about, command_line, main, middle, run, spelled, tool, write)

PROGRAM = ["python3", "-c", "import json, ssl, email, asyncio, sqlite3"]
ARMS = {"through": ["--no-learn", "--no-replay"], "learning": ["--no-replay"], "full": []}
# The kernel removes an earlier start's trace instance in the background.
PREPARE = "while ls /sys/kernel/tracing/instances | grep -q ^headstart-; do :; done"
FIGURES = ("events", "lost_events", "learn_us", "resolve_us", "pack_bytes")


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=40, help="starts of each [default: 40]")
    add("--headstart", default=BUILT / "headstart")
    add("--other", help="another build of headstart")
    add("--out", default=RESULTS / "overhead.json")
    add("command", nargs="*", default=PROGRAM, metavar="CMD", help="the program")
    return parser.parse_args()


def overhead():
    options = arguments()
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    result = about("headstart/overhead/1", headstart)
    command = options.command

    def through(words, build=headstart):
        return [build, "run", *words, "--", *command]
    with tempfile.TemporaryDirectory() as packs:
        os.environ["HEADSTART_PACKS"] = packs
        # Bare as well: bench starts a quoted command by a shell, so all are.
        commands = {"bare": command} | {name: through(words) for name, words in ARMS.items()}
        if options.other:
            other = tool(options.other, "--other FILE")
            commands |= {f"{name}-other": through(words, other) for name, words in ARMS.items()}
        packs_of = {name: f"{packs}/{'other' if name.endswith('-other') else 'own'}"
                    for name in commands}
        against = [word for name, words in commands.items() for word in (
            "--against", f"{name}:=HEADSTART_PACKS={packs_of[name]} {shlex.join(words)}")]
        document = json.loads(run(headstart, "bench", "--json", "--states", "hot", "--runs",
                                  options.rounds, "--prepare", PREPARE, *against, "--", *command))
        figures = Path(packs) / "figures"
        run(*through(["--always", "--json", str(figures)]))
        learned = json.loads(figures.read_text())
    times = {arm["name"].split(" ")[0]: [one["wall_s"] for one in arm["runs"]]
             for arm in document["arms"]}
    bare = times["bare"]
    result |= {"command": shlex.join(command), "rounds": len(bare), "arms": {}}
    print(f"{'arm':14} {'median ms':>12} {'more than bare ms':>24} {'to the other build':>24}")
    for name in commands:
        values = times[name]
        arm = {"median_ms": round(1000 * statistics.median(values), 2),
               "more_ms": middle([1000 * (v - b) for v, b in zip(values, bare)], 2)}
        if others := times.get(f"{name}-other"):
            arm["to_other"] = middle([v / o for v, o in zip(values, others)], 4)
        result["arms"][name] = arm
        print(f"{name:14} {arm['median_ms']:12.2f} {spelled(arm['more_ms']):>24} "
              f"{spelled(arm.get('to_other')):>24}")
    result["figures"] = {"exec_after_us": learned["exec_after_us"]} | {
        name: learned["learned"][name] for name in FIGURES if name in learned["learned"]}
    print(result["figures"])
    write(options.out, result)
    return 0


if __name__ == "__main__":
    main(overhead)
