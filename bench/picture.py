#!/usr/bin/env python3
"""Do pages with a million faults open fast, and do they answer, in a real browser?

A program that faults in eight files is recorded, once with few faults and once with many, as a page of
`headstart faults --picture` and as one of `headstart report`, which has the picture in a frame.
Headless Chromium opens each: the time from the navigation to the first frame, and of a report from opening
its picture to the first frame of that; the time from a movement of the pointer to the frame with
the names of what is under it, and from a key that zooms to the frame after it; each ends with the second
frame, as a user sees it. All views are shown once. A page that reports an error, or is slower than the
limits, ends the benchmark.

With --smoke, reports of pictures of 0, 1 and 1,000 faults are tried: names under the pointer, search, zoom; and one of
two pictures: only that which is opened is loaded.

Usage: bench/picture.py [--faults N,…] [--hovers N] [--headstart FILE] [--out FILE] [--shots DIRECTORY]
                        [--smoke]
"""
import json
import random
import statistics
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
PYTHON = "/usr/bin/python3"
READY = "document.body && document.body.dataset.drawn"
LOADED = "document.readyState === 'complete'"
FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
# Opens the first picture of a report, at the top of the window.
LOOK = ("(() => { const all = document.querySelector('details'); all.open = true;"
        " all.querySelector('iframe').scrollIntoView(); })()")
PLACE = ("((one) => { const {x, y, width, height} = one.getBoundingClientRect();"
         " return [x, y, width, height]; })")
LIMITS = {"open_s": 3.0, "hover_ms": 100.0, "bytes": 15e6}


class Page:
    """A page with a picture, in a browser that has opened it."""

    def __init__(self, browser, file, ready=READY):
        self.browser, self.left, self.top, self.look_s = browser, 0, 0, None
        if "report" not in file.stem:
            self.open_s = browser.open(file, ready)
            return
        self.open_s = browser.open(file, LOADED)
        browser.value(FRAME)
        if browser.value("[...document.querySelectorAll('iframe')].some((frame) => frame.srcdoc)"):
            raise Trouble("a report loads a picture before it is opened")
        began = time.monotonic()
        browser.enter(LOOK, ready)
        browser.value(FRAME)
        self.look_s = time.monotonic() - began
        browser.context, frame = None, browser.context
        self.left, self.top = browser.value(f"{PLACE}(document.querySelector('iframe'))")[:2]
        browser.context = frame

    def after(self, act):
        """ms from an input to the second frame after it."""
        began = time.monotonic()
        act()
        self.browser.value(FRAME)
        return 1000 * (time.monotonic() - began)

    def key(self, key):
        return self.after(lambda: self.browser.key(key))

    def point(self, x, y):
        """Moves the pointer to a point of the picture's page."""
        return self.after(lambda: self.browser.call(
            "Input.dispatchMouseEvent", type="mouseMoved", x=self.left + x, y=self.top + y))

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=self.left + x, y=self.top + y,
                              button="left", clickCount=1)

    def views(self):
        return self.browser.value("[...document.querySelectorAll('#views button')].map((b) => b.textContent)")

    def tip(self):
        """What is written at the pointer."""
        return self.browser.value("document.getElementById('tip').hidden ? '' :"
                                  " document.getElementById('tip').textContent")

    def canvas(self):
        return self.browser.value(f"{PLACE}(document.getElementById('canvas'))")

    def shot(self, directory, name):
        if directory:
            self.browser.screenshot(Path(directory) / f"{name}.png")


def recorded(headstart, faults, directory):
    """The two pages of a recording."""
    command = ("--", PYTHON, "-c", FAULTS, faults, directory)
    picture, report = directory / f"{faults}-faults.html", directory / f"{faults}-report.html"
    run(headstart, "faults", "--quiet", "--picture", picture, *command)
    run(headstart, "report", "--output", report, *command)
    return picture, report


def of_several(headstart, directory, browser):
    """Of a report with pictures, only the one that is opened is loaded."""
    data, report = directory / "several.json", directory / "several-report.html"
    run(headstart, "faults", "--quiet", "--picture", data, "--", PYTHON, "-c", "")
    run(headstart, "report", "--picture", data, "--picture", data, "--output", report)
    page = Page(browser, report)
    browser.context, frame = None, browser.context
    loaded = browser.value("[...document.querySelectorAll('iframe')].map((frame) => !!frame.srcdoc)")
    browser.context = frame
    if loaded != [True, False]:
        raise Trouble(f"of two pictures the first was opened, and loaded are {loaded}")


def hovers(page, count):
    """ms from a movement of the pointer to the second frame after it, and how often names were shown."""
    box, draw, times, named = page.canvas(), random.Random(1), [], 0
    for _ in range(count):
        x = box[0] + 230 + draw.random() * (box[2] - 400)
        y = box[1] + 30 + draw.random() * min(box[3] - 80, 500)
        times.append(page.point(x, y))
        named += bool(page.tip())
    return times, named


def measured(browser, file, args, faults):
    page = Page(browser, file)
    found = {"page": file.stem.split("-")[1], "faults": faults, "bytes": file.stat().st_size,
             "open_s": round(page.open_s, 3), "look_s": page.look_s and round(page.look_s, 3), "views": []}
    page.click(*page.canvas()[:2])
    for number, name in enumerate(page.views()):
        shown = page.key(str(number + 1))
        times, named = hovers(page, args.hovers)
        page.shot(args.shots, f"{file.stem}-{number + 1}")
        zoomed = page.key("+")
        found["views"].append({
            "view": name, "shown_ms": round(shown, 1), "zoom_ms": round(zoomed, 1),
            "hover_median_ms": round(statistics.median(times), 1), "hover_p90_ms": round(sorted(times)[len(times) * 9 // 10], 1),
            "hover_max_ms": round(max(times), 1),
            "hovers": len(times), "with_names": named,
        })
    return found


def tell(page):
    """Ends the benchmark if a page is too slow, too large, or shows no names."""
    slowest = max(view["hover_max_ms"] for view in page["views"])
    found = {"open_s": page["open_s"] + (page["look_s"] or 0), "hover_ms": slowest, "bytes": page["bytes"]}
    for what, most in LIMITS.items():
        if found[what] > most:
            raise Trouble(f"{page['page']} with {page['faults']} faults: {what} is {found[what]}, which must "
                          f"not exceed {most}")
    if not any(view["with_names"] for view in page["views"]):
        raise Trouble("no movement of the pointer showed a name")


def cut(document, rows):
    """A picture with so many rows at most; with less than none also without subjects."""
    for frame in document["frames"]:
        frame["rows"] = min(frame["rows"], max(rows, 0))
    for view in document["views"]:
        view["subjects"] = view["subjects"] if rows >= 0 else []
    return document


def tried(browser, file, name, shots):
    """What the scripts of a picture in a report must do, in each of its views."""
    page = Page(browser, file, READY if name else f"{READY} || {LOADED}")
    if not name:
        if browser.value("!document.getElementById('app').hidden"):
            raise Trouble("a picture of nothing shows controls")
        return
    page.click(*page.canvas()[:2])
    for number, view in enumerate(page.views()):
        page.key(str(number + 1))
        box = page.canvas()
        page.key("n")
        if not page.tip() and browser.value("state.drawn.some(({marks}) => marks && marks.row.length)"):
            raise Trouble(f"{view}: the longest mark has no names")
        before = browser.value("[state.x, state.subject.panels.length]")
        page.key("+")
        if before[1] and browser.value("state.x[1] - state.x[0]") >= before[0][1] - before[0][0]:
            raise Trouble(f"{view}: the key + does not zoom")
        page.key("0")
        page.point(box[0] + 60, box[1] + 30)
        if number == 0 and name not in page.tip():
            raise Trouble(f"{view}: {page.tip()!r} is shown over the name of the first lane, which is {name}")
    page.key("/")
    for letter in name:
        browser.key(letter)
    found = browser.value("[...document.querySelectorAll('#found button')].map((b) => b.textContent)")
    if not any(name in one for one in found):
        raise Trouble(f"the search for {name} finds {found}")
    page.shot(shots, file.stem)
    page.key("Enter")


def smoke(browser, headstart, args, directory):
    whole = directory / "whole.json"
    run(headstart, "faults", "--quiet", "--picture", whole, "--", PYTHON, "-c", "")
    for rows in (-1, 0, 1, 1000):
        data, file = directory / f"{rows}.json", directory / f"{rows}-report.html"
        picture = cut(json.loads(whole.read_text()), rows)
        data.write_text(json.dumps(picture))
        run(headstart, "report", "--picture", data, "--output", file)
        lanes = picture["views"][0]["subjects"][:1] and picture["frames"][0]["columns"]
        names = [column["labels"] for column in lanes if column["title"] == "file"]
        tried(browser, file, names[0][0] if names else "", args.shots)
    of_several(headstart, directory, browser)
    print("search, names and zoom work at 0, 1 and 1,000 faults")


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
    pages = []
    with tempfile.TemporaryDirectory() as directory:
        if args.smoke:
            with Browser() as browser:
                return smoke(browser, headstart, args, Path(directory))
        for count in args.faults.split(","):
            for file in recorded(headstart, int(count), Path(directory)):
                with Browser() as browser:
                    pages.append(measured(browser, file, args, int(count)))
                print(json.dumps(pages[-1], indent=1), flush=True)
                tell(pages[-1])
    write(args.out, about("headstart/bench-picture/2", headstart) | {"limits": LIMITS, "pages": pages})
    return None


if __name__ == "__main__":
    main(bench)
