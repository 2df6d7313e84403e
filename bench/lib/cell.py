"""Measures one workload on one disk, and condenses what `headstart bench` says."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from lib.learn import learn
from lib.run import Trouble, run

LEAST_ROUNDS = 3
# Where a round takes longer than this, one less has to do.
LONG_S = 60
# From so many rounds on there are intervals of 95 %.
SURE_ROUNDS = 6
COUNTERS = ("major_faults", "minor_faults", "read_bytes", "read_requests",
            "prefetched_bytes", "peer_s")
# What a round takes in addition to its starts: remounting and settling, for each arm.
BESIDE_S = 0.25
# How often about the search for the floor reads the pack.
FLOOR_TRIALS = 24


@dataclass(frozen=True)
class Bench:
    """What is the same for all cells."""

    headstart: Path
    folder: Path  # for packs, lists and whole results
    peers: list
    rounds: int
    timeout: str = "3min"


def measure(bench, disk, workload, seconds):
    """Measures a workload for about so long; the condensed result.

    It is learned on the first disk that it is measured on.
    """
    began = time.monotonic()
    stem = bench.folder / f"{workload.name}-{disk.model}"
    pack = bench.folder / f"{workload.name}.pack"
    pilot, export = stem.with_suffix(".pilot.json"), stem.with_suffix(".json")
    for old in (pilot, export):
        old.unlink(missing_ok=True)
    if not pack.exists():
        learn(bench.headstart, disk, workload, pack, exact=True)
    # One round without peers tells how long rounds take.
    start(bench, disk, workload, pack, pilot, ["--no-floor", "--runs", "1"])
    names = {"mount": disk.mount, "pack": pack} | write_lists(bench, disk, pack)
    left = seconds - (time.monotonic() - began)
    rounds, peers = affordable(json.loads(pilot.read_text()), bench.peers, left, bench.rounds)
    against = [word for peer in peers for word in ("--against", peer.argument(names))]
    start(bench, disk, workload, pack, export, ["--runs", str(rounds), *against])
    cell = condense(json.loads(export.read_text()))
    return {"workload": workload.name, "model": disk.model,
            "took_s": round(time.monotonic() - began, 1),
            "skipped": [peer.name for peer in bench.peers if peer not in peers]} | cell


def start(bench, disk, workload, pack, export, words):
    """Runs `headstart bench` on a workload."""
    ready = ["--ready", workload.ready] if workload.ready else []
    command = [bench.headstart, "bench", "--states", "cold,prefetched,hot", "--warmup", "0",
               "--timeout", bench.timeout, "--cold-cmd", disk.cold(), "--pack", pack,
               "--export-json", export, *words, *ready, "--", *disk.command(workload.start)]
    try:
        run(*command, env=os.environ | {"HEADSTART_PACKS": str(bench.folder)})
    except Trouble as why:
        raise Trouble(f"{workload.name} on {disk.model}: {why}") from None


def write_lists(bench, disk, pack):
    """Writes the files of a pack that are on the disk now, for peers; where.

    A start may remove what it made, as PostgreSQL its postmaster.pid, and cat fails then.
    """
    shown = json.loads(run(bench.headstart, "show", "--json", pack, capture=True))
    root = f"{disk.mount}/"
    paths = [file["path"] for file in shown["files"]
             if isinstance(file["path"], str) and file["path"].startswith(root)
             and os.path.lexists(file["path"])]
    lists = {"list": pack.with_suffix(".list"), "list0": pack.with_suffix(".list0")}
    lists["list"].write_text("".join(f"{path}\n" for path in paths))
    lists["list0"].write_text("".join(f"{path}\0" for path in paths))
    return lists


def affordable(pilot, peers, seconds, most):
    """How many rounds fit, and with which peers, after a round without any.

    Where there would be no intervals, the last peers are skipped, but not the first.
    """
    took = {arm["name"]: arm["counters"]["time_s"]["median"] for arm in pilot["arms"]}
    cold, ahead, hot = took["cold"], took["prefetched"], took["hot"]
    floor = max(ahead - hot, 0.1 * ahead)
    left = seconds - FLOOR_TRIALS * (floor + BESIDE_S) - ahead
    least = min(LEAST_ROUNDS - (cold + ahead > LONG_S), most)
    for count in range(len(peers), -1, -1):
        # Prefetched starts take no longer than cold ones, as a rule; hot ones come in pairs.
        a_round = cold + ahead + 2 * hot + floor + count * (cold + ahead) / 2
        a_round += (5 + count) * BESIDE_S
        rounds = int(left / a_round)
        if rounds >= min(SURE_ROUNDS, most) or count <= 1:
            return min(max(rounds, least), most), peers[:count]
    return least, []


def condense(document):
    """The figures of a result that tables are made from."""
    arms = {}
    for arm in document["arms"]:
        counters = arm["counters"]
        if "time_s" not in counters:
            continue  # Every run failed; the warnings say why.
        seconds = counters["time_s"]
        interval = seconds.get("median_interval") or {}
        if interval.get("confidence", 0) < 0.95:
            interval = {}  # Too few rounds for one.
        arms[arm["name"]] = {
            "n": seconds["n"],
            "median_s": figure(seconds["median"]),
            "low_s": figure(interval.get("low")),
            "high_s": figure(interval.get("high")),
        } | {name: figure(counters[name]["median"]) for name in COUNTERS if name in counters}
    limit = document.get("limit")
    pack = document.get("pack") or {}
    return {
        "rounds": document["rounds"],
        "arms": arms,
        "limit": limit and {"bound": limit["bound"]} | ratio(limit["ratio"])
        | {"in_order": limit["in_order"] and ratio(limit["in_order"])},
        "comparisons": [
            {"arm": c["arm"], "with": c["with"], "verdict": c["verdict"]["verdict"]}
            | ratio(c["ratio"])
            for c in document["comparisons"] if c.get("ratio")
        ],
        "floor_strategy": (document.get("floor") or {}).get("strategy"),
        "pack": {name: pack.get(name)
                 for name in ("files", "data_bytes", "metadata_bytes", "accuracy")},
        "others_busy": ((document["machine"].get("others")) or {}).get("busy"),
        "warnings": document["warnings"],
    }


def ratio(found):
    """A paired ratio with its interval."""
    interval = found["interval"]
    return {"ratio": figure(found["ratio"]), "low": figure(interval["low"]),
            "high": figure(interval["high"]),
            "confidence": figure(interval["confidence"]), "pairs": found["pairs"]}


def figure(value):
    """A number with as many digits as mean something."""
    return value if value is None else float(f"{value:.5g}")
