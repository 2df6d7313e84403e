#!/usr/bin/env python3
"""Are the page faults of `headstart faults` all that there are, and what does recording cost?

counts  runs programs through `headstart faults` and compares the faults of its records with what
        getrusage(2) accounts to the same processes; execve takes one without a record for the
        arguments of a program
cost    runs programs that time a part of themselves, alone and through `headstart faults`, in
        pairs of random order: how much more CPU time a fault takes, and the ratio of the wall
        times

waits   the same with --waits, as root: of system calls, of switches between threads, and of faults

As root all faults are recorded, for other users those of user space. Intervals are those of the
median by order, of 95 %.

Usage: bench/faults.py [--pairs N] [--runs N] [--headstart FILE] [--out FILE] [--smoke]
"""
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from lib.run import Trouble
from measured import (BUILT, REPOSITORY, RESULTS, about, command_line, main, middle, run, spelled, tool,
                      write)

# Each prints how many ns its part took, how many of CPU time, and how many faults it had.
NOW = """
import time
def now():
    return time.perf_counter_ns(), time.thread_time_ns()
"""
ANONYMOUS = """
import mmap, sys
pages = int(sys.argv[1])
memory = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
began = now()
for at in range(0, pages * 4096, 4096):
    memory[at] = 1
print(*(b - a for a, b in zip(began, now())), pages)
"""
# Each page is copied, since it is written, so that no fault maps pages around it.
MAPPED = """
import mmap, sys, tempfile
pages = int(sys.argv[1])
with tempfile.TemporaryFile(dir=sys.argv[2]) as file:
    file.write(bytes(pages * 4096))
    file.flush()
    memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
    began = now()
    for at in range(0, pages * 4096, 4096):
        memory[at] = 1
    print(*(b - a for a, b in zip(began, now())), pages)
"""
IMPORTS = """
import resource
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before, began = faults(), now()
import asyncio, email, json, sqlite3, ssl, unittest, xml.dom.minidom
print(*(b - a for a, b in zip(began, now())), faults() - before)
"""
# One that returns at once.
CALLS = """
import os, sys
count, call = int(sys.argv[1]), os.getppid
began = now()
for _ in range(count):
    call()
print(*(b - a for a, b in zip(began, now())), count)
"""
# A byte to another process and one back: each waits for the other.
SWITCHES = """
import os, sys
count = int(sys.argv[1])
(own, to), (other, back) = os.pipe(), os.pipe()
if os.fork() == 0:
    while byte := os.read(own, 1):
        os.write(back, byte)
        if byte == b"e":
            os._exit(0)
began = now()
for _ in range(count):
    os.write(to, b"x")
    os.read(other, 1)
ended = now()
os.write(to, b"e")
os.wait()
print(*(b - a for a, b in zip(began, ended)), count)
"""
PYTHON = "/usr/bin/python3"
PAGES = 20_000
TIMED = {"anonymous pages": [ANONYMOUS, PAGES], "copied pages of a file": [MAPPED, PAGES, "{work}"],
         "python imports": [IMPORTS]}
TIMED_WITH_WAITS = {"system calls": [CALLS, 200_000], "bytes to and fro": [SWITCHES, 10_000],
                    "anonymous pages": TIMED["anonymous pages"],
                    "python imports": TIMED["python imports"]}

SOURCE = "#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }\n"
SQL = """create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into t select i, hex(randomblob(40)) from n; create index x on t(b); select count(*) from t;"""
PROGRAMS = {
    "python3": [PYTHON, "-c", "import json, ssl, email, asyncio, sqlite3"],
    "git": ["git", "-C", REPOSITORY, "log", "--stat", "-n", "200"],
    "gcc": ["gcc", "-O2", "-x", "c", "-c", "-o", "/dev/null", "{source}"],
    "node": ["node", "-e", "require('http'); JSON.stringify([...Array(100000).keys()])"],
    "perl": ["perl", "-MPOSIX", "-MData::Dumper", "-MStorable", "-e", "my %h = map {$_ => 1} 1..20000"],
    "bash": ["bash", "-c", "for i in {1..100}; do (exit); done"],
    "sqlite3": ["sqlite3", ":memory:", SQL],
    "openssl": ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "sort": ["sort", "--parallel=2", "{words}"],
    "xz": ["xz", "--keep", "--stdout", "-1", "{words}"],
    "make": ["make", "-f", "{makefile}"],
    "tar": ["tar", "-cf", "/dev/null", "-C", REPOSITORY, "crates"],
}
LEAST_PROGRAMS = 10
# As a part of all faults: what neither a record nor an execution explains.
MOST_UNEXPLAINED = 0.005


def arguments():
    parser = command_line(__doc__)
    add = parser.add_argument
    add("--pairs", type=int, default=100, help="pairs of each timed program [default: 100]")
    add("--runs", type=int, default=5, help="runs of each counted program [default: 5]")
    add("--headstart", default=BUILT / "headstart")
    add("--out", default=RESULTS / "faults.json")
    add("--smoke", action="store_true", help="does it work? keeps no results")
    return parser.parse_args()


def faults():
    options = arguments()
    if options.smoke:
        options.pairs, options.runs = 2, 1
    headstart = tool(options.headstart, "./build.sh, or --headstart FILE")
    result = about("headstart/faults-bench/1", headstart)
    result |= {"user": "root" if os.geteuid() == 0 else "other"}
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        result["counts"] = counts(headstart, work, options.runs)
        result["cost"] = costs(headstart, work, options.pairs, TIMED)
        if os.geteuid() == 0:
            result["waits"] = costs(headstart, work, options.pairs, TIMED_WITH_WAITS, "--waits")
    if not options.smoke:
        write(options.out, result)
    wrong = [name for name, row in result["counts"].items()
             if row["largest_unexplained"] > MOST_UNEXPLAINED]
    if wrong and os.geteuid() == 0:
        print(f"more than {100 * MOST_UNEXPLAINED} % of the faults are not recorded, or too many: "
              + ", ".join(wrong), file=sys.stderr)
        return 3
    return 0


def recorded(headstart, work, command, *options):
    """What the program printed, and the document of headstart."""
    figures = work / "figures.json"
    printed = run(headstart, "faults", *options, "--quiet", "--json", figures, "--", *command)
    return printed, json.loads(figures.read_text())


def counts(headstart, work, runs):
    """Recorded and accounted faults of each program."""
    files = {"source": SOURCE, "words": "".join(f"{i * 7919 % 100003}\n" for i in range(200_000)),
             "makefile": "all:\n" + "\t@/bin/true\n" * 100}
    for name, text in files.items():
        (work / name).write_text(text)
    found = {}
    print(f"{'program':10} {'getrusage':>10} {'major':>6} {'recorded':>10} {'major':>6} "
          f"{'not recorded, %':>16} {'executions':>10} {'unexplained, %':>15} {'lost':>5}")
    for name, words in PROGRAMS.items():
        command = [str(word).format(**{file: work / file for file in files})
                   if str(word).startswith("{") else str(word) for word in words]
        try:
            # The first run fills the page cache, and tells whether it works here.
            run(*command)
        except (Trouble, OSError) as trouble:
            print(f"{name:10} does not work here: {trouble}")
            continue
        rows = []
        for _ in range(runs):
            _, document = recorded(headstart, work, command)
            usage, total, rest = (document[key] for key in ("getrusage", "total", "unlisted"))
            minor = total["minor"]["count"] + rest["minor_before_exec"]
            major = total["major"]["count"] + rest["major_before_exec"]
            minor += rest["ends_without_start"]
            accounted = usage["minor"] + usage["major"]
            rows.append({"minor": minor, "major": major, "usage_minor": usage["minor"],
                         "usage_major": usage["major"], "lost": rest["lost_faults"],
                         "executions": document["executions"],
                         "difference": (accounted - minor - major) / accounted,
                         # One fault without a record for the arguments of each program.
                         "unexplained": (accounted - minor - major - document["executions"])
                         / accounted})
        rows.sort(key=lambda row: row["difference"])
        typical = rows[len(rows) // 2]
        found[name] = {"command": shlex.join(command).replace(str(work), "WORK")
                       .replace(str(REPOSITORY), "REPOSITORY"),
                       "n": runs, "median": typical,
                       **{f"largest_{what}": max(abs(row[what]) for row in rows)
                          for what in ("difference", "unexplained")}}
        print(f"{name:10} {typical['usage_minor']:10} {typical['usage_major']:6} {typical['minor']:10} "
              f"{typical['major']:6} {100 * typical['difference']:16.2f} {typical['executions']:10} "
              f"{100 * typical['unexplained']:15.2f} "
              f"{typical['lost']:5}")
    if len(found) < LEAST_PROGRAMS:
        raise Trouble(f"only {len(found)} of the programs are here, and {LEAST_PROGRAMS} are needed")
    return found


def costs(headstart, work, pairs, timed, *options):
    """What recording adds to a fault of each timed program, or to what else it does."""
    found = {}
    print(f"\n{' '.join(('timed', *options)):24} {'count':>8} {'alone ns':>9} {'more ns for each':>26} "
          f"{'ratio of wall':>26} {'lost':>5}")
    for name, (program, *words) in timed.items():
        command = [PYTHON, "-I", "-c", NOW + program,
                   *(str(word).format(work=work) for word in words)]
        more, ratios, alone, own, lost = [], [], [], [], 0
        for _ in range(pairs):
            times = {}
            for arm in random.sample(["alone", "recorded"], 2):
                if arm == "alone":
                    printed = run(*command)
                else:
                    printed, document = recorded(headstart, work, command, *options)
                    own.append(document["cost"]["ns_per_fault"])
                    lost += document["unlisted"]["lost_records"]
                wall, cpu, count = map(int, printed.split())
                times[arm] = (wall, cpu)
            (wall, cpu), (wall_alone, cpu_alone) = times["recorded"], times["alone"]
            more.append((cpu - cpu_alone) / count)
            ratios.append(wall / wall_alone)
            alone.append(cpu_alone / count)
        found[name] = {"pairs": pairs, "faults": count, "lost_records": lost,
                       "alone_ns": round(statistics.median(alone)), "more_ns": middle(more, 0),
                       "ratio": middle(ratios, 3), "own_estimate_ns": middle(own, 0)}
        row = found[name]
        print(f"{name:24} {count:8} {row['alone_ns']:9} {spelled(row['more_ns']):>26} "
              f"{spelled(row['ratio']):>26} {lost:5}")
    return found


if __name__ == "__main__":
    main(faults)
