#!/usr/bin/env python3
"""Writes the tables of doc/performance.md from bench/results/*.json.

Usage: bench/tables.py [--check]

A table is a function here that returns Markdown, entered in TABLES under the name
that stands in the document: what is between `<!-- table NAME -->` and
`<!-- end NAME -->` is replaced. With --check nothing is written, and the exit
status is 1 when a table is out of date.
"""

import json
import re
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCUMENT = HERE.parent / "doc/performance.md"
MISSING = "Not measured yet."
FASTEST_FIRST = ("nvme", "sata-ssd", "emmc", "cloud", "cloud-lazy", "hdd")


def results(name):
    """A result file; None when there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def markdown(head, rows):
    """A table; all columns but the first are aligned to the right."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def seconds(value):
    """A time with three digits: 12.3 s, 0.123 s as 123 ms."""
    if value is None:
        return "–"
    return f"{1000 * value:.3g} ms" if value < 0.9995 else f"{float(f'{value:.3g}'):g} s"


def times(arm):
    """The median of an arm with its interval."""
    if arm is None:
        return "–"
    if arm["low_s"] is None:
        return seconds(arm["median_s"])
    return f"{seconds(arm['median_s'])} [{seconds(arm['low_s'])}, {seconds(arm['high_s'])}]"


def is_sure(found):
    """Whether an interval has the confidence of 95 %: from six rounds on."""
    return found["confidence"] >= 0.95


def ratio(found):
    """A ratio with its interval, which is skipped when it is none of 95 %."""
    if found is None:
        return "–"
    text = f"{found['ratio']:.2f}"
    if is_sure(found):
        text += f" [{found['low']:.2f}, {found['high']:.2f}]"
    return f"**{text}**" if is_sure(found) and found["low"] > 1 else text


def against(cell, other):
    """The times of headstart ÷ those of another arm."""
    return next((c for c in cell["comparisons"]
                 if c["arm"] == "prefetched" and c["with"] == other), None)


def titles(document):
    """What the workloads are called in full."""
    return {w["name"]: w["title"] for w in document["workloads"]}


def by_model(document, table):
    """A table for each disk, under its name, from the cells on it."""
    parts = []
    for model in FASTEST_FIRST:
        cells = {c["workload"]: c for c in document["cells"] if c["model"] == model}
        cells = [cells[w["name"]] for w in document["workloads"] if w["name"] in cells]
        if cells:
            parts.append(f"`{model}`:\n\n{table(cells)}")
    return "\n\n".join(parts)


def standing_setup():
    """What was measured, and where."""
    found = results("standing")
    if not found:
        return MISSING
    rounds = sorted(c["rounds"] for c in found["cells"])
    busy = max((c["others_busy"] or 0 for c in found["cells"]), default=0)
    of_commit = {}
    for cell in found["cells"]:
        disks = of_commit.setdefault((cell["date"], cell["commit"]), {})
        disks.setdefault(cell["model"], []).append(cell["workload"])
    when = "; ".join(f"{on_disks(found, disks)} on {date} at commit `{commit}`"
                     for (date, commit), disks in sorted(of_commit.items()))
    return (
        f"Measured: {when}. Linux {found['kernel']}, "
        f"{found['cpus']} × {found['cpu']}, {found['memory_bytes'] / 2**30:.0f} GiB of memory; "
        f"{len(found['cells'])} cells of {rounds[0]} to {rounds[-1]} rounds. "
        f"Other work, the modelled disk's included, took at most {busy:.1f} CPUs."
    )


def on_disks(found, disks):
    """What was measured on which disks, in words."""
    every = len(found["workloads"])
    parts = [f"`{model}`" + (f" ({', '.join(names)})" if len(names) < every else "")
             for model, names in sorted(disks.items(), key=lambda d: FASTEST_FIRST.index(d[0]))]
    return ", ".join(parts)


def standing_starts():
    """Cold, with headstart, hot, and the floor."""
    found = results("standing")
    if not found:
        return MISSING
    names = titles(found)

    def table(cells):
        head = ["start", "n", "cold", "headstart", "hot", "floor", "× limit", "least",
                "× in order", "÷ cold"]
        return markdown(head, [
            [names[c["workload"]], c["rounds"], times(c["arms"].get("cold")),
             times(c["arms"].get("prefetched")), seconds(median(c, "hot")),
             seconds(median(c, "floor")),
             f"{limit(c)['ratio']:.2f} ({limit(c)['bound']})" if limit(c) else "–",
             decimal(least(limit(c))), decimal(in_order(limit(c))), ratio(against(c, "cold"))]
            for c in cells
        ] + [["geometric mean", "", "", "", "", "",
              *(decimal(mean(cells, of)) for of in (to_limit, least, in_order)), ""]])
    return by_model(found, table)


def has_hot_starts(cell):
    """Whether what is called hot was: such a start hardly reads what a cold one does."""
    of_hot, of_cold = (median(cell, state, "read_bytes") or 0 for state in ("hot", "cold"))
    return of_hot <= 0.1 * of_cold


def limit(cell):
    """The limit of a cell, where it is known."""
    return cell["limit"] if has_hot_starts(cell) else None


def to_limit(limit):
    """How many times the limit headstart took."""
    return limit and limit["ratio"]


def in_order(limit):
    """The time with headstart ÷ the lower bound in touch order."""
    found = limit and limit.get("in_order")
    return found and found["ratio"]


def least(limit):
    """The lower bound in touch order ÷ the limit."""
    return in_order(limit) and to_limit(limit) / in_order(limit)


def mean(cells, of):
    """The geometric mean of a figure of limits, where all cells have it."""
    found = [of(limit(cell)) for cell in cells]
    return statistics.geometric_mean(found) if all(found) else None


def decimal(number):
    """A number in a table."""
    return f"{number:.2f}" if number else "–"


def median(cell, arm, counter="median_s"):
    """A figure of an arm; None when it was not measured."""
    return cell["arms"].get(arm, {}).get(counter)


def narrow():
    """How wide the intervals of one benchmark are."""
    found = results("narrow")
    if not found:
        return MISSING
    head = ["disk", "state", "n", "median", "95 % interval", "its width ÷ the median"]
    rows, took = [], []
    for cell in found["cells"]:
        took.append(f"{cell['model']} {cell['took_s']:.0f} s")
        for name in ("cold", "prefetched", "hot", "floor"):
            arm = cell["arms"][name]
            width = (arm["high_s"] - arm["low_s"]) / arm["median_s"]
            rows.append([f"`{cell['model']}`", name, arm["n"], seconds(arm["median_s"]),
                         f"{seconds(arm['low_s'])} to {seconds(arm['high_s'])}",
                         f"{100 * width:.1f} %"])
    return (markdown(head, rows) + f"\n\nTook {', '.join(took)}. Measured on {found['date']} "
            f"at commit `{found['commit']}`.")


def standing_peers():
    """The time with headstart ÷ that with each peer."""
    found = results("standing")
    if not found or not found["peers"]:
        return MISSING
    names, peers = titles(found), [p["name"] for p in found["peers"]]

    def table(cells):
        return markdown(["start", *peers], [
            [names[c["workload"]], *(ratio(against(c, peer)) for peer in peers)] for c in cells
        ])
    return by_model(found, table)


def standing_counts():
    """Requests, bytes and major faults on one disk; what is prefetched depends on it."""
    found = results("standing")
    if not found:
        return MISSING
    names, rows = titles(found), []
    for workload in names:
        cells = [c for c in found["cells"] if c["workload"] == workload]
        # Others if necessary: with many requests in flight, steps are shorter and more.
        cells.sort(key=lambda c: c["model"] != "emmc")
        if not cells:
            continue
        cell = cells[0]
        row = [names[workload], f"`{cell['model']}`", cell["rounds"]]
        for counter, form in (("read_requests", "{:.0f}"), ("read_bytes", "{:.1f}"),
                              ("major_faults", "{:.0f}")):
            for state in ("cold", "prefetched"):
                value = median(cell, state, counter)
                scale = 1e6 if counter == "read_bytes" else 1
                row.append("–" if value is None else form.format(value / scale))
        rows.append(row)
    return markdown(["start", "on", "n", "requests cold", "with headstart", "MB cold", "with headstart",
                     "major faults cold", "with headstart"], rows)


def standing_losses():
    """Where headstart loses or gains nothing, by the same figures."""
    found = results("standing")
    if not found:
        return MISSING
    beaten, open_, idle, few = [], [], [], []
    compared = 0
    for cell in found["cells"]:
        where = f"{cell['workload']} on {cell['model']}"
        for peer in found["peers"]:
            pair = against(cell, peer["name"])
            if pair is None:
                continue
            compared += 1
            if is_sure(pair) and pair["low"] > 1:
                beaten.append((pair["ratio"], f"{where}: {peer['name']} is faster, headstart "
                               f"takes {ratio(pair).strip('*')} times as long"))
            elif pair["ratio"] > 1:
                open_.append(f"{where}, {peer['name']} ({pair['ratio']:.2f})")
        pair = against(cell, "cold")
        if pair is None:
            idle.append(f"{where}: not measured")
        elif not is_sure(pair):
            few.append(f"{where} (n = {pair['pairs']}, {pair['ratio']:.2f})")
        elif pair["high"] >= 1:
            idle.append(f"{where}: {ratio(pair).strip('*')} of a cold start")
    beaten = [text for _, text in sorted(beaten, reverse=True)]
    parts = [
        section(f"Peers that are significantly faster ({len(beaten)} of {compared} comparisons)", beaten),
        section("Cells where headstart is not significantly faster than a cold start", idle),
        f"Peers that may be faster, within the precision of n rounds: {listed(open_)}.",
        f"Cells with too few rounds for an interval, and headstart ÷ cold there: {listed(few)}.",
    ]
    return "\n\n".join(parts)


def listed(entries):
    """Entries in a line."""
    return "; ".join(entries) if entries else "none"


def section(title, entries):
    """A list with a title."""
    if not entries:
        return f"{title}: none."
    return f"{title}:\n\n" + "\n".join(f"- {entry}" for entry in entries)


def standing_warnings():
    """What `headstart bench` warned of, and how often."""
    found = results("standing")
    if not found:
        return MISSING
    where, unsteady = {}, {}
    for cell in found["cells"]:
        for text in cell["warnings"]:
            kind = next((kind for kind, sign in UNSTEADY.items() if sign in text), None)
            if kind:
                arms = unsteady.setdefault(kind, {}).setdefault(cell["model"], {})
                arms.setdefault(cell["workload"], []).append(text.split(":")[0])
            # Said once, of all cells, beside n and the machine.
            elif "too few for a 95 % interval" not in text and "Other work took" not in text:
                where.setdefault((cell["workload"], text), []).append(cell["model"])
    return section("Warnings", [f"{workload} on {', '.join(models)}: {text}"
                                for (workload, text), models in where.items()]
                   + [f"{kind}: {in_words(disks)}" for kind, disks in unsteady.items()])


# Warnings of runs that differ; medians and ratios of the same rounds are robust to them.
UNSTEADY = {
    "Single runs lie far from the others": "far from the others",
    "The first run took longer than the others": "The first run took",
    "The runs got slower or faster with the rounds": "from first to last",
}


def in_words(disks):
    """Which arms of which starts on which disks."""
    return "; ".join(f"`{model}`: " + ", ".join(f"{start} ({', '.join(dict.fromkeys(arms))})"
                                                for start, arms in starts.items())
                     for model, starts in disks.items())


def growth():
    """How the cost of learning and replaying grows."""
    found = results("growth")
    if not found:
        return MISSING
    columns = [("pack_bytes", "pack, kB", 1e3), ("events", "events", 1),
               ("learn_ms", "learned in, ms", 1), ("learn_memory_bytes", "memory, MB", 1e6),
               ("exec_ahead_ms", "before exec, ms", 1), ("replay_ms", "prefetched in, ms", 1),
               ("cold_ms", "cold, ms", 1), ("ahead_ms", "with headstart, ms", 1)]
    parts = []
    for curve in found["growth"]:
        points = [p for p in found["points"]
                  if (p["part"], p["disk"]) == (curve["part"], curve["disk"])]
        rows = [[plain(p[p["part"]]), *(plain(p["figures"][name]["median"] / scale)
                                        if name in p["figures"] else "–"
                                        for name, _, scale in columns)] for p in points]
        rows.append(["grows as n to the power of",
                     *(f"{curve['exponents'][name]['all']:.2f}"
                       if name in curve["exponents"] else "–" for name, _, _ in columns)])
        parts.append(f"{curve['part'].capitalize()}, on `{curve['disk']}`:\n\n"
                     + markdown([curve["part"], *(title for _, title, _ in columns)], rows))
    skipped = [f"{plain(p[p['part']])} {p['part']}: {p['why']}" for p in found["skipped"]]
    lost = sum(p["figures"].get("lost_events", {}).get("max", 0) for p in found["points"])
    parts.append(f"Measured on {found['date'][:10]} at commit `{found['commit']}`, medians of "
                 f"{found['points'][0]['rounds']}; {plain(lost)} events were lost. Not measured: "
                 f"{listed(skipped)}.")
    parts += [f"The point of {plain(p[p['part']])} {p['part']} on `{p['disk']}` is of commit "
              f"`{p['commit']}`, n = {p['rounds']}." for p in found["points"] if "commit" in p]
    return "\n\n".join(parts)


def plain(value):
    """A number with three digits, or whole."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def same():
    """How often a program is reported to differ from itself."""
    found = results("same")
    if not found:
        return MISSING
    head = ["program", "background processes", "benchmarks", "rounds of each",
            "differences reported", "95 % intervals without 1", "ratios"]
    return markdown(head, [
        [f"`{c['program']}`", c["load"], c["n"], c["rounds"], c["calls"],
         c["intervals_without_1"],
         f"{min(r['ratio'] for r in c['repeats']):.2f} to "
         f"{max(r['ratio'] for r in c['repeats']):.2f}"] for c in found["cases"]
    ]) + f"\n\nMeasured on {found['date'][:10]} at commit `{found['commit']}`."


def feedback():
    """The classification of pages in starts after three learned ones."""
    found = results("feedback")
    if not found:
        return MISSING

    def both(cell, name, form="{:,.0f}"):
        median, most = (form.format(cell[name][which]) for which in ("median", "max"))
        return median if median == most else f"{median} ({most})"
    share = "{:.2f}"
    head = ["start", "on", "pages touched", "late, %", "missing, pages", "wasted, %",
            "wasted with gaps, %", "metadata read by itself, pages", "major faults"]
    rows = [[c["title"], f"`{c['model']}`", both(c, "touched_pages"),
             both(c, "late_percent", share), both(c, "missing_pages"),
             both(c, "wasted_percent", share), both(c, "wasted_with_gaps_percent", share),
             both(c, "metadata_pages"), both(c, "major_faults")] for c in found["cells"]]
    return markdown(head, rows) + (
        f"\n\nMedians of {found['starts']} starts after {found['learned']} learned ones, and in "
        f"brackets the most. Measured on {found['date'][:10]} at commit `{found['commit']}`.")


def exact():
    """Starts with exact and ordinary packs."""
    found = results("exact")
    if not found:
        return MISSING
    def row(cell):
        plain, exact = cell["plain"], cell["exact"]
        both = lambda form: [form(plain), form(exact)]
        return [cell["title"], *both(lambda a: seconds(a["median_s"])),
                f"{cell['ratio']:.3f} [{cell['least']:.3f}, {cell['most']:.3f}]",
                *both(lambda a: f"{a['read_bytes'] / 1e6:.1f}"),
                *both(lambda a: f"{a['read_requests']:,.0f}")]
    head = ["start", "ordinary", "exact", "exact ÷ ordinary", "MB", "exact", "requests", "exact"]
    models = dict.fromkeys(cell["model"] for cell in found["cells"])
    parts = [f"`{model}`:\n\n" + markdown(head, [
        row(cell) for cell in found["cells"] if cell["model"] == model]) for model in models]
    commits = ", ".join(f"`{c}`" for c in dict.fromkeys(c["commit"] for c in found["cells"]))
    return "\n\n".join(parts) + (
        f"\n\nMedians of {found['cells'][0]['pairs']} pairs, the median ratio of a pair and the "
        f"least and the most. Measured on {found['date'][:10]} at commit {commits}.")


def harm():
    """Starts that headstart may slow down."""
    found = results("harm")
    if not found:
        return MISSING
    def text(cell):
        figures = f"{cell['ratio']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"
        return f"**{figures}**" if cell["verdict"] == "slower" else figures
    head = ["start", "disk", "condition", "pairs", "without", "with", "with ÷ without", "verdict"]
    return markdown(head, [
        [cell["workload"], f"`{cell['model']}`", cell["condition"], cell["n"],
         seconds(cell["without_s"]), seconds(cell["with_s"]), text(cell), cell["verdict"]]
        for cell in found["cells"]
    ])


TABLES = {
    "exact": exact,
    "feedback": feedback,
    "growth": growth,
    "harm": harm,
    "narrow": narrow,
    "same": same,
    "standing-setup": standing_setup,
    "standing-starts": standing_starts,
    "standing-peers": standing_peers,
    "standing-counts": standing_counts,
    "standing-losses": standing_losses,
    "standing-warnings": standing_warnings,
}


def filled(text):
    """The document with its tables made again."""
    for name in re.findall(r"<!-- table (\S+) -->", text):
        if name not in TABLES:
            sys.exit(f"tables.py: {DOCUMENT.name} has a table {name!r}; there are "
                     + ", ".join(TABLES))
        start, end = f"<!-- table {name} -->", f"<!-- end {name} -->"
        if text.count(end) != 1:
            sys.exit(f"tables.py: {DOCUMENT.name} needs one {end!r}")
        head, rest = text.split(start, 1)
        _, tail = rest.split(end, 1)
        text = f"{head}{start}\n{TABLES[name]()}\n{end}{tail}"
    return text


def main():
    """Writes or checks; the exit status."""
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__.split("\n\n")[1])
    old = DOCUMENT.read_text()
    new = filled(old)
    if new == old:
        return 0
    if sys.argv[1:]:
        print(f"{DOCUMENT.name} does not match bench/results; run bench/tables.py",
              file=sys.stderr)
        return 1
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
