"""What the benchmark scripts here share: where and on what something was
measured, and that what they start ends with them."""
import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from lib.run import Trouble

REPOSITORY = Path(__file__).resolve().parent.parent
BUILT = REPOSITORY / "target" / "release"
RESULTS = REPOSITORY / "bench" / "results"

# Looks for its parent, so that it also ends after a kill -9.
HOG = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1000000))"


def main(function, after_interrupt=""):
    """Runs a script: a termination unwinds as Ctrl-C does, trouble is one line.

    `after_interrupt` says what is left then.
    """
    def stop(number, _frame):
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    name = Path(sys.argv[0]).name
    try:
        sys.exit(function())
    except KeyboardInterrupt:
        print(f"{name}: interrupted{after_interrupt}", file=sys.stderr)
        sys.exit(130)
    except (Trouble, OSError) as trouble:
        sys.exit(f"{name}: {trouble}")


def command_line(doc, usage="%(prog)s [OPTION…]"):
    """A script's command line, described by its documentation."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, usage=usage)


def needs_root(why):
    """Trouble for others than root."""
    if os.geteuid() != 0:
        raise Trouble(f"{why}; start this with sudo")


def tool(path, build):
    """The full path of a tool that must have been built, or is in the PATH."""
    found = shutil.which(path)
    if not found:
        raise Trouble(f"{path} is missing; {build}")
    return str(Path(found).resolve())


def run(*words, **options):
    """Runs a command to its end and returns what it printed."""
    words = [str(word) for word in words]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", **options)
    if done.returncode:
        last = " / ".join(done.stderr.strip().splitlines()[-3:])
        raise Trouble(f"{' '.join(words[:4])} ended with status {done.returncode}: {last}")
    return done.stdout


@contextlib.contextmanager
def hogs(count):
    """Keeps so many processes computing meanwhile."""
    running = []
    try:
        for _ in range(count):
            running.append(subprocess.Popen([sys.executable, "-c", HOG]))
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


def spread(values):
    """Median and range of the values; None without any."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    return {"n": len(values), "median": statistics.median(values),
            "min": min(values), "max": max(values)}


def interval(ordered):
    """The interval of the median of 95 % or the most there is, and its confidence."""
    n = len(ordered)
    def outside(k):  # The chance that the median is not between the k-th of either end.
        return 2 * sum(math.comb(n, i) for i in range(k)) / 2 ** n
    k = max([1] + [k for k in range(1, n // 2 + 1) if outside(k) <= 0.05])
    return ordered[k - 1], ordered[n - k], 1 - outside(k)


def middle(values, digits):
    """The median and its interval, of those that are known."""
    values = sorted(value for value in values if value is not None)
    if not values:
        return None
    low, high, _ = interval(values)
    return [round(value, digits) for value in (statistics.median(values), low, high)]


def hodges_lehmann(values):
    """The median of the means of all pairs of values, each with itself too, and its interval of 95 % or the
    most there is, by Wilcoxon's signed ranks: narrower than that of the median, if the values are distributed
    symmetrically."""
    n = len(values)
    means = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    # How many sets of the ranks 1 to n have each sum.
    sets = [1]
    for rank in range(1, n + 1):
        longer = [*sets, *[0] * rank]
        for total, count in enumerate(sets):
            longer[total + rank] += count
        sets = longer
    below, outside = 0, 0
    while 2 * (below + sets[outside]) <= 0.05 * 2 ** n:
        below += sets[outside]
        outside += 1
    skipped = max(0, outside - 1)
    return statistics.median(means), means[skipped], means[-1 - skipped]


def spelled(middle):
    """The same as text; none as nothing."""
    return "{} [{}, {}]".format(*middle) if middle else ""


def ratio_of(pairs, one, other):
    """The median of the ratios of pairs, and its interval."""
    return dict(zip(("ratio", "low", "high"),
                    middle([pair[one] / pair[other] for pair in pairs], 4), strict=True))


def about(schema, headstart):
    """The head of a result: of what, on what, when."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return {
        "schema": schema,
        "commit": commit(),
        "version": run(headstart, "--version").split()[-1],
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "cpu": locals().get("cpu", platform.machine()),
        "cpus": os.cpu_count(),
    }


def joined(path, document, key):
    """A result with the cells that an earlier run on this machine left there and this one
    has none of, so that a benchmark can be run in pieces. Each tells its commit."""
    cells = [cell | {"commit": document["commit"]} for cell in document["cells"]]
    mine = {key(cell) for cell in cells}
    with contextlib.suppress(OSError):
        old = json.loads(Path(path).read_text())
        if all(old.get(what) == document[what] for what in ("schema", "kernel", "cpu", "cpus")):
            cells = [{"commit": old["commit"]} | cell
                     for cell in old["cells"] if key(cell) not in mine] + cells
    return document | {"cells": cells}


def commit():
    """The commit of the checkout, -dirty when it differs; None without git."""
    try:
        return run("git", "-C", REPOSITORY, "describe", "--always", "--dirty",
                   "--exclude", "*").strip()
    except (Trouble, OSError):
        return None


def write(path, document):
    """Writes a result atomically; in place to what is no file, so that `/dev/null` stays what it is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)
