#!/usr/bin/env python3
"""Does a page of `headstart faults --picture` with a million faults open fast, and does it answer?

A program that faults in eight files is recorded as a page, once with few faults and once with many.
Headless Chromium opens it: the time from the navigation to the first frame, the time from a movement of
the pointer to the frame with the names of what is under it, and the time from a key that zooms to the
frame after it; each ends with the second frame, as a user sees it. All views are shown once; what a page reports as an error ends the benchmark.

Usage: bench/picture.py [--faults N,…] [--hovers N] [--headstart FILE] [--out FILE] [--shots DIRECTORY]
                        [--smoke]
"""
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lib.browser import Browser
from lib.run import Trouble
from measured import BUILT, RESULTS, about, command_line, main, run, tool, write

# Writes to private mappings: each copies one page, so that no fault maps pages around it.
FAULTS = """
import mmap, random, sys, tempfile
count, files, pages = int(sys.argv[1]), 8, 4096
random.seed(1)
maps = []
for number in range(files):
    file = tempfile.NamedTemporaryFile(dir=sys.argv[2], prefix=f"library-{number}-", suffix=".so")
    file.write(bytes(pages * 4096))
    file.flush()
    maps.append((file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)))
forwards = list(range(pages))
scattered = random.sample(forwards, pages)
done = step = 0
while done < count:
    memory = maps[step % files][1]
    order = (forwards, forwards[::-1], scattered)[step % 3][:count - done]
    for page in order:
        memory[page * 4096] = 1
    done += len(order)
    memory.madvise(mmap.MADV_DONTNEED)
    step += 1
"""
READY = "document.body && document.body.dataset.drawn"
FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
LIMITS = {"open_s": 3.0, "hover_ms": 100.0, "bytes": 15e6}


def recorded(headstart, faults, directory):
    page = directory / f"{faults}.html"
    run(headstart, "faults", "--quiet", "--picture", page, "--", "/usr/bin/python3", "-c", FAULTS, faults,
        directory)
    return page


def hovers(browser, count):
    """ms from a movement of the pointer to the second frame after it, and how often names were shown."""
    box = browser.value("(({x, y, width, height}) => [x, y, width, height])"
                        "(document.getElementById('canvas').getBoundingClientRect())")
    draw, times, named = random.Random(1), [], 0
    for _ in range(count):
        x = box[0] + 230 + draw.random() * (box[2] - 400)
        y = box[1] + 30 + draw.random() * min(box[3] - 80, 500)
        began = time.monotonic()
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        browser.value(FRAME)
        times.append(1000 * (time.monotonic() - began))
        named += browser.value("!document.getElementById('tip').hidden")
    return times, named


def measured(browser, page, args, faults):
    opened = browser.open(page, READY)
    found = {"faults": faults, "bytes": page.stat().st_size, "open_s": round(opened, 3), "views": []}
    views = browser.value("[...document.querySelectorAll('#views button')].map((b) => b.textContent)")
    for number, name in enumerate(views):
        began = time.monotonic()
        browser.key(str(number + 1))
        browser.value(FRAME)
        shown = 1000 * (time.monotonic() - began)
        times, named = hovers(browser, args.hovers)
        if args.shots:
            browser.screenshot(Path(args.shots) / f"{faults}-{number + 1}.png")
        began = time.monotonic()
        browser.key("+")
        browser.value(FRAME)
        zoomed = 1000 * (time.monotonic() - began)
        found["views"].append({
            "view": name, "shown_ms": round(shown, 1), "zoom_ms": round(zoomed, 1),
            "hover_median_ms": round(statistics.median(times), 1), "hover_p90_ms": round(sorted(times)[len(times) * 9 // 10], 1),
            "hover_max_ms": round(max(times), 1),
            "hovers": len(times), "with_names": named,
        })
    return found


def bench():
    arguments = command_line(__doc__)
    arguments.add_argument("--faults", default="1000,1000000")
    arguments.add_argument("--hovers", type=int, default=50)
    arguments.add_argument("--headstart", default=BUILT / "headstart")
    arguments.add_argument("--out", default=RESULTS / "picture.json")
    arguments.add_argument("--shots", help="write a screenshot of each view to this directory")
    arguments.add_argument("--smoke", action="store_true", help="few faults; writes no result")
    args = arguments.parse_args()
    headstart = tool(args.headstart, "build it with: cargo build --release")
    counts = [1000] if args.smoke else [int(number) for number in args.faults.split(",")]
    pages = []
    with tempfile.TemporaryDirectory() as directory:
        for count in counts:
            page = recorded(headstart, count, Path(directory))
            with Browser() as browser:
                pages.append(measured(browser, page, args, count))
            print(json.dumps(pages[-1], indent=1), flush=True)
            tell(pages[-1])
    if not args.smoke:
        write(args.out, about("headstart/bench-picture/1", headstart) | {"limits": LIMITS, "pages": pages})


def tell(page):
    """Ends the benchmark if a page is too slow, too large, or shows no names."""
    # Other work on the machine delays single frames.
    slowest = max(view["hover_p90_ms"] for view in page["views"])
    found = {"open_s": page["open_s"], "hover_ms": slowest, "bytes": page["bytes"]}
    for what, most in LIMITS.items():
        if found[what] > most:
            raise Trouble(f"with {page['faults']} faults {what} is {found[what]}, which must not exceed {most}")
    if not any(view["with_names"] for view in page["views"]):
        raise Trouble("no movement of the pointer showed a name")


if __name__ == "__main__":
    main(bench)
